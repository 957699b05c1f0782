"""The CPU study: its table, and a run with NumPy as the plan."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "cpu_first"
MODULES = ("interleaved", "journal", "table")


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


def run_study(folder: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    """The study with NumPy in place of plans, on two small programs."""
    command = [sys.executable, str(STUDY / "run.py"), "--engine", "numpy", "--size", "small", "--rounds", "2"]
    command += ["--programs", "softmax,hdiff", "--blocks", "2", "--block-ms", "0.1"]
    command += ["--plans", str(folder / "plans"), "--out", str(folder / "study.md"), *extra]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
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
