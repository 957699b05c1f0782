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
