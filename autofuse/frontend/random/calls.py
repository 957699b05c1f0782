"""Functions that are traced in a trace, and computed at once elsewhere; and what they ask of their arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec

import numpy as np

from autofuse.frontend import implementations
from autofuse.frontend.dispatch import run
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, broadcast, reshape
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import Tracing, active, current, is_active, supported
from autofuse.frontend.tracer import TracerArray
from autofuse.ir.graph import Value
from autofuse.ir.interpreter import interpret

implementations.load()
P = ParamSpec("P")


def drawn(function: Callable[P, TracerArray]) -> Callable[P, Any]:
    """`function`, written for a trace, as a function that outside one gives the NumPy array that it would compute."""
    label = f"af.random.{function.__name__}"
    at_once = partial(_at_once, function, label)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        return run(function, at_once, args, kwargs, label) if is_active() else at_once(*args, **kwargs)

    return call


def _at_once(function: Callable[..., TracerArray], label: str, *args: Any, **kwargs: Any) -> Any:
    """Trace one call, and interpret it."""
    tracing = Tracing(label)
    with active(tracing):
        graph = tracing.finish([run(function, None, args, kwargs, label).value])
    (array,) = interpret(graph)
    return array[()]


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape argument. Raises TraceError for what is none."""
    try:
        found = tuple(operator.index(extent) for extent in (shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError as error:
        raise trace_error(
            f"argument shape must be a tuple of whole numbers, got {shape!r:.80}", "shape=(3, 4)"
        ) from error
    if any(extent < 0 for extent in found):
        raise trace_error(f"argument shape must have no negative extents, got {found}", "extents of 0 and more")
    return found


def checked_dtype(dtype: Any, default: Any, kinds: Collection[str]) -> np.dtype[Any]:
    """A dtype argument of one of the kinds `float`, `int`, `uint`. Raises TraceError for another."""
    found = supported(default if dtype is None else dtype)
    kind = {"f": "float", "V": "float", "i": "int", "u": "uint"}.get(found.kind, found.kind)
    if kind not in kinds:
        raise trace_error(
            f"argument dtype must be of kind {' or '.join(kinds)}, got {found}", f"dtype={np.dtype(default)}"
        )
    return found


def checked_choice(argument: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises TraceError unless an argument is one of its choices."""
    if value not in choices:
        raise trace_error(f"argument {argument} must be one of {', '.join(map(repr, choices))}, got {value!r:.80}")


def as_number(value: Any, weak: Any) -> TracerArray:
    """An operand; a Python number has the dtype `weak`, or the one that holds it."""
    return as_tracer(np.asarray(value, weak) if type(value) in (int, float) else value)


def spread(argument: str, value: Value, shape: tuple[int, ...]) -> Term:
    """A parameter of a distribution, broadcast to the shape of what is drawn. Raises TraceError where it cannot be."""
    try:
        return Term(broadcast(value, shape))
    except ValueError as error:
        raise trace_error(
            f"argument {argument} must be broadcast to shape={shape}, got shape {value.type.shape}",
            "a shape that holds all elements of the parameters",
        ) from error


def row(value: Value, number: int) -> Value:
    """`value[number]`."""
    shape = value.type.shape
    start, limit = (number, *[0] * (len(shape) - 1)), (number + 1, *shape[1:])
    part = current().emit("slice", (value,), start_indices=start, limit_indices=limit, strides=(1,) * len(shape))
    return reshape(part, shape[1:])


def stacked(values: Sequence[Value]) -> Value:
    """Values side by side along a new last dimension."""
    shape = values[0].type.shape
    return current().emit("concatenate", [reshape(v, (*shape, 1)) for v in values], dimension=len(shape))
