"""The study that compares two checkouts: this one beside itself, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "experiments" / "before_after"
MODULES = ("before_after_report", "journal")

RUN = {
    "machine": {"model": "M", "threads": 2, "python": "3", "numpy": "2"},
    "settings": {"before": "b", "size": "full", "seconds": 0.5, "budget": 5.0},
    "begun": "now",
    "commit": "c",
}


@pytest.mark.slow
def test_a_checkout_equals_itself(tmp_path):
    command = [sys.executable, "experiments/before_after/run.py", "--quick", "--before", ".", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    report = (tmp_path / "before-after.md").read_text()
    assert "| unfused | 1 | 1 | 1 | 1 |" in report
    assert "| analytical | 1 | 1 | 1 | 1 |" in report
    records = [json.loads(line) for line in (tmp_path / "before-after.jsonl").read_text().splitlines()]
    assert all(record["status"] == "ok" for record in records if "step" in record)


def test_a_folder_without_autofuse_is_refused(tmp_path):
    command = [sys.executable, "experiments/before_after/run.py", "--before", str(tmp_path), "--out", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--before: no checkout of autofuse" in done.stderr


def answer(way, **found):
    given = {"partition": "p", "decided": "d", "code": "c", "bits": "b", "kernels": 2, "status": "ok"}
    return {"step": "answer", "program": "f", "policy": "analytical", "round": 0, "way": way, **given, **found}


def test_what_differs_is_named_with_its_reason(tmp_path, study):
    reasons = {
        ("partition", "decided", "code"): "same bits, another partition (2 kernels, now 2)",
        ("decided", "code", "bits"): "other bits, the same partition, other schedules or another order",
        ("code",): "same bits, the same kernels and schedules, other code",
        ("bits",): "other bits of the same code",
    }
    for number, (entries, reason) in enumerate(reasons.items()):
        journal = study["journal"].Journal(tmp_path / f"{number}.jsonl")
        journal.append(answer("before"))
        journal.append(answer("now", **dict.fromkeys(entries, "other")))
        assert f"- `f`, analytical: {reason}\n" in study["before_after_report"].render(RUN, journal)


def test_times_are_medians_of_rounds_with_their_spread(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "times.jsonl")
    for number, (before, now) in enumerate([(10.0, 11.0), (10.0, 9.0), (20.0, 10.0)]):
        task = {"step": "call", "program": "f", "policy": "analytical", "round": number, "status": "ok"}
        journal.append({**task, "way": "before", "us": before})
        journal.append({**task, "way": "now", "us": now})
    assert "| `f` | 10 us, 1.00 (0.50 to 1.10) | - | - |" in study["before_after_report"].render(RUN, journal)
