"""A cluster of this machine alone: a scheduler and workers of Dask in processes that end with this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autofuse.errors import MeasureError
from autofuse.measurement.cluster.protocol import RESOURCE
from autofuse.measurement.worker import die_with

_START_S = 60.0
_GOODBYE_S = 5.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from autofuse.measurement.cluster.local import main; raise SystemExit(main(sys.argv[2:]))"
)
"""The processes find modules exactly where this one does."""


@contextmanager
def local_cluster(environments: Sequence[Mapping[str, str]]) -> Generator[str]:
    """Start a scheduler and one worker for each environment; yields the scheduler's address.

    It listens on this machine alone. Raises MeasureError if it does not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autofuse-cluster-")))
        file = folder / "scheduler.json"
        here = ["--host", "127.0.0.1", "--no-dashboard"]
        scheduler = stack.enter_context(
            _process(["scheduler", *here, "--port", "0", "--scheduler-file", str(file)], {})
        )
        address = _address(file, scheduler)
        for number, environment in enumerate(environments):
            own = folder / f"worker{number}"
            options = ["--nthreads", "2", "--no-nanny", "--resources", f"{RESOURCE}=1", "--local-directory", str(own)]
            stack.enter_context(_process(["worker", address, *here, *options], environment))
        yield address


@contextmanager
def _process(arguments: Sequence[str], environment: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    import json

    command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), str(os.getpid()), *arguments]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the tuner's to handle
            env={**os.environ, **environment},
        )
    except OSError as failure:
        raise MeasureError(f"cannot start a process of the local cluster: {failure}") from failure
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """Of the scheduler, once it listens."""
    from autofuse.strictjson import parse

    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and scheduler.poll() is None:
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            text = b""
        if text.rstrip().endswith(b"}"):  # written while this reads
            address = parse(text, MeasureError, str(file)).members(100).get("address")
            if address is not None:
                return address.text()
        time.sleep(0.05)
    raise MeasureError("the scheduler of the local cluster does not start; is Dask distributed installed soundly?")


def main(arguments: list[str]) -> int:
    """`PARENT scheduler|worker OPTIONS`: what runs in a process of the cluster."""
    die_with(int(arguments[0]))
    if arguments[1] == "scheduler":
        from distributed.cli.dask_scheduler import main as run
    else:
        from distributed.cli.dask_worker import main as run
    run.main(args=arguments[2:], prog_name=f"dask {arguments[1]}", standalone_mode=False)
    return 0
