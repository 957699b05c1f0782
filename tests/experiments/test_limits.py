"""The study of products and fork-joins: its report, and a small run that is carried on."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "limits"
MODULES = ("limits_report",)
RUN = {
    "machine": {"model": "a CPU", "cores": 2, "isa": "avx2", "blas": "a BLAS"},
    "commit": "abc",
    "begun": "today",
    "command": "python run.py",
}


@pytest.fixture
def report(study: dict[str, ModuleType]) -> ModuleType:
    """The study's report module."""
    return study["limits_report"]


def product(status: str = "ok", **samples: list[float]) -> dict[str, Any]:
    return {"kind": "product", "shape": [2, 3, 4], "threads": 1, "status": status, "flops": 48e9, "samples": samples}


def test_a_product_is_compared_with_the_fastest_library_turn_by_turn(report: ModuleType) -> None:
    record = product(generated=[1.0, 2.0, 1.0], NumPy=[4.0, 4.0, 4.0], PyTorch=[2.0, 4.0, 1.0])
    text = report.render(RUN, [record], {"tiny": (2, 3, 4)})
    row = next(line for line in text.splitlines() if line.startswith("| 2 x 3 x 4 (tiny) | 1 |"))
    assert "2.00 (PyTorch)" in row
    assert "12 (12 to 12)" in row


def test_failed_measurements_are_named(report: ModuleType) -> None:
    failed = {"kind": "product", "shape": [2, 3, 4], "threads": 1, "status": "failed", "error": "out of memory"}
    assert "- failed: product [2, 3, 4]: out of memory" in report.render(RUN, [failed], {})


@pytest.mark.slow
def test_a_small_run_measures_once_and_reports(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDY / "run.py"), "--shapes", "small", "--turns", "2", "--out", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    journal = tmp_path / "limits.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert all(record["status"] == "ok" for record in records if record["kind"] != "run"), records
    assert "| 64 x 64 x 64 (small) | 1 |" in (tmp_path / "limits.md").read_text()
    subprocess.run(command, capture_output=True, check=True)
    assert len(journal.read_text().splitlines()) == len(records)


def test_an_unknown_shape_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDY / "run.py"), "--shapes", "round", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "got 'round'" in done.stderr
