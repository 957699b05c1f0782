"""Means, variances and averages: of f16 and bf16 computed in f32 and rounded once, of integers in f64, as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.frontend.axes import UNSET, given, many_axes, one_axis
from autofuse.frontend.complexrules import is_complex, squares
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer, convert, is_weak
from autofuse.frontend.reductions import reduce
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufuncs import finish, out_arrays
from autofuse.ir import dtypes


def _mean_dtypes(dtype: np.dtype[Any], asked: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """(dtype to compute in, dtype of the result) of mean, var and std."""
    result = np.dtype(asked) if asked is not None else np.dtype(np.float64) if dtype.kind in "biu" else dtype
    narrow = dtypes.from_numpy(result).is_float and result.itemsize == 2
    return (np.dtype(np.float32) if narrow else result), result


def _counted(array: TracerArray, axes: tuple[int, ...], keepdims: bool, where: Any) -> Any:
    """How many elements each result is made of: a number, or an array under `where`."""
    if where is True:
        return math.prod(array.shape[d] for d in axes)
    mask = call(np.broadcast_to, as_tracer(where), array.shape)
    return call(np.sum, mask, axes, np.int64, keepdims=keepdims)


def _divided(total: TracerArray, count: Any) -> Any:
    """`total / count` in the dtype of `total`."""
    if isinstance(count, TracerArray):
        count = fresh(convert(count.value, total.dtype))
    return np.true_divide(total, float(count) if is_weak(count) else count)


@implements(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    """As `np.mean`."""
    array, keep, where = as_tracer(a), bool(given(keepdims, False)), given(where, True)
    compute, result = _mean_dtypes(array.dtype, dtype)
    axes = many_axes(axis, array.ndim)
    total = reduce(np.add, array, axes, compute, None, keep, where=where)
    value = convert(_divided(total, _counted(array, axes, keep, where)).value, result)
    return finish(value, out_arrays(out, 1)[0], True, "np.mean(out=)")


def _variance(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean_: Any
) -> tuple[Any, np.dtype[Any]]:
    """The variance before rounding to the result's dtype, and that dtype."""
    array, keep, where = as_tracer(a), bool(given(keepdims, False)), given(where, True)
    compute, result = _mean_dtypes(array.dtype, dtype)
    axes = many_axes(axis, array.ndim)
    wide = fresh(convert(array.value, np.result_type(array.dtype, compute)))  # where that is wider, sums alone are not
    if mean_ is UNSET:
        total = reduce(np.add, wide, axes, compute, None, True, where=where)
        mean_ = _divided(total, _counted(array, axes, True, where))
    centered = as_tracer(np.subtract(wide, as_tracer(mean_)))
    if is_complex(centered):
        compute = result = centered.real.dtype
    total = reduce(np.add, squares(centered), axes, compute, None, keep, where=where)
    count = _counted(array, axes, keep, where)
    freedom = max(count - ddof, 0) if is_weak(count) else np.maximum(count - ddof, 0)
    return _divided(total, freedom), result


def _spread(name: str, of_variance: Callable[[Any], Any]) -> Any:
    def reduction(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        *,
        where: Any = True,
        mean: Any = UNSET,
        correction: Any = UNSET,
    ) -> Any:
        value, result = _variance(a, axis, dtype, given(correction, ddof), keepdims, where, mean)
        return finish(convert(of_variance(value).value, result), out_arrays(out, 1)[0], True, f"{name}(out=)")

    return reduction


implements(np.var)(_spread("np.var", lambda variance: variance))
implements(np.std)(_spread("np.std", np.sqrt))


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """As `np.average`."""
    array, keep = as_tracer(a), bool(given(keepdims, False))
    if weights is None:
        result = mean(array, axis, keepdims=keep)
        scale: Any = np.full_like(result, _counted(array, many_axes(axis, array.ndim), keep, True))
    else:
        weight = as_tracer(weights)
        if weight.shape != array.shape:
            shape = [1] * array.ndim
            shape[one_axis(axis, array.ndim)] = weight.size
            weight = call(np.broadcast_to, call(np.reshape, weight, tuple(shape)), array.shape)
        dtype = np.result_type(array.dtype, weight.dtype)
        if array.dtype.kind in "biu":
            dtype = np.result_type(dtype, np.float64)
        scale = call(np.sum, weight, axis, dtype, keepdims=keep)
        result = call(np.sum, np.multiply(array, weight, dtype=dtype), axis, keepdims=keep) / scale
    return (result, scale) if returned else result
