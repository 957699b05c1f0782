"""The data set's collector: what is chosen, what is kept, and that it carries on where it was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autofuse.errors import ArgumentError, MeasureError, WorkerLeftOutWarning
from autofuse.lower.schedule import Schedule
from autofuse.measurement.cluster.leases import lease_all
from autofuse.measurement.columns import read_columns, write_columns
from autofuse.measurement.exported import Exported
from autofuse.measurement.observations import Observation, observations, pass_policy
from autofuse.measurement.records import Measurement, stamped
from autofuse.measurement.sources import KernelSource, ProgramSource, graph_from, kernel_from, text_hash
from autofuse.measurement.workerpool import Job
from autofuse.plan.identity import identity_hash
from autofuse.targets.base import find_target
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.target import CpuTarget
from tests.fixtures.collectingfaults import CRASHES
from tests.fixtures.fakecluster import FakeWorker, fake_cluster, sound

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "dataset"
MODULES = ("before", "card", "choosing", "collect", "programs", "run", "state")
Study = dict[str, ModuleType]


def names_of(study: Study, numbers: range) -> list[str]:
    return [study["programs"].source_of(number, 0).name for number in numbers]


def test_programs_are_told_by_their_number(study: Study) -> None:
    names = names_of(study, range(400))
    assert len({*names}) == 400
    assert names == names_of(study, range(400))
    sources = [study["programs"].source_of(number, 0) for number in range(74, 400)]
    shares = Counter(bool(source.workload) for source in sources)
    assert 0.5 < shares[False] / len(sources) < 0.7
    stretched = next(source for source in sources if source.stretched)
    assert stretched.grouped == stretched.workload


def test_programs_are_the_same_each_time(study: Study) -> None:
    programs = study["programs"]
    for number in (74, 75, 84, 92):
        source = programs.source_of(number, 0)
        one, other = programs.made(source), programs.made(source)
        assert one.text == other.text
        for a, b in zip(one.arrays, other.arrays, strict=True):
            np.testing.assert_array_equal(a, b)


def test_stretched_arguments_keep_what_is_equal(study: Study) -> None:
    arguments = (np.ones((64, 16, 2)), {"w": np.arange(16.0)}, 3.0)
    seen = set()
    for seed in range(20):
        x, of, scalar = study["programs"].stretched(arguments, np.random.default_rng(seed))
        assert x.shape[1] == of["w"].shape[0]
        assert x.shape[2] == 2
        assert scalar == 3.0
        assert {*of["w"]} <= {*range(16)}
        seen.add(x.shape)
    assert len(seen) > 5


def test_bins_are_equal_parts_of_a_logarithmic_scale(study: Study) -> None:
    choosing = study["choosing"]
    low, high = choosing.RANGE_US
    assert choosing.bin_of(low) == 0
    assert choosing.bin_of(0.99 * low) is None
    assert choosing.bin_of(high) is None
    assert choosing.bin_of(0.999 * high) == choosing.BINS - 1
    step = (high / low) ** (1 / choosing.BINS)
    assert [choosing.bin_of(low * step ** (n + 0.5)) for n in range(choosing.BINS)] == [*range(choosing.BINS)]


def test_what_there_is_less_of_is_looked_for(study: Study) -> None:
    balance = study["choosing"].Balance()
    rng = np.random.default_rng(0)
    for _ in range(20_000):  # most kernels are short, as random ones are
        bin_ = min(int(rng.exponential(3.0)), study["choosing"].BINS - 1)
        if balance.takes(bin_):
            balance.bins[bin_] += 1
    counts = [balance.bins[n] for n in range(study["choosing"].BINS)]
    median = sorted(counts)[len(counts) // 2]
    assert max(counts) <= 1.25 * median + 13
    assert not balance.takes(None)


def chosen(study: Study, number: int = 80, whole: bool = False, most: int = 6) -> tuple[list[Any], bool]:
    choosing, programs = study["choosing"], study["programs"]
    targets = choosing.targets_of("cpu", find_target)
    made = programs.made(programs.source_of(number, 0))
    return choosing.chosen(made, targets, choosing.Balance(), np.random.default_rng(0), most, whole)


def test_kernels_are_chosen_with_schedules_threads_and_passes(study: Study) -> None:
    found, whole = chosen(study)
    assert not whole
    kernels = {one.kernel for one in found}
    assert 1 <= len(kernels) <= 6
    assert len({(one.kernel, json.dumps(one.schedule), one.threads) for one in found}) == len(found)
    assert all(one.bin is not None and one.passes in (2, 4) for one in found)
    assert any(one.schedule for one in found)
    for one in found:
        again = kernel_from(one.text, "kernel")
        assert len(again.outputs) == len(one.outputs)
    assert found == chosen(study)[0]


def test_a_third_of_the_records_are_of_other_schedules(study: Study) -> None:
    choosing = study["choosing"]
    balance = choosing.Balance()
    swept = 0
    for number in range(300):
        schedules = [{}, *([{"unroll": 2}] * choosing.SWEPT if balance.sweeps() else [])]
        some = [choosing.Chosen(str(number), (), (), "", "loop", schedule, 1, 2, 0) for schedule in schedules]
        balance.note(some)
        swept += len(schedules) - 1
    assert swept / (300 + swept) == pytest.approx(1 / 3, abs=0.02)


def test_other_schedules_are_drawn_from_all_that_there_are(study: Study) -> None:
    found, _ = chosen(study)
    swept = [one for one in found if one.schedule]
    per_kernel = Counter((one.kernel, one.threads) for one in swept)
    assert max(per_kernel.values()) <= study["choosing"].SWEPT
    assert len({json.dumps(one.schedule, sort_keys=True) for one in swept}) > 2


def options_of(tmp_path: Path, **changes: Any) -> Namespace:
    given = {
        "records": 1,
        "programs": 1,
        "kernels": 2,
        "size": "small",
        "seed": 0,
        "backend": "cpu",
        "export": False,
        "scheduler": None,
        "spaces": None,
    }
    return Namespace(state=tmp_path / "state", out=tmp_path / "records.npz", **{**given, **changes})


@pytest.fixture
def short(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two small programs, which are chosen from in this process."""
    monkeypatch.setattr(study["programs"], "_names", lambda: ["softmax", "cumulative"])
    monkeypatch.setattr(study["run"], "BLOCK", 2)
    monkeypatch.setattr(study["run"], "ProcessPoolExecutor", Here)


