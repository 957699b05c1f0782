"""The nan-variants of reductions: NaN elements count as absent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontend.axes import UNSET, many_axes
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.reductions import reduce
from autofuse.frontend.tracer import TracerArray


def _is_inexact(array: TracerArray) -> bool:
    return array.dtype.kind not in "biu"


def _replaced(a: Any, by: float) -> TracerArray:
    array = as_tracer(a)
    return call(np.where, np.isnan(array), by, array) if _is_inexact(array) else array


def _with_neutral(plain: Any, neutral: float) -> Any:
    def reduction(a: Any, *args: Any, **kwargs: Any) -> Any:
        return call(plain, _replaced(a, neutral), *args, **kwargs)

    return reduction


implements(np.nansum)(_with_neutral(np.sum, 0.0))
implements(np.nanprod)(_with_neutral(np.prod, 1.0))
implements(np.nancumsum)(_with_neutral(np.cumsum, 0.0))
implements(np.nancumprod)(_with_neutral(np.cumprod, 1.0))


@implements(np.nanargmax)
def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """An all-NaN slice gives 0, where NumPy raises."""
    return call(np.argmax, _replaced(a, -math.inf), axis, out, keepdims=keepdims)


@implements(np.nanargmin)
def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    """An all-NaN slice gives 0, where NumPy raises."""
    return call(np.argmin, _replaced(a, math.inf), axis, out, keepdims=keepdims)


def _extreme(ufunc: np.ufunc) -> Any:
    def reduction(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = UNSET, where: Any = True
    ) -> Any:
        where = True if where is UNSET else where
        keepdims = False if keepdims is UNSET else keepdims
        return reduce(ufunc, a, axis, None, out, keepdims, initial, where)

    return reduction


implements(np.nanmax)(_extreme(np.fmax))
implements(np.nanmin)(_extreme(np.fmin))


def _present(a: Any, where: Any) -> Any:
    """The `where` under which elements are present."""
    array = as_tracer(a)
    numbers = ~np.isnan(array)
    return numbers if where is True or where is UNSET else numbers & where


@implements(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    """As `np.nanmean`."""
    return call(np.mean, as_tracer(a), axis, dtype, out, keepdims, where=_present(a, where))


def _spread(function: Any) -> Any:
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
        array = as_tracer(a)
        if not _is_inexact(array):
            return call(
                function, array, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction
            )
        present = _present(array, where)
        ddof = ddof if correction is UNSET else correction
        options: dict[str, Any] = {} if mean is UNSET else {"mean": mean}
        result = call(function, array, axis, dtype, None, ddof, keepdims, where=present, **options)
        count = call(np.sum, present, many_axes(axis, array.ndim), keepdims=bool(keepdims is not UNSET and keepdims))
        result = call(np.where, count > ddof, result, np.nan)
        if out is None:
            return result[()] if not result.ndim else result
        out[...] = result
        return out

    return reduction


implements(np.nanvar)(_spread(np.var))
implements(np.nanstd)(_spread(np.std))
