"""Choice and comparison: where, clip, select, isclose, nan_to_num, round, interp, in-place copyto, and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontend.axes import UNSET
from autofuse.frontend.bounds import check_index, require_index_dtype
from autofuse.frontend.complexrules import by_parts, is_complex, joined_parts
from autofuse.frontend.dispatch import ORDERED, call, implements
from autofuse.frontend.eager import numpys_own
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import (
    as_tracer,
    broadcast,
    convert,
    is_weak,
    result_dtype,
    shape_of,
    spread,
    value_of,
)
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import TracerArray, fresh, write
from autofuse.frontend.ufuncs import elementwise, keep_order
from autofuse.ir import dtypes
from autofuse.ir.types import TensorType

_BOOL = np.dtype(np.bool_)
_MOST_COEFFICIENTS = 256
"""Longer polynomials are NumPy's own: a kernel has a step for each coefficient."""


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """As `np.where`."""
    if x is None or y is None:
        raise trace_error("np.where(condition) has a data-dependent shape", "np.where(condition, a, b)")
    dtype = result_dtype(x, y)
    shape = np.broadcast_shapes(shape_of(condition), shape_of(x), shape_of(y))
    predicate = Term(broadcast(convert(as_tracer(condition).value, _BOOL), shape))
    on_true, on_false = (Term(spread(side, dtype, shape)) for side in (x, y))
    result = fresh(predicate.select(on_true, on_false).value, is_scalar=False)
    keep_order([result], [None], [side for side in (condition, x, y) if isinstance(side, TracerArray)])
    return result


ORDERED.add(where)


@implements(np.clip)
def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,  # noqa: A002 - NumPy's name
    max: Any = None,  # noqa: A002 - NumPy's name
    **kwargs: Any,
) -> Any:
    """As `np.clip`."""
    low = min if a_min is None or a_min is UNSET else a_min
    high = max if a_max is None or a_max is UNSET else a_max
    low, high = _bound(a, low, least=True), _bound(a, high, least=False)
    options = {**kwargs, "out": out} if out is not None else kwargs
    if low is None and high is None:
        return np.positive(as_tracer(a), **options)
    if low is not None and high is None:
        return np.maximum(as_tracer(a), low, **options)
    if low is None:
        return np.minimum(as_tracer(a), high, **options)
    return elementwise(np._core.umath.clip, a, low, high, **options)  # pyright: ignore[reportAttributeAccessIssue]


ORDERED.add(clip)


