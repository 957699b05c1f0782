"""The study of measuring on several devices: its kernels, and its report from made-up turns."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "cluster"
MODULES = ("run",)
RUN = {"machine": {"model": "a CPU", "cores": 2}, "commit": "abc", "begun": "today", "command": "python run.py"}


@pytest.fixture
def run(study: dict[str, ModuleType]) -> ModuleType:
    return study["run"]


def test_each_output_is_a_kernel_of_its_own(run: ModuleType) -> None:
    trials = run.trials(run.program(5, 7))
    assert len({trial.digest for trial in trials}) == 5
    assert all(len(trial.kernel.nodes) >= 2 and len(trial.kernel.outputs) == 1 for trial in trials)
    assert {trial.digest for trial in trials}.isdisjoint(trial.digest for trial in run.trials(run.program(5, 8 << 20)))


def test_devices_are_compared_with_the_fewest_on_the_same_code(run: ModuleType) -> None:
    def turn(code: str, devices: int, seconds: float) -> dict[str, Any]:
        return {"round": 0, "code": code, "devices": devices, "seconds": seconds, "kernels": 10}

    turns = [turn("compiled", 1, 2.0), turn("compiled", 1, 4.0), turn("compiled", 1, 5.0), turn("compiled", 2, 2.0)]
    text = run.render(RUN, [*turns, turn("anew", 1, 10.0)])
    assert "| compiled | 1 | 2.50 | 2.00-5.00 | 3 | 1.00 |" in text
    assert "| compiled | 2 | 5.00 | 5.00-5.00 | 1 | 2.00 |" in text
    assert "| anew | 1 | 1.00 | 1.00-1.00 | 1 | 1.00 |" in text
    assert run.render(RUN, []).startswith("# Measuring on several devices")
