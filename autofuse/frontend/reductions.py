"""Reductions: `ufunc.reduce`, and the functions that are one (sum, min, all, argmax, ...)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontend.axes import UNSET, axes_of_reduction, given, kept, one_axis
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer, broadcast, convert, reshape, value_of
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufunc_rules import apply
from autofuse.frontend.ufuncreductions import (
    HALVED,
    Loop,
    probe,
    reduce_in_halves,
    reduce_in_order,
)
from autofuse.frontend.ufuncs import METHODS, finish, out_arrays
from autofuse.ir import dtypes
from autofuse.ir.graph import Value

COMBINERS = {
    "add": "add",
    "multiply": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "fmax": "maximum",
    "fmin": "minimum",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "and",
    "bitwise_or": "or",
}
_BOOL_COMBINERS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}


def loop_of(ufunc: np.ufunc, dtype: np.dtype[Any], asked: Any, out: TracerArray | None) -> Loop:
    """The loop NumPy reduces in: sums and products of small integers and bools are taken in 64 bits."""
    if ufunc.__name__.startswith("logical_"):
        return (np.dtype(np.bool_),) * 3
    if asked is None and out is None and ufunc.__name__ in ("add", "multiply") and dtype.kind in "biu":
        asked = np.uint64 if dtype.kind == "u" else np.int64
    if asked is not None:
        return (np.dtype(asked),) * 3
    started = dtype if out is None else out.dtype
    return ufunc.resolve_dtypes((started, dtype, None), casting="unsafe", reduction=True)


def reduce(
    ufunc: np.ufunc,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = UNSET,
    where: Any = True,
) -> Any:
    """`ufunc.reduce` with NumPy's meaning of every argument."""
    array, axis, keep = as_tracer(a), None if axis is UNSET else axis, keepdims is not UNSET and bool(keepdims)
    target = out_arrays(out, 1)[0]
    options = {"axis": axis, "dtype": dtype, "out": target, "keepdims": keep, "where": where}
    probe(ufunc.reduce, array, options if initial is UNSET else {**options, "initial": initial})
    loop = loop_of(ufunc, array.dtype, dtype, target)
    axes = axes_of_reduction(axis, array.ndim)
    value = convert(array.value, loop[1])
    start = None if initial is UNSET else initial
    if ufunc.__name__ in COMBINERS or ufunc.__name__ in HALVED:
        result = _reduce_in_any_order(ufunc, loop, value, axes, start, where)
    else:
        result = _reduce_in_order(ufunc, loop, value, axes, start, where)
    if keep:
        result = reshape(result, kept(array.shape, axes))
    return finish(result, target, True, f"np.{ufunc.__name__}.reduce(out=)")


METHODS["reduce"] = reduce


def _reduce_in_any_order(
    ufunc: np.ufunc, loop: Loop, value: Value, axes: tuple[int, ...], start: Any, where: Any
) -> Value:
    if where is not True:
        value = _neutralised(ufunc, value, as_tracer(where), UNSET if start is None else start)
    if start is None and ufunc.__name__ in HALVED:
        start = ufunc.identity  # one element alone goes through the ufunc too: hypot, gcd
    shape = tuple(extent for d, extent in enumerate(value.type.shape) if d not in axes)
    if start is None and (value.type.size or ufunc.__name__ not in HALVED):
        return _reduction(ufunc, loop, value, axes)
    begun = Term(broadcast(value_of(0 if start is None else start, loop[2]), shape))
    if not value.type.size:
        return begun.value
    return apply(ufunc.__name__, Term(_reduction(ufunc, loop, value, axes)), begun).value


def _reduce_in_order(ufunc: np.ufunc, loop: Loop, value: Value, axes: tuple[int, ...], start: Any, where: Any) -> Value:
    if start is None and (where is not True or not value.type.size):
        start = ufunc.identity
    if not axes:
        return value if start is None else apply(ufunc.__name__, Term(value).lift(start), Term(value)).value
    (axis,) = axes
    if start is None and not value.type.shape[axis]:
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    return reduce_in_order(ufunc, loop, value, axis, start, None if where is True else as_tracer(where))


