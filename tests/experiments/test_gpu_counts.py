"""The study of what kernels ask of a GPU: a short run."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_counts_a_programs_kernels(tmp_path):
    command = [sys.executable, "experiments/gpu_counts/run.py", "--programs", "softmax", "--size", "small"]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, cwd=ROOT, capture_output=True)
    report = (tmp_path / "gpu-counts.md").read_text()
    assert "Nothing ran on a GPU" in report
    assert "| `softmax` |" in report
    found = json.loads((tmp_path / "gpu-counts.json").read_text())
    assert (found["size"], found["programs"]["softmax"]["replay_calls"]) == ("small", 1)


def test_each_limit_that_is_missed_is_explained():
    report = (ROOT / "experiments" / "results" / "gpu-counts.md").read_text()
    table = [line for line in report.splitlines() if line.startswith("| `")]
    missed = sum(cell.startswith(" **") for line in table if line.count("|") > 6 for cell in line.split("|"))
    told = [line for line in report.splitlines() if line.startswith("- `") and ", at " in line]
    assert len(told) == missed
    assert not [line for line in told if "not explained yet" in line], "say why in experiments/gpu_counts/explained.py"
