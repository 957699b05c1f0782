import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.workerpool import Job, Worker


def behave(building: str = "nothing", running: str = "nothing", build_s: float = 600.0, run_s: float = 600.0) -> Job:
    payload = {"building": building, "running": running, "run_s": run_s}
    return Job("tests.fixtures.jobs:behave", payload, {}, build_s)


FINE = Job("tests.fixtures.jobs:fine", {"n": 1})


@pytest.fixture(scope="module")
def worker():
    with Worker() as shared:
        yield shared


def test_job_answers_with_data_and_arrays(worker):
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1.5, 2.5], ml_dtypes.bfloat16),
        "empty": np.zeros((0, 4), np.int8),
        "scalar": np.array(7),
        "view": np.arange(12.0).reshape(3, 4).T[::2],
    }
    outcome = worker.run(Job("tests.fixtures.jobs:fine", {"text": "ü", "n": [1, None]}, arrays))
    assert outcome.status == "ok"
    assert outcome.data["echo"] == {"text": "ü", "n": [1, None]}
    assert outcome.data["arrays"] == {name: [str(array.dtype), array.tolist()] for name, array in arrays.items()}


def test_one_process_serves_many_jobs(worker):
    pids = {worker.run(FINE).data["pid"] for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


@pytest.mark.parametrize(
    ("job", "status", "message"),
    [
        (behave(running="read address 0"), "crash", "SIGSEGV"),
        (behave(building="read address 0"), "crash", "SIGSEGV"),
        (behave(running="exit"), "crash", "exit status 3"),
        (behave(building="hang", build_s=0.2), "timeout", "build deadline of 0.2 s"),
        (behave(running="hang", run_s=0.2), "timeout", "run deadline of 0.2 s"),
        (behave(running="be wrong"), "wrong", r"y\[0, 1\] is off"),
        (behave(running="divide by zero"), "error", "ZeroDivisionError"),
        (behave(running="exhaust memory"), "memory", "MemoryError"),
        (behave(running="abort without memory"), "memory", "SIGABRT"),
        (behave(building="be refused"), "refused", "no such instruction"),
        (behave(running="be killed"), "killed", "SIGKILL"),
        (behave(running="return a set"), "error", "JSON cannot"),
        (behave(running="return nan"), "error", "JSON cannot"),
        (behave(running="print a lot"), "ok", ""),
        (Job("tests.fixtures.jobs:twice", {}), "ok", ""),
        (Job("tests.fixtures.jobs:missing", {}), "error", "no runner"),
        (Job("tests.fixtures.nowhere:fine", {}), "error", "no runner"),
        (Job("tests.fixtures.jobs:signal", {}), "error", "RUNNERS does not list it"),
        (Job("os.path:isfile", {}), "error", "RUNNERS does not list it"),
    ],
    ids=lambda value: value.payload.get("running") if isinstance(value, Job) else None,
)
def test_a_bad_job_costs_one_outcome_and_the_queue_goes_on(worker, job, status, message):
    bad, good = worker.run(job), worker.run(FINE)
    assert bad.status == status
    assert message.replace("\\", "") in bad.message
    assert good.status == "ok"


@pytest.mark.parametrize(
    "name", ["os:system", "autofuse:load", "autofuse.x:a.b", "autofuse.x", "autofuse.x:y\n", "autofuse..x:y", ""]
)
def test_a_name_of_another_form_is_refused(worker, name):
    with pytest.raises(MeasureError, match="is no runner"):
        worker.run(Job(name, {}))


def test_payload_must_be_json_and_the_worker_survives(worker):
    with pytest.raises(MeasureError, match="JSON cannot"):
        worker.run(Job("tests.fixtures.jobs:fine", {"x": object()}))
    assert worker.run(FINE).status == "ok"


def test_worker_killed_between_jobs_is_replaced(worker):
    pid = worker.run(FINE).data["pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    outcome = worker.run(FINE)
    assert outcome.status == "ok"
    assert outcome.data["pid"] != pid


def test_worker_that_cannot_start_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Worker() as broken, pytest.raises(MeasureError, match="cannot start the measuring process"):
        broken.run(FINE)


def test_worker_without_the_package_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with Worker() as broken, pytest.raises(MeasureError, match=r"does not start: .*exit status 1"):
        broken.run(FINE)


def gone(pid: int) -> bool:
    """Whether a process, which may have been told to end just now, does; a zombie has."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 300.0)[0])
    finally:
        os.close(watched)


TUNER = """
import signal, sys
from autofuse.measurement.workerpool import Job, Worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a script starts in the background
with Worker() as worker:
    worker.run(Job("tests.fixtures.jobs:fine", {}))
    print("ready", flush=True)
    worker.run(Job("tests.fixtures.jobs:RUNNER", {"pids": sys.argv[1], "building": "hang"}))
"""


def tuner(runner: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TUNER.replace("RUNNER", runner), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_worker_ends_with_the_tuner(tmp_path, how):
    pids = tmp_path / "pids"
    with tuner("child", str(pids)) as parent:
        while not pids.exists():
            assert parent.poll() is None
        worker_pid, child_pid = map(int, pids.read_text().split())
        parent.send_signal(how)
        _, errors = parent.communicate()
    assert gone(worker_pid)
    if how == signal.SIGINT:
        assert gone(child_pid)
        assert "KeyboardInterrupt" in errors
    else:
        os.kill(child_pid, signal.SIGKILL)


def test_worker_hanging_in_native_code_ends_with_a_killed_tuner(tmp_path):
    with tuner("behave", str(tmp_path)) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        (worker_pid,) = map(int, Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split())
        parent.kill()
    assert gone(worker_pid)
