"""Running reductions and those of segments: `ufunc.accumulate`, `ufunc.reduceat`, and the functions built on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.axes import one_axis
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, convert
from autofuse.frontend.reductions import COMBINERS, loop_of
from autofuse.frontend.tracecontext import current
from autofuse.frontend.ufuncreductions import probe, reduce_segments, run_in_order
from autofuse.frontend.ufuncs import METHODS, finish, out_arrays
from autofuse.ir import dtypes


def accumulate(ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """`ufunc.accumulate`."""
    a = as_tracer(array)
    target = out_arrays(out, 1)[0]
    probe(ufunc.accumulate, a, {"axis": axis, "dtype": dtype, "out": target})
    if target is not None and target.shape != a.shape:
        raise ValueError(f"out must have the shape of what is accumulated, {a.shape}, got {target.shape}")
    loop = loop_of(ufunc, a.dtype, dtype, target)
    value = convert(a.value, loop[1])
    axis = one_axis(axis, a.ndim)
    only_adds = value.type.dtype.is_complex and ufunc.__name__ != "add"
    if value.type.dtype is dtypes.BOOL or only_adds or ufunc.__name__ not in ("add", "multiply", "maximum", "minimum"):
        value = run_in_order(ufunc, loop, value, axis)
    elif a.shape[axis] > 1:
        value = current().emit(
            "cumulative", (value,), dimension=axis, combiner=COMBINERS[ufunc.__name__], reverse=False
        )
    return finish(value, target, True, f"np.{ufunc.__name__}.accumulate(out=)")


METHODS["accumulate"] = accumulate


def reduceat(ufunc: np.ufunc, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """`ufunc.reduceat`, for indices that are known while tracing."""
    a, places = as_tracer(array), as_tracer(indices)
    if places.known is None:
        raise trace_error(
            "np.ufunc.reduceat needs indices that are known while tracing",
            "np.add.at(totals, segment_of_each_element, x), or a Python list of indices",
        )
    target = out_arrays(out, 1)[0]
    loop = loop_of(ufunc, a.dtype, dtype, target)
    value = reduce_segments(
        lambda totals, at, updates: METHODS["at"](ufunc, totals, at, updates),
        convert(a.value, loop[1]),
        places.known(),
        one_axis(axis, a.ndim),
        loop[2],
    )
    return finish(value, target, True, f"np.{ufunc.__name__}.reduceat(out=)")


METHODS["reduceat"] = reduceat


def _running(ufunc: np.ufunc, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    array = as_tracer(a)
    if axis is None or (not array.ndim and axis in (0, -1)):
        array, axis = call(np.ravel, array), 0
    return accumulate(ufunc, array, axis, dtype, out)


@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """As `np.cumsum`."""
    return _running(np.add, a, axis, dtype, out)


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """As `np.cumprod`."""
    return _running(np.multiply, a, axis, dtype, out)
