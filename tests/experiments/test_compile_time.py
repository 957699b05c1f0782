"""The study of compile times: one program, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_compiles_and_carries_on(tmp_path):
    command = [sys.executable, "experiments/compile_time/run.py", "--quick", "--out", str(tmp_path)]
    for _ in range(2):
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "compile-time.jsonl").read_text().splitlines()]
    found = {line["way"]: line for line in lines if line["kind"] == "compile"}
    assert found.keys() == {"now", "unfused"}
    assert all(line["status"] == "ok" for line in found.values())
    assert "| heat | 2 | - | " in (tmp_path / "compile-time.md").read_text()
