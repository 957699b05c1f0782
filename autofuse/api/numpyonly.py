"""Functions that run through NumPy as a whole: what `compile`, `tune` and `jit` give for what no graph has."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autofuse.api.callers import outside
from autofuse.api.plan import Plan
from autofuse.errors import ArgumentError, LeftToNumpyWarning, NumpyOnlyError, PlanError
from autofuse.ir import tree

if TYPE_CHECKING:
    from autofuse.frontend.tracecontext import OnUnsupported
    from autofuse.frontend.tracedprogram import Traced
    from autofuse.plan.document import PlanDocument, PlannedKernel


class NumpyPlan(Plan):
    """The function itself, called as a plan is: no kernels, nothing to save."""

    through_numpy = True

    def __init__(self, function: Callable[..., Any], reason: str) -> None:
        """`reason`: why no graph can be made of it."""
        super().__init__(self._no_document)
        self.function = function
        self.name = str(getattr(function, "__name__", None) or type(function).__name__)
        self.reason = reason

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """The function's own result; with `out`, copied into it."""
        result = self.function(*args, **kwargs)
        if out is None:
            return result
        leaves, structure = tree.flatten(result, lambda leaf: isinstance(leaf, np.ndarray | np.generic))
        targets = tree.flatten_as(structure, out, "out")
        for target, value in zip(targets, leaves, strict=True):
            if not isinstance(target, np.ndarray) or (target.shape, target.dtype) != (value.shape, value.dtype):
                raise ArgumentError(f"out must be an array, {value.dtype}{list(value.shape)}, got {_described(target)}")
        for target, value in zip(targets, leaves, strict=True):
            np.copyto(target, value)
        return out

    def verify(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Nothing to compare: the function runs as it is written."""
        del function, args, kwargs

    @property
    def kernels(self) -> tuple[PlannedKernel, ...]:
        """None."""
        return ()

    @property
    def certificate(self) -> None:
        """None: nothing was searched."""
        return None

    @property
    def constant_bytes(self) -> int:
        """None that are known of."""
        return 0

    def explain(self) -> str:
        """Why there is nothing to explain."""
        return f"{self.name} runs through NumPy as it is written\n  {self.reason}\n"

    def why_not(self, *names: str | None, **options: Any) -> str:
        """The same: there are no kernels to ask about."""
        del names, options
        return self.explain()

    def source(self) -> dict[str, str]:
        """Nothing is generated."""
        return {}

    def profile(self, /, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """Run once, on copies of the arrays: the time of the whole call in microseconds."""
        leaves, structure = tree.flatten((args, kwargs), lambda leaf: isinstance(leaf, np.ndarray | np.generic))
        copies, named = tree.unflatten(structure, [leaf.copy() for leaf in leaves])
        start = time.perf_counter_ns()
        self.function(*copies, **named)
        return [("NumPy", (time.perf_counter_ns() - start) / 1000)]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Raises PlanError: a file holds no functions."""
        raise PlanError(f"{os.fspath(path)}: {self._nothing()}")

    def _no_document(self) -> PlanDocument:
        raise PlanError(self._nothing())

    def _nothing(self) -> str:
        return f"{self.name} runs through NumPy as a whole, there is no plan to save or look into: {self.reason}"

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyPlan, (self.function, self.reason)

    def __repr__(self) -> str:
        return f"<autofuse: {self.name} through NumPy>"


def _described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def traced_or_left(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
    decided: Mapping[str, object] = MappingProxyType({}),
    *,
    warns: bool = True,
    roll: bool = True,
) -> Traced | NumpyPlan:
    """Trace a function; what only NumPy can run is left to it with one warning, unless `on_unsupported` says otherwise.

    `decided`: arguments by which the user decides about kernels. `warns`: also of calls that are left to NumPy as parts
    of a graph; else that is left to the caller, with `warn_of_calls_left`. Raises TraceError, and ArgumentError, also
    for such arguments to a function that has no kernels.
    """
    try:
        how: dict[str, Any] = {"on_unsupported": on_unsupported, "check_bounds": check_bounds, "roll": roll}
        traced = traced_by(fn, args, kwargs, how)
    except NumpyOnlyError as error:
        if on_unsupported != "numpy":
            raise
        plan = NumpyPlan(fn, str(error))
        idle = [name for name, value in decided.items() if value is not None and value != ()]
        if idle:
            raise ArgumentError(
                f"{', '.join(idle)}: {plan.name} runs through NumPy as a whole: no kernels to decide about;"
                f" leave these arguments out, or write the function without what no kernel computes: {error}"
            ) from None
        _warn(f"{plan.name} runs through NumPy as it is written, nothing is fused: {error}")
        return plan
    if warns:
        warn_of_calls_left(traced, on_unsupported)
    return traced


def traced_by(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], how: Mapping[str, Any]) -> Traced:
    """Trace a function, by what there is for its kind. `how`: the options of `autofuse.frontend.traced.trace`."""
    from autofuse.frontend.readprogram import is_read, trace_read

    if not kwargs and is_read(fn, args):
        return trace_read(fn, args, how["on_unsupported"])
    from autofuse.frontend.traced import trace

    return trace(fn, *args, kwargs=kwargs, **how)


def warn_of_calls_left(traced: Traced, on_unsupported: OnUnsupported = "numpy") -> None:
    """One warning of the calls of a graph that NumPy runs, unless the user asked for that."""
    if traced.left_to_numpy and on_unsupported == "numpy":
        _warn(f"{traced.graph.name}: {traced.notes[0]}")


def _warn(what: str) -> None:
    warnings.warn(f"autofuse: {what}", LeftToNumpyWarning, stacklevel=outside())
