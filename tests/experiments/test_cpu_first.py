"""The CPU study: statistics of interleaved samples, answer checks, journal, table, and a run with NumPy as the plan."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "cpu_first"


@pytest.fixture(scope="module")
def study() -> Iterator[dict[str, ModuleType]]:
    """The study's modules, found beside its scripts as `python experiments/cpu_first/run.py` finds them."""
    names = ("interleaved", "journal", "table")
    sys.path.insert(0, str(STUDY))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(STUDY))
        for name in names:
            del sys.modules[name]


def rounds(us: float, noise: float, seed: int) -> list[list[list[float]]]:
    """Three rounds of seven blocks of five calls around `us`."""
    rng = np.random.default_rng(seed)
    return (us * np.exp(rng.normal(0.0, noise, (3, 7, 5)))).tolist()


def test_ratio_finds_a_speed_up_and_its_interval(study: dict[str, ModuleType]) -> None:
    found = study["interleaved"].ratio(rounds(200.0, 0.01, 1), rounds(100.0, 0.01, 2))
    assert 1.98 < found.low < 2.0 < found.high < 2.02
    assert found.beyond(0.05)
    assert not found.beyond(1.5)


def test_ratio_is_paired_so_a_drift_of_both_cancels(study: dict[str, ModuleType]) -> None:
    drift = np.linspace(1.0, 3.0, 21).reshape(3, 7, 1)
    slower, faster = (np.broadcast_to(us * drift, (3, 7, 5)).tolist() for us in (150.0, 100.0))
    found = study["interleaved"].ratio(slower, faster)
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_one_outlying_call_does_not_move_the_ratio(study: dict[str, ModuleType]) -> None:
    spoiled = rounds(100.0, 0.0, 0)
    spoiled[0][0][0] = 1e6
    assert study["interleaved"].ratio(spoiled, rounds(100.0, 0.0, 0)).value == pytest.approx(1.0)


def test_noise_floor_covers_a_bias_in_either_direction(study: dict[str, ModuleType]) -> None:
    floor = study["interleaved"].noise_floor
    assert floor(rounds(103.0, 0.0, 0), rounds(100.0, 0.0, 0)) == pytest.approx(0.03)
    assert floor(rounds(100.0, 0.0, 0), rounds(103.0, 0.0, 0)) == pytest.approx(0.03)