class Here:
    """Does what it is given at once."""

    def __init__(self, *_: object, **__: object) -> None: ...
    def shutdown(self, **_: object) -> None: ...
    def submit(self, call: Any, *arguments: Any) -> Any:
        found = call(*arguments)
        return Namespace(result=lambda: found)


def seen_in(file: Path) -> list[Observation]:
    return observations(read_columns(file))


def planned(state: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (state / "plan.jsonl").read_text().splitlines()]
    return [kernel for line in lines if line["kind"] == "program" for kernel in line["kernels"]]


@pytest.mark.usefixtures("short")
def test_what_is_planned_is_measured_and_a_second_run_measures_nothing(study: Study, tmp_path: Path) -> None:
    options = options_of(tmp_path)
    study["run"].collect(options)
    seen, plan = seen_in(options.out), planned(options.state)
    assert len(seen) == len(plan) > 0
    for one in seen:
        assert one.status == "ok"
        assert len(one.passes) in (2, 4)
        assert one.program.family == "workload"
        assert one.threads in (1, find_target().threads)
        assert json.loads(one.description)["threads"] == one.threads
        assert kernel_from(one.source.text, "kernel").nodes
    assert {one.program.name for one in seen if one.program.text} <= {"softmax/small", "cumulative/small"}
    whole = [one.program.text for one in seen if one.program.text]
    assert graph_from(whole[0], "program").nodes
    before = options.out.read_bytes()
    study["run"].collect(options)
    assert options.out.read_bytes() == before
    assert "softmax/small" in options.out.with_suffix(".md").read_text()


