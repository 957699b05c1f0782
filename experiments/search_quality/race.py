"""Saved plans of one program, each checked against NumPy, then timed in interleaved blocks in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interleaved import interleave, mismatch
from journal import Record

import autofuse as af
from autofuse.errors import AutofuseError
from autofuse.measurement.workloads import Workload, arrays, load

AGAIN = "again"
"""The name under which one of the plans is timed a second time, for the noise floor."""


def race(task: Record, plans: Mapping[str, str], again: str) -> Record:
    """Samples by name of the plans whose answers are right, and the faults of the others.

    `plans`: files by name; `again`: which of them is timed twice. The task gives the program's `file`, `size` and
    `seed`, and the `round`, `blocks` and `block_seconds`.
    """
    workload = load(task["file"])
    expected = _answer(workload, workload.function, task)
    calls: dict[str, Callable[..., Any]] = {}
    faults: dict[str, str] = {}
    for name, path in [*plans.items(), (AGAIN, plans[again])]:
        try:
            call = af.load(path)
            fault = mismatch(expected, _answer(workload, call, task))
        except AutofuseError as error:
            faults[name] = f"{type(error).__name__}: {error}"
            continue
        if fault:
            faults[name] = f"wrong answer, {fault}"
        else:
            calls[name] = call
    arguments = workload.inputs(task["size"], task["seed"])
    bound = {name: _bind(call, arguments) for name, call in calls.items()}
    samples = interleave(bound, task["blocks"], task["block_seconds"], task["seed"] + task["round"])
    rounded = {name: [[round(us, 2) for us in block] for block in blocks] for name, blocks in samples.items()}
    return {"samples": rounded, "faults": faults}


def _answer(workload: Workload, call: Callable[..., Any], task: Record) -> list[Any]:
    """Results and arguments after one call on fresh arguments, for programs that write in place."""
    arguments = workload.inputs(task["size"], task["seed"])
    return [*arrays(call(*arguments)), *arrays(arguments)]


def _bind(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(*arguments)
