"""Statistics of samples: counts, quantiles, covariances."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from autofuse.frontend.axes import UNSET, kept, many_axes
from autofuse.frontend.bounds import check_holds
from autofuse.frontend.choosing import where
from autofuse.frontend.complexrules import by_parts, is_complex
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, is_weak, reshape
from autofuse.frontend.sorting import sort
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufuncs import finish, out_arrays
from autofuse.ir.graph import Value


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """As `np.bincount`, where its length is known: of known keys, or of ones that are known to be below `minlength`."""
    index = as_tracer(x)
    if index.ndim != 1 or index.dtype.kind not in "biu" or minlength < 0:
        np.bincount(np.ones((1,) * index.ndim, index.dtype), minlength=minlength)  # raises what NumPy raises
    known = index.known
    if known is not None:
        length = max(minlength, np.bincount(known()).size)
    elif _greatest(index.value) < minlength:
        length = minlength
    else:
        raise trace_error(
            "np.bincount has a data-dependent length: there may be keys that are not below minlength",
            "np.bincount(np.clip(x, 0, n - 1), minlength=n)",
        )
    if weights is None or not index.size:
        target, added = call(np.zeros, length, np.int64), 1
    else:
        target, added = call(np.zeros, length, np.float64), _weights(weights, index.size)
    if known is None and index.dtype.kind == "i":
        check_holds(
            lambda: as_tracer(np.greater_equal(index, 0)).value, "'list' argument must have no negative elements"
        )
    keys = index.astype(np.uint64)  # none counts from the end
    np.add.at(target, keys, added)
    return target


def _weights(weights: Any, count: int) -> TracerArray:
    """Weights of as many keys."""
    array = as_tracer(weights)
    if array.ndim != 1:
        raise ValueError(f"object {'too deep' if array.ndim else 'of too small depth'} for desired array")
    if array.size != count:
        raise ValueError("The weights and list don't have the same length.")
    return array.astype(np.float64)


def _greatest(value: Value) -> int:
    """What the elements of an integer value are known not to exceed."""
    dtype = value.type.dtype
    limit = 1 if dtype.kind == "bool" else int(np.iinfo(cast("Any", dtype.numpy)).max)
    op, inputs, attrs = current().made_by(value)
    if op == "constant" and value.type.size:
        return int(attrs["value"].max())
    if op == "minimum":
        return min(limit, *map(_greatest, inputs))
    if op == "convert" and inputs[0].type.dtype.kind != "float":
        reached = _greatest(inputs[0])
        return reached if reached <= limit else limit
    return _greatest(inputs[0]) if op in ("broadcast_in_dim", "reshape", "slice", "reverse", "transpose") else limit


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """As `np.median`."""
    del overwrite_input
    array = as_tracer(a)
    axes = many_axes(axis, array.ndim)
    rest = [d for d in range(array.ndim) if d not in axes]
    reduced = math.prod(array.shape[d] for d in axes)
    rows = array.transpose((*rest, *axes)).reshape((*(array.shape[d] for d in rest), reduced))
    ordered = sort(rows, -1)
    middle = ordered[..., max(reduced - 1, 0) // 2 : reduced // 2 + 1].mean(-1)
    if array.dtype.kind not in "biu" and reduced:
        middle = where(np.isnan(ordered[..., -1]), ordered[..., -1], middle)
    value = reshape(middle.value, kept(array.shape, axes)) if keepdims is True else middle.value
    if out is None:
        return fresh(value, is_scalar=None if keepdims is False else False)
    return finish(value, out_arrays(out, 1)[0], True, "np.median(out=)")


@implements(np.quantile)
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """As `np.quantile`, linear method, for a `q` that is known while tracing."""
    del overwrite_input
    array = as_tracer(a)
    if is_complex(array):
        raise TypeError("a must be an array of real numbers")
    if method != "linear" or weights is not None or out is not None:
        raise ValueError("np.quantile and np.percentile are traced for method='linear', without weights and out")
    fractions = np.asarray(q, np.float64)
    if ((fractions < 0) | (fractions > 1)).any():
        raise ValueError("Quantiles must be in the range [0, 1]")
    axes = many_axes(axis, array.ndim)
    rest = [d for d in range(array.ndim) if d not in axes]
    ordered = sort(array.transpose((*rest, *axes)).reshape((*(array.shape[d] for d in rest), -1)), -1)
    if np.asarray(q).dtype.kind in "iu":  # the least and the greatest, as they are
        ends = [as_tracer(ordered[..., -int(f)]) for f in fractions.flat]
        results = [_or_nan(ordered, end) for end in ends]
    else:
        results = [_quantile(ordered, float(f), weak=is_weak(q)) for f in fractions.flat]
    shape = tuple(1 if d in axes else e for d, e in enumerate(array.shape)) if keepdims else results[0].shape
    stacked = call(np.stack, results).reshape(fractions.shape + shape)
    return stacked if stacked.ndim or keepdims else fresh(stacked.value)


@implements(np.percentile)
def percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """As `np.percentile`, linear method, for a `q` that is known while tracing."""
    hundred = as_tracer(a).dtype.type(100) if as_tracer(a).dtype.kind == "f" else 100
    fractions = q / 100 if is_weak(q) else np.true_divide(np.asarray(q), hundred)
    return quantile(a, fractions, *args, **kwargs)


def _quantile(ordered: TracerArray, fraction: float, *, weak: bool) -> TracerArray:
    """One quantile along the last axis, interpolated as NumPy's `_lerp`."""
    size = ordered.shape[-1]
    position = fraction * (size - 1)
    low = min(math.floor(position), size - 1)
    gamma = position - low
    below, above = ordered[..., low], ordered[..., min(low + 1, size - 1)]
    step = np.subtract(above, below)
    weight = (lambda value: value) if weak else np.float64
    if gamma >= 0.5:
        result = np.subtract(above, np.multiply(step, weight(1 - gamma)))
    else:
        result = np.add(below, np.multiply(step, weight(gamma)))
    return _or_nan(ordered, result)


