"""autofuse: a tuned plan, made in one process and loaded in others, or one compiled on the spot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from prepared import WRITTEN, Prepared

import autofuse as af
from autofuse.ir import tree
from autofuse.measurement.workloads import Workload

PROFILES = 15
"""Runs of the profiler, of which the median is kept."""


def tune(program: Workload, arguments: tuple[Any, ...], task: dict[str, Any]) -> dict[str, Any]:
    """Tune within the task's budget and save the plan: seconds and kernels."""
    start = time.perf_counter()
    plan = af.tune(
        program.function, *arguments, backend="cpu", budget=task["budget"], seed=task["seed"], progress=False
    )
    seconds = time.perf_counter() - start
    plan.save(task["plan"])
    return {"seconds": seconds, "kernels": len(plan.kernels)}


def prepare(program: Workload, arguments: tuple[Any, ...], task: dict[str, Any]) -> Prepared:
    """The plan at the task's path, or where it names none one that the analytical model chose."""
    start = time.perf_counter()
    if task.get("plan"):
        plan = af.load(task["plan"])
    else:
        plan = af.compile(program.function, *arguments, backend="cpu", policy="analytical")
    first = plan(*arguments)
    ready_s = time.perf_counter() - start

    def call() -> Any:
        return plan(*arguments)

    def answer(given: tuple[Any, ...]) -> tuple[Any, Any]:
        return plan(*given), given

    reused = call if program.name in WRITTEN else _into(plan, arguments, first)
    checked = None if program.name in WRITTEN else reused
    return Prepared(call, answer, ready_s, reused, checked, kernel_us=lambda: _kernel_us(plan, arguments))


def _into(plan: Any, arguments: tuple[Any, ...], first: Any) -> Callable[[], Any]:
    leaves, form = tree.flatten(first, lambda part: isinstance(part, np.ndarray | np.generic))
    out = tree.unflatten(form, [np.empty(leaf.shape, leaf.dtype) for leaf in leaves])
    return lambda: plan(*arguments, out=out)


def _kernel_us(plan: Any, arguments: tuple[Any, ...]) -> dict[str, float]:
    """Median totals over runs: of all kernels, and of those that hold a product."""
    products = {node.name for node in plan.graph.nodes if node.op == "dot_general"}
    dotted = {kernel.name for kernel in plan.kernels if products.intersection(kernel.nodes)}
    runs = [plan.profile(*arguments) for _ in range(PROFILES)]
    return {
        "all": float(np.median([sum(us for _, us in run) for run in runs])),
        "dots": float(np.median([sum(us for name, us in run if name in dotted) for run in runs])),
    }
