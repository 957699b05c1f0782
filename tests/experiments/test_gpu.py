"""The study of plans on a GPU: on the simulated device, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.targets.cuda.launch import gpu_problem

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "experiments" / "gpu"
MODULES = ("gpu_report", "journal")
RUN = {"begun": "now", "commit": "c"}
HERE = {"step": "environment", "status": "ok", "device": "G", "driver": "13.0", "nvrtc": "13.1", "numpy": "2"}


def run(tmp_path, *options):
    command = [sys.executable, "experiments/gpu/run.py", "--out", str(tmp_path), *options]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)


def test_it_runs_on_the_simulated_device_and_carries_on(tmp_path):
    options = ("--backend", "simulated", "--size", "small", "--programs", "softmax", "--peers", "none", "--no-contract")
    for _ in range(2):
        assert run(tmp_path, *options).returncode == 0
    steps = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert [record["step"] for record in steps if "step" in record] == ["environment", "plan"]
    report = (tmp_path / "gpu.md").read_text()
    assert "nothing ran on a GPU" in report
    assert "| `softmax` | 1 |" in report


@pytest.mark.skipif(gpu_problem() is None, reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "nothing to measure on" in done.stderr


def plan(us, **found):
    kernel = {"name": "k", "predicted_us": 10.0, "us": us, "launch": ["1 block"]}
    times = {"us": us, "low_us": us, "high_us": us, "error": 0.0, "predicted_us": 10.0, "moved_bytes": 4_000_000}
    return {"step": "plan", "program": "f", "status": "ok", "kernels": [kernel], **times, **found}


def test_ratios_floors_and_wrong_answers_are_told(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({**HERE, "copy_bytes_per_s": 4e12})
    journal.append(plan(20.0, error=0.5))
    journal.append({"step": "jax", "program": "f", "status": "ok", "us": 30.0})
    journal.append({"step": "torch", "program": "f", "status": "failed", "error": "no GPU for torch"})
    report = study["gpu_report"].render(RUN, journal)
    assert "| `f` | 1 | 5.0e-01 **wrong** | 20.0 (20.0 to 20.0) | 10.0 | 1.0 | - | 30.0, 1.50 | failed |" in report
    assert "- torch f: no GPU for torch" in report


def test_a_failure_after_a_success_does_not_hide_it(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append(HERE)
    journal.append(plan(20.0))
    journal.append({"step": "plan", "program": "f", "status": "failed", "error": "killed"})
    assert "| `f` | 1 |" in study["gpu_report"].render(RUN, journal)
