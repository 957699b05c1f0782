"""The study of budgets: a short run, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_tunes_and_carries_on(tmp_path):
    command = [sys.executable, "experiments/tune_budget/run.py", "--quick", "--out", str(tmp_path)]
    for _ in range(2):
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "tune-budget.jsonl").read_text().splitlines()]
    (record,) = [line for line in lines if line["kind"] == "tune"]
    assert record["status"] == "ok"
    assert "imports and tracing" in record["spent"]
    report = (tmp_path / "tune-budget.md").read_text()
    assert "| cartpole_step | 2 | - | - | " in report
