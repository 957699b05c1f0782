"""Copies, conversions of dtype, and questions that shape and dtype answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.frontend.axes import many_axes, static_shape
from autofuse.frontend.bounds import check_index
from autofuse.frontend.dispatch import FUNCTIONS, ORDERED, call, implements
from autofuse.frontend.layouts import fortran, interleaved, without_data
from autofuse.frontend.promotion import as_tracer, convert
from autofuse.frontend.steps import BitcastStep, PartsStep, WholeStep
from autofuse.frontend.tracer import TracerArray, fresh, view
from autofuse.frontend.ufuncs import keep_order
from autofuse.ir import dtypes


def astype(array: TracerArray, dtype: Any, casting: Any = "unsafe", copy: bool = True, order: str = "K") -> Any:
    """`x.astype(dtype)`."""
    wanted = dtypes.from_numpy(np.dtype(dtype)).numpy
    if not np.can_cast(array.dtype, wanted, casting):
        raise TypeError(f"Cannot cast array data from {array.dtype!r} to {wanted!r} according to the rule {casting!r}")
    if not copy and wanted == array.dtype:
        return array
    return _ordered(fresh(convert(array.value, wanted), is_scalar=array.is_scalar), array, order)


def _ordered(result: TracerArray, source: TracerArray, order: str) -> TracerArray:
    """A copy of `source` in the memory order asked for: it decides what a reshape of the copy aliases."""
    layout = source.cell.layout
    if order in ("K", "A"):
        keep_order([result], [None], [source])
    if order == "F" or (order == "A" and layout.flags.f_contiguous and not layout.flags.c_contiguous):
        result.cell.layout = fortran(result.cell.type)
    elif order == "A":
        result.cell.layout = without_data(result.cell.type)
    return result


FUNCTIONS["astype"] = astype
ORDERED.add(astype)


@implements(np.astype)
def astype_function(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """As `np.astype`."""
    del device
    return astype(as_tracer(x), dtype, copy=copy)


def bitcast(array: TracerArray, dtype: Any) -> Any:
    """`x.view(dtype)` of an equally wide dtype: the same memory, as in NumPy."""
    wanted = dtypes.from_numpy(np.dtype(dtype))
    own = array.cell.type.dtype
    if array.ndim and own.is_complex and wanted is own.part:
        return _regrouped(array, PartsStep())
    if array.ndim and wanted.is_complex and wanted.part is own:
        return _regrouped(array, WholeStep())
    if wanted.itemsize != array.dtype.itemsize or "bool" in (wanted.kind, array.cell.type.dtype.kind):
        raise TypeError(f"view as {wanted} of {array.dtype} cannot be traced; the widths must be equal")
    seen = view(array, BitcastStep(wanted))
    return fresh(seen.value) if array.is_scalar else seen


def _regrouped(array: TracerArray, step: PartsStep | WholeStep) -> TracerArray:
    """A view of another width. Raises ValueError where NumPy does."""
    step.numpy(np.lib.stride_tricks.as_strided(np.empty(1, array.dtype), array.shape, array.cell.layout.strides))
    return view(array, step)


FUNCTIONS["bitcast"] = bitcast


@implements(np.copy)
def copy_(a: Any, order: str = "K", subok: bool = False) -> Any:
    """As `np.copy`."""
    del subok
    return _ordered(fresh(as_tracer(a).value, is_scalar=False), as_tracer(a), order)


ORDERED.add(copy_)


@implements(np.shape)
def shape_(a: Any) -> Any:
    """As `np.shape`."""
    return as_tracer(a).shape


@implements(np.ndim)
def ndim_(a: Any) -> Any:
    """As `np.ndim`."""
    return as_tracer(a).ndim


@implements(np.size)
def size_(a: Any, axis: Any = None) -> Any:
    """As `np.size`."""
    array = as_tracer(a)
    return math.prod(array.shape[d] for d in many_axes(axis, array.ndim))


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> Any:
    """As `np.result_type`."""
    return np.result_type(*(item.dtype if isinstance(item, TracerArray) else item for item in arrays_and_dtypes))


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> Any:
    """As `np.can_cast`."""
    return np.can_cast(from_.dtype if isinstance(from_, TracerArray) else from_, to, casting)


@implements(np.may_share_memory)
def may_share_memory(a: Any, b: Any, max_work: Any = None) -> Any:
    """As `np.may_share_memory`."""
    del max_work
    return _share(np.may_share_memory, as_tracer(a), as_tracer(b))


@implements(np.shares_memory)
def shares_memory(a: Any, b: Any, max_work: Any = None) -> Any:
    """As `np.shares_memory`."""
    del max_work
    return _share(np.shares_memory, as_tracer(a), as_tracer(b))


def _share(reference: Callable[..., bool], a: TracerArray, b: TracerArray) -> bool:
    """Whether two arrays lie in each other's memory; scalars lie in none."""
    if a.is_scalar or b.is_scalar or a.cell.storage is not b.cell.storage:
        return False
    return reference(a.cell.layout, b.cell.layout)


@implements(np.isscalar)
def isscalar(element: Any) -> Any:
    """As `np.isscalar`."""
    return as_tracer(element).is_scalar


@implements(np.iterable)
def iterable(y: Any) -> Any:
    """As `np.iterable`."""
    return as_tracer(y).ndim > 0


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    """As `np.tril_indices_from`."""
    rows, columns = as_tracer(arr).shape
    return call(np.tril_indices, rows, k, columns)


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    """As `np.triu_indices_from`."""
    rows, columns = as_tracer(arr).shape
    return call(np.triu_indices, rows, k, columns)


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """As `np.unravel_index`, C order."""
    if order != "C":
        raise ValueError("np.unravel_index is traced for order 'C'")
    rest: Any = as_tracer(indices)
    if rest.dtype.kind not in "iu":
        raise TypeError("only int indices permitted")
    extents = static_shape(shape)
    if not extents and rest.ndim:
        raise ValueError("multiple indices are not supported for 0d arrays")
    size = math.prod(extents)
    _require_inside(rest, size, f"array with size {size}", "index {} is out of bounds for array with size " + str(size))
    rest = rest.astype(np.int64)
    found: list[Any] = []
    for extent in reversed(extents):
        rest, position = np.divmod(rest, extent)
        found.append(position)
    for position in found:  # NumPy's are interleaved in one array
        position.cell.layout = interleaved(position.cell.layout, len(extents))
    return tuple(reversed(found))


def _require_inside(index: TracerArray, extent: int, what: str, problem: str) -> None:
    """Raise ValueError for known entries not in 0 .. extent - 1; have others checked where that is asked for."""
    known = index.known
    if known is None and (extent or not index.size):
        check_index(index.value, what, 0, extent)
        return
    entries = np.zeros(1, int) if known is None else known()
    outside = entries[(entries < 0) | (entries >= extent)]
    if outside.size:
        raise ValueError(problem.format(outside.flat[0]))


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """As `np.ravel_multi_index`, C order."""
    if order != "C" or mode != "raise":
        raise ValueError("np.ravel_multi_index is traced for order 'C' and mode 'raise'")
    result: Any = 0
    for position, extent in zip(multi_index, static_shape(dims), strict=True):
        given = as_tracer(position)
        if given.dtype.kind not in "iu":
            raise TypeError("only int indices permitted")
        _require_inside(given, extent, f"axis with size {extent}", "invalid entry in coordinates array")
        result = np.add(np.multiply(result, extent), given.astype(np.int64))
    return result