@pytest.mark.usefixtures("short")
@pytest.mark.slow
def test_it_carries_on_where_it_was_stopped(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(tmp_path, kernels=1)
    own, kept = study["state"].State.add, []

    def add(state: Any, program: Any, measured: Any) -> None:
        own(state, program, measured)
        kept.append(len(measured))
        if len(kept) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(study["state"].State, "add", add)
    with pytest.raises(KeyboardInterrupt):
        study["run"].collect(options)
    first = [one.record for one in read_columns(options.out)]
    assert len(first) == kept[0]
    study["run"].collect(options)
    records = [one.record for one in read_columns(options.out)]
    assert {record.uid for record in first} < {record.uid for record in records}
    assert len(records) == sum(kept) == sum(kernel["passes"] for kernel in planned(options.state))


@pytest.mark.usefixtures("short")
@pytest.mark.slow
def test_another_folder_carries_on_from_the_file(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(tmp_path, kernels=1)
    study["run"].collect(options)
    first, names = seen_in(options.out), {one.program.name for one in seen_in(options.out)}
    other = options_of(tmp_path, kernels=1, records=len(first) + 1)
    other.state = tmp_path / "other"
    study["run"].collect(other)
    second = seen_in(other.out)
    assert second[: len(first)] == first
    assert len(second) > len(first)
    assert not names & {one.program.name for one in second[len(first) :]}
    lines = [json.loads(line) for line in (other.state / "plan.jsonl").read_text().splitlines()]
    assert {line["why"] for line in lines if line.get("name") in names} == {"was looked at before"}
    # what is there by now is not read again: it is in the folder
    before = other.out.read_bytes()
    study["run"].collect(other)
    assert other.out.read_bytes() == before
    # a workload that the file knows nothing of is looked at
    monkeypatch.setattr(study["programs"], "_names", lambda: ["fused_add_sum", "softmax", "cumulative"])
    passed = study["before"].Before.of(other.state).passed(0, "small")
    assert names <= passed
    assert not any(name.startswith("fused_add_sum") for name in passed)


@pytest.mark.usefixtures("short")
def test_whole_spaces_alone_are_added(study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of(tmp_path, spaces=1)
    study["run"].collect(options)
    first = seen_in(options.out)
    assert {one.program.name for one in first if one.program.text} == {"softmax/small"}
    assert {one.program.name for one in first} == {"softmax/small"}
    study["run"].collect(options_of(tmp_path, spaces=3))  # more of them, in the same folder
    second = seen_in(options.out)
    assert [one for one in second if one.program.name == "softmax/small"] == first
    assert {one.program.name for one in second if one.program.text} == {"softmax/small", "cumulative/small"}
    assert "2 spaces are whole, not 3" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="only was 'whole spaces', is None"):
        study["run"].collect(options_of(tmp_path))


def test_kernels_of_another_code_generator_are_measured_anew_for_a_space(study: Study, tmp_path: Path) -> None:
    target = find_target()
    described = target.fingerprint()
    measurement = Measurement(
        "k", Schedule(), "", pass_policy(1), "", "ok", samples_us=(1.0,), described=text_hash(described)
    )
    about = KernelSource("k", "", "loop", "p"), ProgramSource("p", "p", "workload", "", {}), described
    old = replace(target.identity, generator="cpu/0")
    records = [Exported(stamped(measurement, identity_hash(i), 1), i, None, *about) for i in (old, target.identity)]
    for some, kernels in ((records, 1), (records[:1], 0)):
        write_columns(tmp_path / "before.npz", some)
        before = study["before"].Before.of(tmp_path)
        assert len([*before.kernels()]) == len(some)
        assert len([*before.kernels([target])]) == kernels


def test_another_seed_in_the_same_folder_is_refused(study: Study, tmp_path: Path) -> None:
    targets = study["choosing"].targets_of("cpu", find_target)
    study["state"].State(tmp_path, {"seed": 0}, {}, targets).__exit__(None, None, None)
    with pytest.raises(ArgumentError, match="seed was 0, is 1"):
        study["state"].State(tmp_path, {"seed": 1}, {}, targets)


def test_failures_are_kept_and_not_tried_again(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes its worker down is found among those of its program; the others are measured."""
    monkeypatch.setattr(study["collect"], "_RUNNERS", "tests.fixtures.collectingfaults")
    targets = study["choosing"].targets_of("cpu", find_target)
    source = study["programs"].source_of(80, 0, "small")
    found = study["run"].choose(source, "cpu", study["choosing"].Balance(), [0], 3, True)
    plain = list({kernel["outputs"][0]: kernel for kernel in found["kernels"] if not kernel["schedule"]}.values())[:3]
    assert len(plain) == 3
    assert sum(plain[0]["outputs"][0] in kernel["outputs"] for kernel in plain) == 1
    monkeypatch.setenv(CRASHES, plain[0]["outputs"][0])
    found["kernels"] = [{**kernel, "passes": 2} for kernel in plain]
    with study["state"].State(tmp_path, {}, {}, targets) as state:
        state.plan(0, source, **found)
        with study["collect"].Collector(state, targets, 0) as collector:
            collector.collect(state.programs, lambda: None)
        seen = observations(state.exported())
        waiting = [state.waits(study["choosing"].Chosen(**kernel), n) for kernel in found["kernels"] for n in (1, 2)]
    assert sorted(one.status for one in seen) == ["crash", "ok", "ok"]
    assert not any(waiting)


@pytest.mark.slow
def test_kernels_of_a_gpu_are_collected_on_the_simulated_one(study: Study, tmp_path: Path) -> None:
    targets = study["choosing"].targets_of("simulated", find_target)
    assert len(targets) == 1
    number = next(n for n in range(80) if study["programs"].source_of(n, 0).name == "softmax/small")
    source = study["programs"].source_of(number, 0)
    found = study["run"].choose(source, "simulated", study["choosing"].Balance(), [0], 2, False)
    found["kernels"] = [{**kernel, "passes": 2} for kernel in found["kernels"] if not kernel["schedule"]]
    assert {kernel["threads"] for kernel in found["kernels"]} == {None}
    with study["state"].State(tmp_path, {}, {}, targets) as state:
        state.plan(number, source, **found)
        with study["collect"].Collector(state, targets, 0) as collector:
            collector.collect(state.programs, lambda: None)
        seen = observations(state.exported())
    assert len(seen) == len(found["kernels"]) > 0
    assert {(one.status, len(one.passes), one.identity.backend, one.threads) for one in seen} == {
        ("ok", 2, "simulated", None)
    }


@pytest.mark.slow
def test_devices_of_a_cluster_measure_programs_of_their_own(study: Study, tmp_path: Path) -> None:
    """One of two is lost; what it had in hand is measured by the other, and nothing twice."""
    targets = study["choosing"].targets_of("cpu", find_target)
    sources = [study["programs"].source_of(number, 0, "small") for number in (80, 84, 92)]

    def lost_in_its_first(worker: FakeWorker, job: Job) -> bytes:
        if job.runner.endswith(":time_prepared"):
            worker.is_there = False
            raise ConnectionError("the task's worker died")
        return worker.done(job)

    with study["state"].State(tmp_path, {}, {}, targets) as state:
        for number, source in enumerate(sources):
            found = study["run"].choose(source, "cpu", study["choosing"].Balance(), [0, number], 2, False)
            found["kernels"] = [{**kernel, "passes": 2} for kernel in found["kernels"] if not kernel["schedule"]]
            state.plan(number, source, **found)
        with fake_cluster(a=lost_in_its_first, b=sound) as client:
            leases = lease_all(client, targets[-1].identity)
            with (
                study["collect"].Collector(state, targets, 0, leases) as collector,
                pytest.warns(WorkerLeftOutWarning, match="worker a is left out"),
            ):
                collector.collect(state.programs, lambda: None)
        assert state.ended == state.planned > 0
        seen = observations(state.exported())
        assert {(one.status, len(one.passes)) for one in seen} == {("ok", 2)}
        assert sum(len(one.passes) for one in seen) == state.planned
        other = replace(targets[-1].identity, generator="another")
        with fake_cluster(a=sound) as client, pytest.raises(MeasureError, match="others than the state's: generator"):
            study["collect"].Collector(state, targets, 0, lease_all(client, other))


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_measured(tmp_path: Path) -> None:
    command = [
        *(sys.executable, str(STUDY / "run.py"), "--state", str(tmp_path / "s"), "--out", str(tmp_path / "r.npz")),
        *("--size", "small", "--records", "1", "--programs", "1", "--kernels", "2"),
    ]
    counts = []
    for seconds in (15.0, 20.0, 600.0):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            end = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            child.send_signal(signal.SIGKILL)
        subprocess.run([*command, "--export"], check=True, capture_output=True)
        counts.append(sum(1 for _ in read_columns(tmp_path / "r.npz")))
    assert counts == sorted(counts)
    assert counts[-1] == sum(kernel["passes"] for kernel in planned(tmp_path / "s"))


def test_a_card_tells_of_devices_that_were_not_calibrated(study: Study) -> None:
    told = study["card"].is_uncalibrated
    device = find_target().device
    plain = device.with_calibration(default_calibration(device.vector_bits, device.cores, device.l3_bytes))
    measured = device.with_calibration(replace(plain.calibration, source="measured"))
    assert told(CpuTarget(plain).fingerprint())
    assert not told(CpuTarget(measured).fingerprint())
    assert not told("")
