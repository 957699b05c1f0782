"""`jit`: a decorator that compiles a NumPy function per argument types at its first call."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autofuse.api.amounts import DEADLINE_S, positive_seconds
from autofuse.api.callers import outside
from autofuse.api.keptplans import KeptPlans, Numbers
from autofuse.api.plan import Plan
from autofuse.errors import ArgumentError, PlanError
from autofuse.ir import tree
from autofuse.plan.identity import host_cpu_identity
from autofuse.plan.store import PlanStore
from autofuse.targets.cpu.device.store import described_cpu

if TYPE_CHECKING:  # a plan that is found in a store needs none of these
    from autofuse.api.choosing import Rules
    from autofuse.cost_models.base import CostModel
    from autofuse.frontend.context import OnUnsupported
    from autofuse.passes.choices import Choices
    from autofuse.plan.document import PlanDocument
    from autofuse.search.plans.planning import Program
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.search.policies.policy import SearchPolicy

OnMiss = Literal["compile", "error", "tune"]
_WISHES = ("rules", "legality", "max_memory")
"""Options that a stored plan must keep."""


class Jitted:
    """A compiled function. One plan per structure, shapes, dtypes and static values of the arguments.

    It keeps the plans that were used last (`autofuse.api.keptplans` says how many). Calls from several threads may run
    at once.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        store: str | os.PathLike[str] | None,
        on_miss: OnMiss,
        options: Mapping[str, Any],
        tuning: Mapping[str, Any],
        compiling: Mapping[str, Any],
    ) -> None:
        """`options`: for `compile` and `tune`, those that are not as usual; `tuning`, `compiling`: for one alone."""
        functools.update_wrapper(self, fn)
        self.function = fn
        self.store = None if store is None else PlanStore(store)
        """Where tuned plans are looked up; `store.stats()` says how often that worked."""
        self._on_miss = on_miss
        self._options, self._tuning, self._compiling = dict(options), dict(tuning), dict(compiling)
        self._plans: KeptPlans[Plan] = KeptPlans()
        self._numbers = Numbers(fn)
        self._lock = threading.RLock()  # a function may call itself with other static values

    def __call__(self, *args: Any) -> Any:
        """Run the plan for these arguments, made at the first such call."""
        return self.plan(*args)(*args)

    def plan(self, *args: Any) -> Plan:
        """The plan that a call with these arguments runs."""
        leaves, structure = tree.flatten(args, lambda leaf: isinstance(leaf, np.ndarray | np.generic))
        key = (structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        plan = self._plans.find(key)
        if plan is None:
            with self._lock:
                plan = self._plans.find(key)
                if plan is None:
                    plan = self._make(args)
                    self._plans.keep(key, plan, plan.constant_bytes)
                    self._numbers.compiled(structure, key[1], stacklevel=outside())
        return plan

    def _make(self, args: tuple[Any, ...]) -> Plan:
        from autofuse.api import compiling, programs, tunedplans, tuning
        from autofuse.api.numpyonly import NumpyPlan, traced_or_left, warn_of_calls_left

        if self.store is None:
            return compiling.compile(self.function, *args, **self._options, **self._compiling)
        from autofuse.ir.digest import digest

        how = {name: self._options[name] for name in ("on_unsupported", "check_bounds") if name in self._options}
        decided = {name: self._options[name] for name in _WISHES if name in self._options}
        traced = traced_or_left(self.function, args, **how, decided=decided, warns=False)
        if isinstance(traced, NumpyPlan):
            return traced
        program = programs.traced_program(traced)
        identity = host_cpu_identity(described_cpu(self._options.get("threads")))
        unkept: list[str] = []

        def unwanted(document: PlanDocument) -> str | None:
            if not programs.is_of(document, program):
                return "it is of another graph, or of a variant that this version does not know"
            reason = self._unkept(document, program)
            unkept.extend(() if reason is None else (reason,))
            return reason

        found = self.store.get(digest(program.graph), identity, unwanted=unwanted)
        if found is not None:
            warn_of_calls_left(traced, how.get("on_unsupported", "numpy"))  # on a miss, who compiles does
            return Plan(program.renamed(found))
        name = getattr(self.function, "__name__", "function")
        kept = f" that keeps to what was asked for: {unkept[0]}" if unkept else ""
        if self._on_miss == "error":
            raise PlanError(
                f"{name}: no plan for these arguments in {self.store.folder}{kept}; tune one, or say on_miss='compile'"
            )
        types = ", ".join(str(value.type) for value in program.graph.inputs)
        what = f"autofuse: no tuned plan for {name}({types}) in {self.store.folder} ({self._on_miss}){kept}"
        warnings.warn(what, stacklevel=outside())
        if self._on_miss != "tune":
            return compiling.compile(self.function, *args, **self._options, **self._compiling)
        plan = tuning.tune(self.function, *args, **self._options, **self._tuning)
        if tunedplans.was_interrupted(plan):
            raise KeyboardInterrupt
        if unkept:
            what = "its place has one that others may want; give functions with rules a store of their own"
            warnings.warn(f"autofuse: the tuned plan is not kept: {what}", stacklevel=outside())
        else:
            self._put(plan)
        return plan

    def _unkept(self, document: PlanDocument, program: Program) -> str | None:
        """What a stored plan does not keep of what the user asks of plans; None if it keeps all."""
        wishes = {name: self._options[name] for name in _WISHES if name in self._options}
        if not wishes:
            return None
        from autofuse.api import choosing, programs

        about = {name: self._options[name] for name in ("threads", "variants") if name in self._options}
        if about.get("variants") == programs.AUTO:
            del about["variants"]
        return choosing.unkept(document, program, **about, **wishes)

    def _put(self, plan: Plan) -> None:
        """Keep a tuned plan. One that cannot be kept is still used."""
        assert self.store is not None
        try:
            self.store.put(plan.document)
        except PlanError as failure:
            warnings.warn(f"autofuse: the tuned plan is not kept: {failure}", stacklevel=outside())


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "compile",
    budget: float | None = None,
    policy: str | SearchPolicy | None = None,
    threads: int | None = None,
    rules: Rules = (),
    model: str | CostModel | None = None,
    legality: str | LegalityTest | None = None,
    variants: str | Choices | None = None,
    max_memory: int | None = None,
    deadline: float | None = DEADLINE_S,
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
) -> Any:
    """Compile a NumPy function per shape and dtype at its first call.

    With `store` (a folder of tuned plans), plans are looked up there first; a miss is compiled with one warning per
    missed key, tuned for `budget` seconds and stored (`on_miss="tune"`), or a PlanError (`"error"`). `policy`,
    `threads`, `rules`, `model`, `legality`, `variants`, `max_memory`, `on_unsupported` and `check_bounds`: how plans
    are made, as for `autofuse.compile` and `autofuse.tune`. A stored plan that does not keep the rules, the legality or
    the limit on memory is a miss; how else it was made is not asked. `deadline`: as for `autofuse.compile`; a tuned
    plan has none. Python numbers are constants of a plan: where three plans differ in one only, a NumberWarning says
    how to pass it.
    """
    if on_miss not in ("compile", "error", "tune"):
        raise ArgumentError(f'on_miss={on_miss!r}: give "compile", "error" or "tune"')
    if on_miss != "compile" and store is None:
        raise ArgumentError(f"on_miss={on_miss!r} needs store=, a folder in which to look plans up")
    if budget is not None and on_miss != "tune":
        raise ArgumentError('budget= is for tuning: give on_miss="tune" too')
    if policy == "measured" and on_miss != "tune":
        raise ArgumentError('policy="measured" needs measurements: give on_miss="tune" too')
    given = {
        "policy": policy,
        "threads": threads,
        "rules": rules or None,
        "model": model,
        "legality": legality,
        "variants": variants,
        "max_memory": max_memory,
        "on_unsupported": None if on_unsupported == "numpy" else on_unsupported,
        "check_bounds": check_bounds or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    tuning = {} if budget is None else {"budget": budget}
    if deadline is not None:
        deadline = positive_seconds("deadline", deadline, "give deadline=None")
    limits = {} if deadline == DEADLINE_S else {"deadline": deadline}
    if fn is None:
        return lambda function: Jitted(function, store, on_miss, options, tuning, limits)
    return Jitted(fn, store, on_miss, options, tuning, limits)
