"""What runs in child processes: make one plan, or time one program's variants for one round."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from journal import Record
from rounds import time_right_ones
from table import AGAIN, NUMPY, POLICIES

from autofuse.measurement.workloads import Workload, load


class AutofusePlans:
    """Plans made and loaded through autofuse's public functions."""

    def prepare(self, program: Workload, policy: str, task: Record) -> int:
        """Tune or compile, save the plan, and return its number of kernels."""
        af = importlib.import_module("autofuse")
        arguments = program.inputs(task["size"], task["seed"])
        if policy in task["untuned"]:
            plan = af.compile(program.function, *arguments, backend="cpu", policy=policy, deadline=None)
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
    program, engine = load(task["file"]), ENGINES[task["engine"]]
    wanted = {policy: policy for policy in POLICIES} | {AGAIN: "unfused"}
    makers = {
        name: partial(engine.load, program, task["plans"][policy])
        for name, policy in wanted.items()
        if policy in task["plans"]
    }
    return time_right_ones(program, task, makers, numpy=NUMPY)


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    outcome = make_plan(job) if job["kind"] == "plan" else time_round(job)
    Path(sys.argv[2]).write_text(json.dumps(outcome))