def test_interleave_runs_every_variant_in_every_repetition(study: dict[str, ModuleType]) -> None:
    order: list[str] = []
    variants = {name: lambda name=name: order.append(name) for name in "abc"}
    samples = study["interleaved"].interleave(variants, blocks=4, block_seconds=0.0, seed=5)
    assert {name: [len(block) for block in blocks] for name, blocks in samples.items()} == dict.fromkeys("abc", [3] * 4)
    blocks = order[2 * 3 :: 4]  # two sizing calls each, then blocks of one untimed and three timed calls
    repetitions = [blocks[start : start + 3] for start in range(0, 12, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in repetitions)
    assert len({tuple(names) for names in repetitions}) > 1


@pytest.mark.parametrize(
    ("expected", "got", "fault"),
    [
        (np.array([1, 2], "f4"), np.array([1, 2.0001], "f4"), None),
        (np.array([1, 2], "f4"), np.array([1, 2.01], "f4"), "array 0: relative error"),
        (np.array([1, 2], "f4"), np.array([1, np.nan], "f4"), "array 0: relative error nan"),
        (np.array([1, 2], "f8"), np.array([1, 2.0001], "f8"), "array 0: relative error"),
        (np.array([0, 0], "f4"), np.array([0, 0], "f4"), None),
        (np.array([1], "f4"), np.array([1], "f8"), "array 0 is float64"),
        (np.array([1], "f4"), np.array([[1]], "f4"), "array 0 is float32[1, 1]"),
        (np.array([7, 8] * 1000, "u1"), np.array([7, 8] * 999 + [7, 9], "u1"), None),
        (np.array([7, 8] * 1000, "u1"), np.array([7, 8] * 999 + [7, 10], "u1"), "bytes differ by more than one"),
        (np.array([1, 2], "i8"), np.array([1, 3], "i8"), "50.0% of the values differ"),
    ],
)
def test_mismatch(study: dict[str, ModuleType], expected: object, got: object, fault: str | None) -> None:
    found = study["interleaved"].mismatch([expected], [got])
    assert found is None if fault is None else fault in found


def test_journal_keeps_whole_records_and_drops_a_torn_one(study: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    journal = study["journal"].Journal(path)
    journal.append({"kind": "plan", "program": "a", "status": "failed"})
    journal.append({"kind": "plan", "program": "a", "status": "ok"})
    with path.open("a") as stream:
        stream.write('{"kind": "plan", "prog')
    again = study["journal"].Journal(path)
    assert again.latest(kind="plan", program="a") == {"kind": "plan", "program": "a", "status": "ok"}
    assert again.latest(program="b") is None
    again.append({"kind": "plan", "program": "b"})
    assert [json.loads(line)["program"] for line in path.read_text().splitlines()] == ["a", "a", "b"]
    assert study["journal"].Journal(path, fresh=True).records == []


def record_study(study: dict[str, ModuleType], path: Path) -> object:
    """A journal in which `good` is twice as fast measured, and `bad` has a plan that answers wrongly."""
    journal = study["journal"].Journal(path)
    us = {"numpy": 800.0, "unfused": 400.0, "analytical": 300.0, "measured": 200.0, "unfused again": 400.0}
    for program in ("good", "bad"):
        for policy, kernels in (("unfused", 9), ("analytical", 3), ("measured", 2)):
            plan = {"kind": "plan", "program": program, "policy": policy, "status": "ok", "kernels": kernels}
            journal.append(plan | {"seconds": 4.2})
        for index in range(2):
            samples = {name: [[time] * 3] * 5 for name, time in us.items()}
            faults = {}
            if program == "bad":
                del samples["measured"]
                faults = {"measured": "wrong answer, array 0: relative error 1.0e+00, allowed 2e-04"}
            done = {"kind": "round", "program": program, "round": index, "status": "ok"}
            journal.append(done | {"samples": samples, "faults": faults})
    return journal


def test_rows_carry_times_ratios_and_faults(study: dict[str, ModuleType], tmp_path: Path) -> None:
    journal = record_study(study, tmp_path / "raw.jsonl")
    good, bad = (study["table"].build_row(program, journal, 2) for program in ("good", "bad"))
    assert good.times["measured"].median == pytest.approx(0.2)
    assert (good.over_numpy.value, good.over_unfused.value) == pytest.approx((4.0, 2.0))
    assert good.kernels == {"unfused": 9, "analytical": 3, "measured": 2}
    assert good.noise == pytest.approx(0.0)
    assert bad.over_numpy is None
    assert bad.faults == ("measured: wrong answer, array 0: relative error 1.0e+00, allowed 2e-04",)
    text = study["table"].render([good, bad], ["# Title"])
    row = next(line for line in text.splitlines() if line.startswith("| `good`"))
    assert "| 4.00 | 2.00 [2.00, 2.00] | 9 / 3 / 2 | 4 / 4 / 4 | 0.0% |" in row
    assert "NumPy / measured 4.00 over 1 programs, unfused / measured 2.00 over 1, of 2 in all" in text
    assert "- `bad`, measured: wrong answer" in text


def test_a_ratio_within_the_noise_says_so(study: dict[str, ModuleType]) -> None:
    table = study["table"]
    ratio = study["interleaved"].Ratio(1.02, 1.005, 1.03)
    assert table._ratio_text(ratio, 0.04) == "1.02 [1.00, 1.03] (noise)"
    assert table._ratio_text(ratio, 0.001) == "1.02 [1.00, 1.03]"


def test_geometric_mean(study: dict[str, ModuleType]) -> None:
    assert study["table"].geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert np.isnan(study["table"].geometric_mean([]))


def run_study(folder: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    """The study with NumPy in place of plans, on two small programs."""
    command = [sys.executable, str(STUDY / "run.py"), "--engine", "numpy", "--size", "small", "--rounds", "2"]
    command += ["--programs", "softmax,hdiff", "--blocks", "2", "--block-ms", "0.1"]
    command += ["--plans", str(folder / "plans"), "--out", str(folder / "study.md"), *extra]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def test_a_run_writes_its_report_and_the_same_command_again_measures_nothing(tmp_path: Path) -> None:
    done = run_study(tmp_path)
    assert done.returncode == 0, done.stderr
    records = (tmp_path / "study.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in records] == ["run", *["plan"] * 6, *["round"] * 4]
    report = (tmp_path / "study.md").read_text()
    assert "| `hdiff` |" in report
    assert "What failed" not in report

    run_study(tmp_path)
    assert (tmp_path / "study.jsonl").read_text().splitlines() == records
    assert (tmp_path / "study.md").read_text() == report

    # A plan file that is no longer the recorded one is made again; as it comes out equal, its rounds still hold.
    (tmp_path / "plans" / "softmax-small-measured.json").write_text("another plan")
    run_study(tmp_path)
    added = [json.loads(line) for line in (tmp_path / "study.jsonl").read_text().splitlines()[len(records) :]]
    assert [(record["kind"], record["program"]) for record in added] == [("plan", "softmax")]

    refused = run_study(tmp_path, "--seed", "7")
    assert refused.returncode == 2
    assert "seed was 0, is 7" in refused.stderr