def _or_nan(ordered: TracerArray, result: Any) -> TracerArray:
    """NaN, which is sorted last, where there is one."""
    if ordered.dtype.kind != "f":
        return as_tracer(result)
    return where(np.isnan(ordered[..., -1]), ordered[..., -1], result)


@implements(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """As `np.cov`, without weights."""
    if fweights is not None or aweights is not None:
        raise ValueError("np.cov is traced without weights")
    rows = _observations(m, rowvar)
    if y is not None:
        rows = call(np.concatenate, (rows, _observations(y, rowvar)), axis=0)
    rows = rows.astype(np.result_type(rows.dtype, np.float64) if dtype is None else dtype)
    freedom = rows.shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    centered = np.subtract(rows, call(np.mean, rows, axis=1, keepdims=True))
    share = 1 / freedom if freedom > 0 else math.inf  # NumPy warns, and divides by 0
    product = np.multiply(np.matmul(centered, call(np.transpose, centered).conj()), share)
    return call(np.squeeze, product)


def _observations(m: Any, rowvar: bool) -> TracerArray:
    """Variables in rows, observations in columns."""
    array = as_tracer(m)
    wide = call(np.atleast_2d, array)
    return call(np.transpose, wide) if not rowvar and array.ndim > 1 else wide


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """As `np.corrcoef`."""
    covariance = cov(x, y, rowvar, dtype=dtype)
    if not covariance.ndim:
        return covariance / covariance
    deviation = np.sqrt(call(np.diagonal, covariance).real)
    shares = covariance / deviation[:, None] / deviation[None, :]
    if is_complex(shares):
        return by_parts(lambda part: call(np.clip, part, -1, 1), shares)
    return call(np.clip, shares, -1, 1)


@implements(np.cumulative_sum)
def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    """As `np.cumulative_sum`."""
    return _cumulative(np.cumsum, x, axis, dtype, out, 0 if include_initial else UNSET)


@implements(np.cumulative_prod)
def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    """As `np.cumulative_prod`."""
    return _cumulative(np.cumprod, x, axis, dtype, out, 1 if include_initial else UNSET)


def _cumulative(function: Any, x: Any, axis: Any, dtype: Any, out: Any, initial: Any) -> Any:
    array = as_tracer(x)
    if axis is None:
        if array.ndim > 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    result = call(function, array, axis, dtype, out)
    if initial is UNSET:
        return result
    shape = list(result.shape)
    shape[axis] = 1
    return call(np.concatenate, [np.full(shape, initial, result.dtype), result], axis)
