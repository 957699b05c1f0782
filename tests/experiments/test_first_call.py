"""The study of first calls: a short run, and the report."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_measures_both_processes_and_carries_on(tmp_path):
    command = [sys.executable, "experiments/first_call/run.py", "--quick", "--out", str(tmp_path)]
    for _ in range(2):
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "first-call.jsonl").read_text().splitlines()]
    measured = [line for line in lines if line["kind"] in ("first", "second")]
    assert sorted((line["way"], line["kind"]) for line in measured) == [
        (way, kind) for way in ("autofuse", "numpy") for kind in ("first", "second")
    ]
    assert all(line["status"] == "ok" for line in measured)
    report = (tmp_path / "first-call.md").read_text()
    assert "| program | autofuse, first | autofuse, second |" in report
    assert re.search(r"^\| `softmax` \| \d+\.\d+ \| \d+\.\d+ \|", report, re.MULTILINE)
