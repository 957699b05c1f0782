"""The study of calls against NumPy: a call or two, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_times_calls_and_carries_on(tmp_path):
    command = [sys.executable, "experiments/never_slower/run.py", "--turns", "2", "--out", str(tmp_path)]
    for cases, records in (("isnan", 2), ("isnan,split", 5)):
        subprocess.run([*command, "--cases", cases], check=True, cwd=ROOT, capture_output=True)
        lines = [json.loads(line) for line in (tmp_path / "never-slower.jsonl").read_text().splitlines()]
        assert sum("plan_us" in line for line in lines) == records
    report = (tmp_path / "never-slower.md").read_text()
    assert "5 calls of NumPy functions" in report
    assert "| isnan | float32 |" in report
