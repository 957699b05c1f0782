"""The GPU study: its references agree with its programs, its report reads well, and it says that it needs a GPU."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.tile import Space
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.launch import gpu_problem

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "gpu_first"
MODULES = ("cases", "report")


def test_references_agree_with_the_programs(study: dict[str, ModuleType]) -> None:
    for case in study["cases"].cases(1 << 12):
        rng = np.random.default_rng(1)
        inputs = {
            b.name: rng.standard_normal(b.type.shape).astype(b.type.dtype.numpy)
            for b in case.program.parameters()
            if b.space is Space.INPUT
        }
        (actual,) = evaluate_program(case.program, inputs).values()
        expected = case.reference(*inputs.values())
        scale = np.abs(expected.astype(np.float64)).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=case.tolerance * scale, err_msg=case.program.name)


def test_every_case_at_full_size_is_generated(study: dict[str, ModuleType]) -> None:
    cases = study["cases"]
    for case in (*cases.cases(1), *cases.sweep(1)):
        kernel = generate(case.program, "sm_90")
        assert all(launch.block[0] <= 1024 for launch in kernel.launches)


def test_report(study: dict[str, ModuleType]) -> None:
    launch = {"grid": 8, "block": 256, "registers": 20, "spill_bytes": 0, "occupancy": "100 %"}
    good = {"name": "add", "status": "ok", "us": 100.0, "quartiles": [99.0, 101.0], "bytes": 300_000_000, "flops": 0.0}
    good |= {"peer_us": 120.0, "launches": [launch]}
    dot = good | {"name": "dot", "flops": 2e9, "peer_us": None, "launches": [launch, launch]}
    bad = {"name": "sum", "status": "wrong answer: error 1, allowed 0"}
    names = ("name", "compute_capability", "multiprocessors", "driver", "nvrtc", "cupy", "python")
    run = {"machine": dict.fromkeys(names, "?"), "command": "c", "begun": "b", "commit": "d", "copy_bytes_per_s": 4e12}
    text = study["report"].render(run | {"results": [good, bad], "sweep": [dot]})
    assert "| add | yes | 100.0 | 99.0 to 101.0 | 3000 GB/s | 75 % | 120.0 | 20 | 0 | 100 % | 8 x 256 |" in text
    assert "| dot | yes | 100.0 | 99.0 to 101.0 | 20.0 TFLOP/s |  |  | 20 + 20 |" in text
    assert "- sum: wrong answer: error 1, allowed 0" in text


@pytest.mark.skipif(gpu_problem() is None, reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    command = [sys.executable, str(STUDY / "run.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"gpu_first: nothing to do: {gpu_problem()}\n"
