"""`jit`: a decorator that compiles a NumPy function per argument types at its first call."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from autofuse.api.plan import Plan, described_cpu
from autofuse.errors import ArgumentError, PlanError
from autofuse.ir import tree
from autofuse.plan.identity import host_cpu_identity
from autofuse.plan.store import PlanStore

OnMiss = Literal["compile", "error", "tune"]


class Jitted:
    """A compiled function. One plan per structure, shapes, dtypes and static values of the arguments."""

    def __init__(self, fn: Callable[..., Any], store: str | os.PathLike[str] | None, on_miss: OnMiss) -> None:
        functools.update_wrapper(self, fn)
        self.function = fn
        self.store = None if store is None else PlanStore(store)
        """Where tuned plans are looked up; `store.stats()` says how often that worked."""
        self._on_miss = on_miss
        self._plans: dict[Any, Plan] = {}
        self._lock = threading.RLock()  # a function may call itself with other static values

    def __call__(self, *args: Any) -> Any:
        """Run the plan for these arguments, made at the first such call."""
        return self.plan(*args)(*args)

    def plan(self, *args: Any) -> Plan:
        """The plan that a call with these arguments runs."""
        leaves, structure = tree.flatten(args, lambda leaf: isinstance(leaf, np.ndarray | np.generic))
        key = (structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        plan = self._plans.get(key)
        if plan is None:
            with self._lock:
                plan = self._plans.get(key)
                if plan is None:
                    plan = self._plans[key] = self._make(args)
        return plan

    def _make(self, args: tuple[Any, ...]) -> Plan:
        from autofuse.api import compiling

        if self.store is None:
            return compiling.compile(self.function, *args)
        from autofuse.frontend.traced import trace as trace_function
        from autofuse.ir.digest import digest

        program = compiling.traced_program(trace_function(self.function, *args))
        identity = host_cpu_identity(described_cpu())
        found = self.store.get(digest(program.graph), identity)
        if found is not None and compiling.is_of(found, program):
            return Plan(program.renamed(found))
        name = getattr(self.function, "__name__", "function")
        if self._on_miss == "error":
            raise PlanError(
                f"{name}: no plan for these arguments in {self.store.folder}; tune one, or say on_miss='compile'"
            )
        types = ", ".join(str(value.type) for value in program.graph.inputs)
        what = f"autofuse: no tuned plan for {name}({types}) in {self.store.folder} ({self._on_miss})"
        warnings.warn(what, stacklevel=4)
        plan = (
            compiling.tune(self.function, *args) if self._on_miss == "tune" else compiling.compile(self.function, *args)
        )
        if self._on_miss == "tune":
            if compiling.was_interrupted(plan):
                raise KeyboardInterrupt
            self._put(plan)
        return plan

    def _put(self, plan: Plan) -> None:
        """Keep a tuned plan. One that cannot be kept is still used."""
        assert self.store is not None
        try:
            self.store.put(plan.document)
        except PlanError as failure:
            warnings.warn(f"autofuse: the tuned plan is not kept: {failure}", stacklevel=5)


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "compile",
) -> Any:
    """Compile a NumPy function per shape and dtype at its first call.

    With `store` (a folder of tuned plans), plans are looked up there first; a miss is compiled with one warning per
    missed key, tuned and stored (`on_miss="tune"`), or a PlanError (`"error"`).
    """
    if on_miss not in ("compile", "error", "tune"):
        raise ArgumentError(f'on_miss={on_miss!r}: give "compile", "error" or "tune"')
    if fn is None:
        return lambda function: Jitted(function, store, on_miss)
    return Jitted(fn, store, on_miss)
