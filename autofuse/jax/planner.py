"""Plans for the calls of one function: from JAX's module to a plan, by `autofuse.jit`, kept by what they compute."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from autofuse.api.callers import outside
from autofuse.api.keptplans import KeptPlans
from autofuse.api.plan import Plan
from autofuse.errors import AutofuseError, BackendError, RunByJaxWarning, TraceError
from autofuse.frontend.stablehlo.function import StableHloFunction
from autofuse.frontend.stablehlo.module import Module
from autofuse.frontend.stablehlo.source import TEXT
from autofuse.frontend.stablehlo.survey import untranslated
from autofuse.frontend.tracer import TracerArray
from autofuse.jax.callee import Callee
from autofuse.targets.base import XlaEntry

OnUnsupported = Literal["error", "xla"]
_JAX = str(Path(jax.__file__).parent)
"""Where JAX is, which calls this package while it compiles."""
Jit = Callable[[Callable[..., Any]], Any]
"""`autofuse.jit` with its options."""


class Planner:
    """Makes the plans of a function, of its batches and of its derivatives. Safe from several threads."""

    def __init__(self, name: str, jit: Jit, on_unsupported: OnUnsupported, *, hands_on: bool = True) -> None:
        """`name`: of the function. `on_unsupported`: what becomes of calls that no plan can compute.

        `hands_on`: whether a derivative is given what the function computed, which takes memory between the two.
        """
        self.name, self.on_unsupported = name, on_unsupported
        self.hands_on = hands_on
        self.guarded: Callable[..., Any] | None = None
        """As `XlaHandlers` have it; None before XLA knows a plan."""
        self._jit = jit
        self._plans: KeptPlans[Plan] = KeptPlans()
        self._lock = threading.RLock()
        self._warned: set[str] = set()

    def plan(self, callee: Callee) -> Plan:
        """The plan of a callee. Raises TraceError for what cannot be one, naming operation, line and remedy."""
        plan = None if callee.key is None else self._plans.find(callee.key)
        if plan is not None:
            return plan
        module = callee.lowered().compiler_ir("stablehlo")
        function = self._program(callee, module)
        with self._lock:
            plan = self._plans.find(callee.key)
            if plan is None:
                try:
                    plan = self._jit(function).plan(*function.example_specs)
                except TraceError as error:
                    raise self._told(error, untranslated(Module(module, TEXT))) from None
                finally:
                    function.let_go()
                self._plans.keep(callee.key, plan, plan.constant_bytes)
        return plan

    def tuned(self, callee: Callee, tune: Callable[[Callable[..., Any]], Plan]) -> None:
        """Have the plan of a callee be what `tune` makes of its function."""
        module = callee.lowered().compiler_ir("stablehlo")
        function = self._program(callee, module)
        try:
            plan = tune(function)
        except TraceError as error:
            raise self._told(error, untranslated(Module(module, TEXT))) from None
        finally:
            function.let_go()
        with self._lock:
            self._plans.keep(callee.key, plan, plan.constant_bytes)

    def entry(self, plan: Plan) -> XlaEntry:
        """How XLA calls a plan."""
        entry = plan.program.xla_entry
        if entry is None:
            raise BackendError(f"{self.name}: a plan for {plan.document.backend} cannot be called by JAX")
        self.guarded = entry.handlers.guarded
        return entry

    def warn_once(self, error: AutofuseError) -> None:
        """Say that JAX computes the function, and why."""
        reason = str(error)
        with self._lock:
            new = reason not in self._warned
            self._warned.add(reason)
        if new:
            what = f"autofuse: run by JAX as a whole: {reason}"
            warnings.warn(what, RunByJaxWarning, outside(_JAX, contextlib.__file__))

    def _program(self, callee: Callee, module: Any) -> InPlace:
        """The function of a callee, whose module this is, for autofuse. Sets the callee's key."""
        function = InPlace(StableHloFunction.of_module(module, self.name, callee.names), callee.donated)
        callee.key = function.source_digest
        return function

    def _told(self, error: TraceError, operations: Sequence[str]) -> TraceError:
        """The error, with all operations that stand in the way, and what else can be done."""
        several = f"\n  not translated: {', '.join(operations)}" if len(operations) > 1 else ""
        other = "" if self.on_unsupported == "xla" else '\n  or: on_unsupported="xla", and JAX runs the whole function'
        return TraceError(f"{self.name}: {error}{several}{other}")


class InPlace:
    """A program of JAX that writes some results into arguments, the last ones; the others it returns."""

    emits_graph = True
    """See `autofuse.frontend.readprogram`."""

    def __init__(self, program: StableHloFunction, pairs: Sequence[tuple[int, int]]) -> None:
        """`pairs`: of input and output, by input."""
        self.__name__ = self.__qualname__ = program.__name__
        self.__signature__: inspect.Signature = program.__signature__
        self._program, self._pairs = program, tuple(pairs)
        self.source_digest = f"{program.source_digest} {self._pairs}"

    @property
    def example_specs(self) -> tuple[Any, ...]:
        """What it can be called with."""
        return self._program.example_specs

    def let_go(self) -> None:
        """Keep no module of jaxlib's."""
        self._program.let_go()

    def __call__(self, *arrays: Any) -> Any:
        found = self._program(*arrays)
        if not self._pairs:
            return found
        results = found if isinstance(found, tuple) else (found,)
        for input_, output in self._pairs:
            _overwrite(arrays[input_], results[output])
        return results[: len(results) - len(self._pairs)]


def _overwrite(array: Any, result: Any) -> None:
    """Write a result into an argument of the same type."""
    if isinstance(array, TracerArray):
        array.cell.write(result.value)
    else:
        array[...] = result
