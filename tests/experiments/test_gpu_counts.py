"""The study of what kernels ask of a GPU: a short run, and the gates."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "experiments" / "gpu_counts"
MODULES = ("gpu_counts_report", "journal")


def test_it_counts_a_programs_kernels(tmp_path):
    command = [sys.executable, "experiments/gpu_counts/run.py", "--programs", "softmax", "--size", "small"]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, cwd=ROOT, capture_output=True)
    report = (tmp_path / "gpu-counts.md").read_text()
    assert "Nothing ran on a GPU" in report
    assert "| `softmax` |" in report


def launch(**found):
    counts = {"read_bytes": 100, "written_bytes": 0, "needed_read_bytes": 100, "needed_written_bytes": 0}
    counts |= {"sectors": 3, "wide_bytes": 100, "wavefronts": 0, "ideal_wavefronts": 0}
    counts |= {"spill_bytes": 0, "stack_bytes": 0, "resident_blocks": 8, "blocks": 1056}
    return {**counts, **found}


def test_a_launch_that_keeps_to_all_gates_passes(study):
    for gate in study["gpu_counts_report"].GATES:
        assert gate.passes(gate.value(launch(), 132))


def test_each_gate_notices_what_it_is_for(study):
    bad = [
        {"read_bytes": 200},
        {"sectors": 8},
        {"wide_bytes": 50},
        {"wavefronts": 2, "ideal_wavefronts": 1},
        {"blocks": 1057},
        {"stack_bytes": 8},
    ]
    for gate, found in zip(study["gpu_counts_report"].GATES, bad, strict=True):
        assert not gate.passes(gate.value(launch(**found), 132)), gate.name


def test_a_small_launch_loses_no_last_wave(study):
    lost = study["gpu_counts_report"].GATES[4]
    assert lost.value(launch(blocks=3), 132) == 0.0
