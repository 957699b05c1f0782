"""Functions that make arrays: inside a traced function they make traced arrays, which can be written into.

`np.empty` makes zeros. Ranges of integers and masks (`arange`, `eye`) are emitted as `iota`, so they cost no memory;
`linspace` and the like are constants, computed by NumPy itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.axes import static_shape
from autofuse.frontend.cells import Known, Storage, View
from autofuse.frontend.dispatch import ORDERED, call, implements, tracers_in
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.layouts import fortran
from autofuse.frontend.manipulation import tied
from autofuse.frontend.promotion import as_tracer, broadcast, result_dtype, value_of
from autofuse.frontend.rolling.appending import gathered
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.ragged import of_shape
from autofuse.frontend.steps import SameStep
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current, supported
from autofuse.frontend.tracer import TracerArray, fresh, view
from autofuse.frontend.ufuncs import keep_order
from autofuse.ir import dtypes, types
from autofuse.ir.graph import Value


def iota(shape: tuple[int, ...], dimension: int, dtype: Any = np.int64) -> Value:
    """Indices along one dimension."""
    return current().emit("iota", (), shape=shape, dtype=dtypes.from_numpy(np.dtype(dtype)), iota_dimension=dimension)


def filled(shape: Any, fill: Any, dtype: Any) -> Any:
    """An array of one repeated value; a Ragged one where loops decide its shape."""
    given = cast("Sequence[Any]", shape) if isinstance(shape, tuple | list) else (shape,)
    if any(isinstance(extent, Number) for extent in given):
        return of_shape(given, lambda window: filled(window, fill, dtype))
    extents, wanted = static_shape(shape), supported(dtype)
    return fresh(broadcast(value_of(fill, wanted), extents), is_scalar=False)


def _constant_filled(fill: int) -> Any:
    def create(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
        del device, like
        return in_order(filled(shape, fill, dtype or np.float64), order)

    return create


implements(np.zeros, np.empty, creates=True)(_constant_filled(0))
implements(np.ones, creates=True)(_constant_filled(1))


@implements(np.full, creates=True)
def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Any:
    """As `np.full`."""
    del device, like
    return in_order(filled(shape, fill_value, dtype if dtype is not None else as_tracer(fill_value).dtype), order)


def in_order(new: Any, order: str) -> Any:
    """A new array, said to be in Fortran order where that is asked for."""
    if order == "F" and isinstance(new, TracerArray):
        new.cell.layout = fortran(new.cell.type)
    return new


def _like(fill: int) -> Any:
    def create(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Any:
        del subok, device
        return _filled_like(a, fill, dtype, order, shape)

    ORDERED.add(create)
    return create


def _filled_like(a: Any, fill: Any, dtype: Any, order: str, shape: Any) -> TracerArray:
    array = as_tracer(a)
    result = filled(array.shape if shape is None else shape, fill, array.dtype if dtype is None else dtype)
    if order in ("K", "A") and result.shape == array.shape:
        keep_order([result], [None], [array])
    return in_order(result, order)


implements(np.zeros_like, np.empty_like, creates=True)(_like(0))
implements(np.ones_like, creates=True)(_like(1))


@implements(np.full_like, creates=True)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """As `np.full_like`."""
    del subok, device
    return _filled_like(a, fill_value, dtype, order, shape)


ORDERED.add(full_like)


# from data


@implements(np.array, creates=True)
def array(
    object: Any,  # noqa: A002 - NumPy's name
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
) -> Any:
    """As `np.array`."""
    del subok, ndmax, like
    result = _from_data(object, dtype)
    if result.is_scalar:
        result = view(result)
    if copy and (result is object or isinstance(object, np.ndarray)):
        result = call(np.copy, result, order)
    else:
        result = _ordered(result, order, copy)
    return result.reshape((1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


def _ordered(array: TracerArray, order: Any, copy: Any) -> TracerArray:
    """The array itself if it is in the memory order asked for, else a copy. Raises ValueError if that is forbidden."""
    if order not in ("C", "F") or array.size < 2:
        return array
    flags = array.cell.layout.flags
    if flags.c_contiguous if order == "C" else flags.f_contiguous:
        return tied(array, array.shape, view(array, SameStep()))
    if copy is False:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    result = tied(array, array.shape, None)
    return in_order(result, order)


ORDERED.add(array)


@implements(np.asanyarray, creates=True)
def asanyarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
) -> Any:
    """As `np.asanyarray`: arrays of other classes, which it would keep, are refused."""
    types.require_plain(a)
    return asarray(a, dtype, order, device=device, copy=copy, like=like)


@implements(np.asarray, creates=True)
def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
) -> Any:
    """As `np.asarray`."""
    del device
    return array(a, dtype, copy=copy, order=order, like=like)


@implements(np.ascontiguousarray, creates=True)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `np.ascontiguousarray`."""
    del like
    return call(np.atleast_1d, array(a, dtype, copy=None, order="C"))


