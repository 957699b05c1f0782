"""What runs in child processes: make one plan, or time one program's variants for one round."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interleaved import interleave, mismatch
from journal import Record
from table import AGAIN, NUMPY, POLICIES

from autofuse.errors import AutofuseError
from autofuse.measurement.workloads import Workload, arrays, load


class AutofusePlans:
    """Plans made and loaded through autofuse's public functions."""

    def prepare(self, program: Workload, policy: str, task: Record) -> int:
        """Tune or compile, save the plan, and return its number of kernels."""
        af = importlib.import_module("autofuse")
        arguments = program.inputs(task["size"], task["seed"])
        if policy in task["untuned"]:
            plan = af.compile(program.function, *arguments, backend="cpu", policy=policy)
        else:
            plan = af.tune(
                program.function,
                *arguments,
                backend="cpu",
                budget=task["budget"],
                policy=policy,
                seed=task["seed"],
                progress=False,
            )
        plan.save(task["plan"])
        return len(plan.kernels)

    def load(self, program: Workload, path: str) -> Callable[..., Any]:
        """The plan at `path`, ready to call."""
        del program
        return importlib.import_module("autofuse").load(path)


class NumPyPlans:
    """The program itself in place of every plan: what the study reports when there is nothing to find."""

    def prepare(self, program: Workload, policy: str, task: Record) -> int:
        """Write a marker where a plan would be."""
        Path(task["plan"]).write_text(f"{program.name} under {policy}: NumPy\n")
        return 0

    def load(self, program: Workload, path: str) -> Callable[..., Any]:
        """The NumPy function."""
        Path(path).read_text()
        return program.function


ENGINES: dict[str, AutofusePlans | NumPyPlans] = {"autofuse": AutofusePlans(), "numpy": NumPyPlans()}


def make_plan(task: Record) -> Record:
    """One plan: kernels and seconds."""
    program = load(task["file"])
    start = time.perf_counter()
    kernels = ENGINES[task["engine"]].prepare(program, task["policy"], task)
    return {"kernels": kernels, "seconds": time.perf_counter() - start}


def time_round(task: Record) -> Record:
    """Samples of every variant whose answer is right, and the faults of the others."""
    program = load(task["file"])
    variants: dict[str, Callable[..., Any]] = {NUMPY: program.function}
    faults: dict[str, str] = {}
    expected = _answer(program, program.function, task)
    wanted = {policy: policy for policy in POLICIES} | {AGAIN: "unfused"}
    for name, policy in wanted.items():
        if policy not in task["plans"]:
            continue
        try:
            call = ENGINES[task["engine"]].load(program, task["plans"][policy])
            fault = mismatch(expected, _answer(program, call, task))
        except AutofuseError as error:
            faults[name] = f"{type(error).__name__}: {error}"
            continue
        if fault:
            faults[name] = f"wrong answer, {fault}"
        else:
            variants[name] = call
    del expected
    arguments = program.inputs(task["size"], task["seed"])
    bound = {name: _bind(call, arguments) for name, call in variants.items()}
    samples = interleave(bound, task["blocks"], task["block_seconds"], task["seed"] + task["round"])
    rounded = {name: [[round(us, 2) for us in block] for block in blocks] for name, blocks in samples.items()}
    return {"samples": rounded, "faults": faults}


def _answer(program: Workload, call: Callable[..., Any], task: Record) -> list[Any]:
    """Results and arguments after one call on fresh arguments, for programs that write in place."""
    arguments = program.inputs(task["size"], task["seed"])
    return [*arrays(call(*arguments)), *arrays(arguments)]


def _bind(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(*arguments)


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    outcome = make_plan(job) if job["kind"] == "plan" else time_round(job)
    Path(sys.argv[2]).write_text(json.dumps(outcome))
