"""Reductions of ufuncs that no op computes, and `reduceat`.

Associative ufuncs (`logaddexp`, `bitwise_xor`, ...) are reduced in halves: as many steps as the extent has bits. The
others (`subtract`, `divide`, ...) go from the first element to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.countedloops import fori_loop, scan
from autofuse.frontend.dispatch import call
from autofuse.frontend.promotion import as_tracer, convert, spread
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufunc_rules import apply
from autofuse.ir.graph import Value

HALVED = frozenset(("logaddexp", "logaddexp2", "hypot", "bitwise_xor", "logical_xor", "gcd", "lcm"))
"""Ufuncs that may be reduced in any order."""
_UNROLLED = 16
"""Longer reductions in order are loops of the graph."""

Loop = tuple[np.dtype[Any], ...]
"""The dtypes of a ufunc's loop: two operands, one result."""


def _combined(ufunc: np.ufunc, loop: Loop, x: Value, y: Value) -> Value:
    """One step, in the dtype of the reduction."""
    result: Term = apply(ufunc.__name__, Term(convert(x, loop[0])), Term(convert(y, loop[1])))
    return convert(result.value, loop[2])


def reduce_in_halves(ufunc: np.ufunc, loop: Loop, value: Value, axes: tuple[int, ...]) -> Value:
    """The reduction over `axes`, of which at least one element is left."""
    array = fresh(value, is_scalar=False)
    rest = [d for d in range(array.ndim) if d not in axes]
    rows = call(np.reshape, call(np.transpose, array, (*axes, *rest)), (-1, *(array.shape[d] for d in rest)))
    while len(rows) > 1:
        half = len(rows) // 2
        joined = fresh(_combined(ufunc, loop, rows[:half].value, rows[half : 2 * half].value), is_scalar=False)
        rows = joined if len(rows) % 2 == 0 else call(np.concatenate, (joined, rows[2 * half :]))
    return rows[0].value


def reduce_in_order(
    ufunc: np.ufunc, loop: Loop, value: Value, axis: int, start: Any = None, where: TracerArray | None = None
) -> Value:
    """The reduction along `axis` from the first element, or from `start`; elements outside `where` are passed over."""
    rows = call(np.moveaxis, fresh(value, is_scalar=False), axis, 0)
    mask = None if where is None else call(np.moveaxis, call(np.broadcast_to, where, value.type.shape), axis, 0)
    first = 0 if start is not None else 1
    begun = convert(rows[0].value, loop[2]) if start is None else spread(start, loop[2], rows.shape[1:])
    begin = fresh(begun, is_scalar=False)

    def step(i: Any, total: TracerArray) -> TracerArray:
        new = Term(_combined(ufunc, loop, total.value, rows[i].value))
        chosen = new if mask is None else Term(mask[i].value).to(np.bool_).select(new, Term(total.value))
        return fresh(chosen.value, is_scalar=False)

    if len(rows) > _UNROLLED:
        return fori_loop(first, len(rows), step, begin).value
    for i in range(first, len(rows)):
        begin = step(i, begin)
    return begin.value


def run_in_order(ufunc: np.ufunc, loop: Loop, value: Value, axis: int) -> Value:
    """The running reduction along `axis`."""
    rows = call(np.moveaxis, fresh(value, is_scalar=False), axis, 0)
    if len(rows) < 2:
        return value

    def step(total: TracerArray, row: TracerArray) -> tuple[Any, Any]:
        new = fresh(_combined(ufunc, loop, total.value, row.value), is_scalar=False)
        return new, new

    _, rest = scan(step, fresh(rows[0].value, is_scalar=False), rows[1:])
    return call(np.moveaxis, call(np.concatenate, (rows[:1], rest)), 0, axis).value


def reduce_segments(
    combine_at: Callable[..., None], value: Value, indices: NDArray[Any], axis: int, result_dtype: np.dtype[Any]
) -> Value:
    """`reduceat`: from `indices[i]` to before `indices[i + 1]` where that is further on, else one element.

    `combine_at(array, indices, updates)` combines in place. 16-bit floats are summed in f32. Raises IndexError for an
    index that is out of bounds.
    """
    rows = call(np.moveaxis, fresh(value, is_scalar=False), axis, 0)
    extent = len(rows)
    outside = indices[(indices < 0) | (indices >= extent)]
    if outside.size:
        raise IndexError(f"index {outside[0]} out-of-bounds in reduceat [0, {extent})")
    ends = [*indices[1:].tolist(), extent]
    spans = [range(start + 1, max(end, start + 1)) for start, end in zip(indices.tolist(), ends, strict=True)]
    numbers = np.repeat(np.arange(indices.size), [len(span) for span in spans])
    further = np.array([place for span in spans for place in span], np.int64)
    compute = np.dtype(np.float32) if result_dtype.itemsize == 2 and result_dtype.kind not in "iu" else result_dtype
    wide = fresh(convert(rows.value, compute), is_scalar=False)
    totals = wide[indices]
    if further.size:
        combine_at(totals, numbers, wide[further])
    return call(np.moveaxis, fresh(convert(totals.value, result_dtype), is_scalar=False), 0, axis).value


def probe(method: Callable[..., Any], array: TracerArray, options: dict[str, Any]) -> None:
    """Run a method of a ufunc on a few ones of the same dtype: raises what NumPy raises for the arguments."""
    small = tuple(min(extent, 1) for extent in array.shape)
    given: dict[str, Any] = {}
    for name, option in options.items():
        if name == "out":
            given[name] = None if option is None else _ones(option.dtype, [min(e, 1) for e in option.shape])
        elif name == "where":
            given[name] = option if option is True else _ones(np.bool_, [min(e, 1) for e in as_tracer(option).shape])
        elif isinstance(option, TracerArray) and name == "initial":
            given[name] = option.dtype.type(1)
        else:
            given[name] = option
    with np.errstate(all="ignore"):
        method(_ones(array.dtype, small), **given)


def _ones(dtype: Any, shape: Any) -> NDArray[Any]:
    return np.ones(tuple(shape), dtype)