def _reduction(ufunc: np.ufunc, loop: Loop, value: Value, axes: tuple[int, ...]) -> Value:
    name = ufunc.__name__
    if name in HALVED or (value.type.dtype.is_complex and name != "add"):
        return reduce_in_halves(ufunc, loop, value, axes)
    is_bool = value.type.dtype is dtypes.BOOL
    combiner = _BOOL_COMBINERS.get(name, COMBINERS[name]) if is_bool else COMBINERS[name]
    if combiner in ("maximum", "minimum") and 0 in (value.type.shape[d] for d in axes):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if name in ("fmax", "fmin") and value.type.dtype.is_float:
        return _reduce_numbers(value, axes, combiner)
    return _reduce(value, axes, combiner)


def _reduce(value: Value, axes: tuple[int, ...], combiner: str) -> Value:
    return current().emit("reduce", (value,), dimensions=axes, combiner=combiner) if axes else value


def _reduce_numbers(value: Value, axes: tuple[int, ...], combiner: str) -> Value:
    """Largest or smallest, NaN only where all are."""
    term = Term(value)
    neutral = -math.inf if combiner == "maximum" else math.inf
    found = Term(_reduce(term.is_nan().select(neutral, term).value, axes, combiner))
    return Term(_reduce(term.is_nan().value, axes, "and")).select(math.nan, found).value


def _neutralised(ufunc: np.ufunc, value: Value, where: TracerArray, initial: Any) -> Value:
    """`value` with the reduction's identity outside `where`."""
    identity: Any = ufunc.identity
    if identity is None or ufunc.__name__ in ("maximum", "minimum", "fmax", "fmin"):
        if initial is UNSET or initial is None:
            raise ValueError(
                f"reduction operation '{ufunc.__name__}' does not have an identity, pass initial with where"
            )
        identity = initial
    shape = np.broadcast_shapes(value.type.shape, where.shape)
    mask = Term(broadcast(convert(where.value, np.dtype(np.bool_)), shape))
    kept_value = Term(broadcast(value, shape))
    if type(identity) is int:
        identity = np.asarray(identity).astype(kept_value.dtype)  # all ones, of bitwise_and, is -1
    neutral = Term(broadcast(value_of(identity, kept_value.dtype), shape))
    return mask.select(kept_value, neutral).value


def _reducer(ufunc: np.ufunc, *, has_dtype: bool) -> Any:
    if has_dtype:

        def with_dtype(
            a: Any,
            axis: Any = None,
            dtype: Any = None,
            out: Any = None,
            keepdims: Any = False,
            initial: Any = UNSET,
            where: Any = True,
        ) -> Any:
            return reduce(ufunc, a, axis, dtype, out, keepdims, initial, given(where, True))

        return with_dtype

    def without_dtype(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = UNSET, where: Any = True
    ) -> Any:
        return reduce(ufunc, a, axis, None, out, keepdims, initial, given(where, True))

    return without_dtype


implements(np.sum)(_reducer(np.add, has_dtype=True))
implements(np.prod)(_reducer(np.multiply, has_dtype=True))
implements(np.max, np.amax)(_reducer(np.maximum, has_dtype=False))
implements(np.min, np.amin)(_reducer(np.minimum, has_dtype=False))


@implements(np.all)
def all_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """As `np.all`."""
    return reduce(np.logical_and, a, axis, None, out, keepdims, where=given(where, True))


@implements(np.any)
def any_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    """As `np.any`."""
    return reduce(np.logical_or, a, axis, None, out, keepdims, where=given(where, True))


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """As `np.ptp`."""
    return np.subtract(call(np.max, a, axis, keepdims=keepdims), call(np.min, a, axis, keepdims=keepdims), out=out)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """As `np.count_nonzero`."""
    nonzero = convert(as_tracer(a).value, np.dtype(np.bool_))
    return call(np.sum, fresh(nonzero), axis, np.int64, keepdims=keepdims)


# positions


def _position(op: str, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    array = as_tracer(a)
    shape = array.shape
    if axis is None or not array.ndim:
        array, axis = call(np.ravel, array), 0
    axis = one_axis(axis, array.ndim)
    if not array.shape[axis]:
        raise ValueError(f"attempt to get {op} of an empty sequence")
    value = current().emit(op, (array.value,), dimension=axis, dtype=dtypes.I64)
    if given(keepdims, False):
        value = reshape(value, kept(shape, (axis,)) if len(shape) == array.ndim else (1,) * len(shape))
    return finish(value, out_arrays(out, 1)[0], True, f"np.{op}(out=)")


@implements(np.argmax)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """As `np.argmax`."""
    return _position("argmax", a, axis, out, keepdims)


@implements(np.argmin)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """As `np.argmin`."""
    return _position("argmin", a, axis, out, keepdims)