@implements(np.asfortranarray, creates=True)
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `np.asfortranarray`."""
    del like
    return call(np.atleast_1d, array(a, dtype, copy=None, order="F"))


ORDERED.update((ascontiguousarray, asfortranarray))


@implements(np.require, creates=True)
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """As `np.require`."""
    del like
    asked = {str(item).upper()[0] for item in ([requirements] if isinstance(requirements, str) else requirements or ())}
    if {"C", "F"} <= asked:
        raise ValueError('Cannot specify both "C" and "F" order')
    result = array(a, dtype, copy=None, order="F" if "F" in asked else "C" if "C" in asked else "A")
    missing = ("W" in asked and result.cell.read_only) or ("O" in asked and isinstance(result.cell, View))
    return result.copy("K") if missing else result


ORDERED.add(require)


@implements(np.asarray_chkfinite, creates=True)
def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """As `np.asarray_chkfinite`."""
    return asarray(a, dtype, order)


def _from_data(data: Any, dtype: Any) -> TracerArray:
    """What `np.asarray(data, dtype)` holds."""
    if isinstance(data, TracerArray):
        return data if dtype is None else data.astype(dtype, copy=False)
    if isinstance(data, list | tuple) and any(True for _ in tracers_in(data)):
        rows = gathered(cast("Sequence[Any]", data), lambda items: _from_data(items, None))
        if rows is not None:
            return rows if dtype is None else rows.astype(dtype)
        parts = [_from_data(item, dtype) for item in cast("Sequence[Any]", data)]
        return call(np.stack, parts)
    found = np.asarray(data, dtype)
    supported(found.dtype)
    if isinstance(data, np.ndarray):
        return as_tracer(found)
    held = found.copy()
    return TracerArray(Storage(types.of_array(held), None, known=Known(lambda: held), name="array"))


# ranges and grids


@implements(np.arange, creates=True)
def arange(*args: Any, dtype: Any = None, device: Any = None, like: Any = None, **bounds: Any) -> Any:
    """As `np.arange`."""
    del device, like
    if any(isinstance(bound, Number) for bound in args) and not bounds:
        return _moving_range(*args, dtype=dtype)
    given = [operator.index(a) if isinstance(a, TracerArray) and a.dtype.kind in "iu" else a for a in args]
    given = [float(a) if isinstance(a, TracerArray) else a for a in given]
    reference = np.arange(*given, dtype=dtype, **bounds)
    if reference.dtype.kind not in "iu" or reference.size < 2:
        return _from_data(reference.tolist() if not reference.size else list(reference), reference.dtype)
    start, step = int(reference[0]), int(reference[1]) - int(reference[0])
    index = Term(iota(reference.shape, 0, reference.dtype))
    index = index if step == 1 else index * step
    return fresh((index if start == 0 else index + start).value)


def _moving_range(*args: Any, dtype: Any) -> Any:
    """`arange` with bounds that loops decide."""
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if any(type(bound) is not int and not (isinstance(bound, Number) and bound.python is int) for bound in args):
        raise CannotRollError("it makes a range of floats with bounds that move")
    if type(step) is not int or step < 1:
        raise CannotRollError("it makes a range with bounds that move and a step that is not known to be positive")
    count = stop - start if step == 1 else (stop - start + step - 1) // step
    made: Any = of_shape([count], lambda window: arange(*window)) if isinstance(count, Number) else arange(count)
    made = made * step + start
    return made if dtype is None else made.astype(dtype)


def _computed(function: Callable[..., Any]) -> None:
    """Trace a function of Python numbers alone: NumPy computes the array, the graph holds it as a constant."""

    def create(*args: Any, **kwargs: Any) -> Any:
        given: list[Any] = [_number(item) for item in args]
        options = {key: _number(item) for key, item in kwargs.items()}
        result = function(*given, **options)
        if isinstance(result, tuple | list):
            items = list(cast("Any", result))  # `np.diag_indices` gives one array twice
            owned = {id(item): _own(item) for item in items if isinstance(item, np.ndarray)}
            return type(result)(owned.get(id(item), item) for item in items)
        return _own(result)

    implements(function, creates=True)(create)


def _own(result: Any) -> TracerArray:
    held = np.asarray(result)
    supported(held.dtype)
    return TracerArray(Storage(types.of_array(held), None, known=Known(lambda: held), name="array"))


def _number(value: Any) -> Any:
    """A traced argument as the concrete array it is known to be. Raises TraceError through `__array__` if it is not."""
    return np.asarray(value)[()] if isinstance(value, TracerArray) else value


for _function in (
    np.logspace,
    np.geomspace,
    np.hanning,
    np.hamming,
    np.blackman,
    np.bartlett,
    np.kaiser,
    np.tri,
    np.indices,
    np.tril_indices,
    np.triu_indices,
    np.diag_indices,
    np.fromfunction,
    np.frombuffer,
    np.fft.fftfreq,
    np.fft.rfftfreq,
):
    _computed(_function)


@implements(np.linspace, creates=True)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """As `np.linspace`."""
    del device
    if all(not isinstance(bound, TracerArray) or bound.known is not None for bound in (start, stop)):
        result = cast("Any", np.linspace)(_number(start), _number(stop), num, endpoint, retstep, dtype, axis)
        return (_own(result[0]), result[1]) if retstep else _own(result)
    common = result_dtype(start, stop)
    common = common if common.kind in "fc" else np.result_type(common, np.float64)
    low, high = (as_tracer(bound).astype(common) for bound in (start, stop))
    delta = high - low
    count = operator.index(num)
    intervals = count - 1 if endpoint else count
    step = delta / max(intervals, 1)
    index = np.arange(count).reshape((-1,) + (1,) * step.ndim).astype(step.dtype)
    points = as_tracer(index) * step + low
    if endpoint and count > 1:
        points[-1] = stop
    points = call(np.moveaxis, points if dtype is None else points.astype(dtype), 0, axis)
    return (points, step) if retstep else points