def _bound(a: Any, bound: Any, *, least: bool) -> Any:
    """A bound of clip; a Python int outside the dtype's range bounds nothing."""
    dtype = as_tracer(a).dtype
    if type(bound) is not int or dtype.kind not in "iu":
        return bound
    info = np.iinfo(dtype)
    return None if (bound < info.min if least else bound > info.max) else bound


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """As `np.select`."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    dtype = result_dtype(*choicelist, default)
    shape = np.broadcast_shapes(*(shape_of(item) for item in (*condlist, *choicelist, default)))
    result = Term(broadcast(value_of(default, dtype), shape))
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        predicate = Term(broadcast(as_tracer(condition).value, shape))
        result = predicate.select(Term(broadcast(value_of(choice, dtype), shape)), result)
    return fresh(result.value, is_scalar=False)


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """As `np.choose`."""
    index = as_tracer(a)
    listed = [as_tracer(item) for item in (choices if not isinstance(choices, TracerArray) else list(choices))]
    count = len(listed)
    known = index.known
    require_index_dtype(index.dtype)
    if mode == "wrap":
        index = as_tracer(np.remainder(index, count))
    elif mode == "raise" and known is None:
        check_index(index.value, f"{count} choices", 0, count, ValueError)
    elif mode == "raise" and known is not None and not ((known() >= 0) & (known() < count)).all():
        raise ValueError("invalid entry in choice array")
    elif mode not in ("raise", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r:.80})")
    result = listed[-1]
    for position in range(len(listed) - 2, -1, -1):
        result = where(np.less_equal(index, position), listed[position], result)
    if out is None:
        return fresh(result.value)
    write(as_tracer(out), broadcast(convert(result.value, out.dtype), out.shape), "np.choose(out=)")
    return out


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """As `np.piecewise`."""
    array = as_tracer(x)
    conditions = [as_tracer(item) for item in (condlist if isinstance(condlist, list) else list(condlist))]
    result = call(np.zeros_like, array)
    if len(funclist) == len(conditions) + 1:
        result = _piece(array, funclist[-1], args, kw)
    for condition, function in zip(conditions, funclist, strict=False):
        result = where(condition, _piece(array, function, args, kw), result)
    return result


def _piece(array: TracerArray, function: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> TracerArray:
    value = function(array, *args, **kw) if callable(function) else function
    return fresh(broadcast(value_of(value, array.dtype), array.shape))


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """As `np.copyto`."""
    target = as_tracer(dst)
    fits = is_weak(src) and isinstance(src, int) and target.dtype.kind in "iu"
    if not fits and not np.can_cast(as_tracer(src).dtype, target.dtype, casting):
        raise TypeError(f"Cannot cast array data from {as_tracer(src).dtype} to {target.dtype} ({casting!r:.80})")
    new = Term(broadcast(value_of(src, target.dtype), target.shape))
    if where is not True:
        mask = Term(broadcast(convert(as_tracer(where).value, _BOOL), target.shape))
        new = mask.select(new, Term(target.value))
    write(target, new.value, "np.copyto")


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """As `np.putmask`."""
    target, new = as_tracer(a), as_tracer(values)
    if new.size != 1 and new.shape != target.shape:
        raise ValueError("np.putmask is traced for one value or values of the array's shape")
    copyto(target, new.reshape(()) if new.size == 1 else new, "unsafe", mask)


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """As `np.place`."""
    if as_tracer(vals).size != 1:
        raise ValueError("np.place is traced for one value; use np.copyto(arr, values, where=mask)")
    copyto(arr, as_tracer(vals).reshape(()), "unsafe", mask)


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """As `np.fill_diagonal`."""
    matrix = as_tracer(a)
    if matrix.ndim != 2 or wrap:
        raise ValueError("np.fill_diagonal is traced for matrices, without wrap")
    size = min(matrix.shape)
    matrix[np.arange(size), np.arange(size)] = val


# rounding and repair


@implements(np.round, np.around)
def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """As `np.round`."""
    array = as_tracer(a)
    options = {} if out is None else {"out": out}
    if array.dtype.kind in "biu":
        if decimals < 0:
            raise ValueError("np.round of integers is traced for decimals >= 0")
        return np.positive(array, **options) if array.dtype.kind != "b" else np.rint(array, **options)
    if decimals == 0:
        return np.rint(array, **options)
    scale = float(10 ** abs(decimals))
    up, down = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    return down(np.rint(up(array, scale)), scale, **options)


@implements(np.fix)
def fix(x: Any, out: Any = None) -> Any:
    """As `np.fix`."""
    return np.trunc(as_tracer(x)) if out is None else np.trunc(as_tracer(x), out=out)


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """As `np.nan_to_num`."""
    array = as_tracer(x)
    if array.dtype.kind in "biu":
        return (array.copy() if copy else array)[()]
    if is_complex(array):
        fixed = by_parts(lambda part: nan_to_num(part, True, nan, posinf, neginf), array)
        if copy:
            return fixed
        array[...] = fixed
        return array[()]
    info = np.finfo(array.dtype)
    high = info.max.item() if posinf is None else posinf
    low = info.min.item() if neginf is None else neginf
    fixed = where(np.isnan(array), nan, array)
    fixed = where(np.equal(array, math.inf), high, fixed)
    fixed = where(np.equal(array, -math.inf), low, fixed)
    if copy:
        return fixed[()]
    array[...] = fixed
    return array[()]


@implements(np.isposinf)
def isposinf(x: Any, out: Any = None) -> Any:
    """As `np.isposinf`."""
    return np.equal(x, math.inf) if out is None else np.equal(x, math.inf, out=out)


@implements(np.isneginf)
def isneginf(x: Any, out: Any = None) -> Any:
    """As `np.isneginf`."""
    return np.equal(x, -math.inf) if out is None else np.equal(x, -math.inf, out=out)


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """As `np.isclose`."""
    x, y = as_tracer(a), as_tracer(b)
    if y.dtype.kind in "biu":
        y = y.astype(np.float64)
    near = np.less_equal(np.absolute(np.subtract(x, y)), np.add(atol, np.multiply(rtol, np.absolute(y))))
    result = (near & np.isfinite(y)) | np.equal(x, y)
    return result | (np.isnan(x) & np.isnan(y)) if equal_nan else result


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """As `np.allclose`."""
    return call(np.all, isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """As `np.array_equal`."""
    x, y = as_tracer(a1), as_tracer(a2)
    if x.shape != y.shape:
        return False
    same = np.equal(x, y)
    return call(np.all, same | (np.isnan(x) & np.isnan(y)) if equal_nan else same)


@implements(np.sinc)
def sinc(x: Any) -> Any:
    """As `np.sinc`."""
    y = np.multiply(np.pi, as_tracer(x))
    y = where(np.equal(y, 0), float(np.finfo(y.dtype).eps) if y.dtype.kind == "f" else 1.0e-20, y)
    return np.sin(y) / y


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """As `np.polyval`."""
    coefficients, at = as_tracer(p), as_tracer(x)
    if coefficients.ndim == 1 and coefficients.size > _MOST_COEFFICIENTS:
        dtype = dtypes.from_numpy(np.result_type(at.dtype, coefficients.dtype))
        return numpys_own(np.polyval, TensorType(at.shape, dtype), coefficients, at)
    result = call(np.zeros_like, at)
    for coefficient in coefficients:
        result = result * x + coefficient
    return result


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """As `np.interp`."""
    if period is not None:
        raise ValueError("np.interp with period cannot be traced")
    if is_complex(as_tracer(fp)):
        sides = (left, right)
        re, im = (
            interp(x, xp, part(fp), *(None if s is None else part(s) for s in sides)) for part in (np.real, np.imag)
        )
        return joined_parts(re, im)
    at, knots, values = (as_tracer(item).astype(np.float64) for item in (x, xp, fp))
    upper = call(np.clip, call(np.searchsorted, knots, at, "right"), 1, knots.size - 1)
    low, high = upper - 1, upper
    slope = (values[high] - values[low]) / (knots[high] - knots[low])
    inside = slope * (at - knots[low]) + values[low]
    result = where(at < knots[0], values[0] if left is None else left, inside)
    result = where(at > knots[-1], values[-1] if right is None else right, result)
    return where(np.equal(at, knots[-1]), values[-1], result)[()]


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    """As `np.trapezoid`."""
    array = call(np.moveaxis, as_tracer(y), axis, -1)
    width: Any = dx
    if x is not None:
        points = as_tracer(x)
        width = call(np.diff, points if points.ndim == 1 else call(np.moveaxis, points, axis, -1))
    return call(np.sum, width * (array[..., 1:] + array[..., :-1]) / 2.0, -1)
