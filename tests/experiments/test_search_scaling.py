"""The study of how the search grows: its report, and a small run that is carried on."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "search_scaling"
MODULES = ("scaling_report",)
RUN = {
    "machine": {"model": "a CPU", "cores": 2},
    "commit": "abc",
    "begun": "today",
    "command": "python run.py",
    "settings": {"segment": 160, "seed": 0},
}


@pytest.fixture
def report(study: dict[str, ModuleType]) -> ModuleType:
    """The study's report module."""
    return study["scaling_report"]


def record(way: str, price: float, seconds: float, size: int = 12, **more: Any) -> dict[str, Any]:
    steps = dict.fromkeys(("trace", "enumerate", "price", "solve", "write"), seconds)
    return {
        "kind": "search",
        "program": "bert",
        "size": size,
        "way": way,
        "status": "ok",
        "nodes": 950,
        "atoms": 324,
        "segments": 3 if way == "segments" else 1,
        "price_us": price,
        "optimal": True,
        "seconds": steps,
        "peak_mib": 200.0,
    } | more


def row_of(text: str, size: int) -> list[str]:
    return [cell.strip() for line in text.splitlines() if line.startswith(f"| {size} |") for cell in line.split("|")]


def test_the_loss_is_what_the_segments_cost_more(report: ModuleType) -> None:
    text = report.render(RUN, [record("segments", 102.0, 1.0), record("whole", 100.0, 2.0)])
    row = row_of(text, 12)[1:-1]
    assert row == ["12", "950", "324", "3", "4.0", "1.0, 1.0, 1.0, 1.0", "200", "8.0", "200", "2.00 %"]


def test_targets_are_met_or_missed(report: ModuleType) -> None:
    tuned = {"kind": "tune", "program": "bert", "size": 12, "way": "tuned", "status": "ok", "seconds": 121.0}
    records = [record("whole", 100.0, 2.0), tuned | {"peak_mib": 600.0}]
    records.append(record("segments", 1.0, 2.0, size=64, nodes=4558))
    text = report.render(RUN, records)
    assert "| BERT of 12 layers planned under the model | 10 s | 8 s | **met** |" in text
    assert "| BERT of 12 layers tuned with measurements | 120 s | 121 s | **missed** |" in text
    assert "| 4,558 nodes under the model | 60 s | 8 s | **met** |" in text
    assert "| peak of memory, all of these | 2048 MiB | 600 MiB | **met** |" in text


def test_one_way_alone_has_no_loss_and_an_unfinished_one_is_marked(report: ModuleType) -> None:
    text = report.render(RUN, [record("segments", 102.0, 1.0, optimal=False)])
    assert row_of(text, 12)[-4:-1] == ["-", "-", "-"]
    assert "4.0*" in row_of(text, 12)


def test_failed_searches_are_named(report: ModuleType) -> None:
    failed = {
        "kind": "search",
        "program": "bert",
        "size": 64,
        "way": "whole",
        "status": "failed",
        "error": "stopped after 600 s",
    }
    assert "- failed: bert 64, whole: stopped after 600 s" in report.render(RUN, [failed])


@pytest.mark.slow
def test_a_small_run_searches_once_and_reports(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDY / "run.py"), "--programs", "bert", "--most", "1", "--segment", "12"]
    command += ["--out", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    journal = tmp_path / "search-scaling.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    parts, whole = (r for r in records if r["kind"] != "run")
    assert (parts["status"], whole["status"]) == ("ok", "ok"), records
    assert parts["segments"] > 1
    assert whole["segments"] == 1
    assert row_of((tmp_path / "search-scaling.md").read_text(), 1)
    subprocess.run(command, capture_output=True, check=True)
    assert len(journal.read_text().splitlines()) == len(records)


def test_an_unknown_program_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDY / "run.py"), "--programs", "gpt", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "got 'gpt'" in done.stderr
