"""Shape and order: functions that return views (as in NumPy), and reshape."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np

from autofuse.frontend.axes import many_axes, one_axis, static_shape
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, reshape
from autofuse.frontend.steps import BroadcastStep, DiagonalStep, ReadOnlyStep, ReshapeStep, ReverseStep, TransposeStep
from autofuse.frontend.tracer import TracerArray, fresh, view


@implements(np.reshape)
def reshape_(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Any:
    """As `np.reshape`."""
    array = as_tracer(a)
    wanted = _complete(array, static_shape(shape))
    if array.is_scalar and not wanted:
        return array
    if _c_or_f(array, order) == "F":
        return transpose(reshape_(transpose(array), wanted[::-1], copy=copy))
    if _same_but_ones(array.shape, wanted):
        result = view(array, *([ReshapeStep(wanted)] if wanted != array.shape else []))
        return result.copy() if copy else result
    if copy:
        return fresh(reshape(array.value, wanted), is_scalar=False)
    if copy is False:
        _need_order(array)
        return view(array, ReshapeStep(wanted))
    return tied(array, wanted, _view_or_none(array, wanted))


def _same_but_ones(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes differ by extents of 1 only: such a reshape is always a view."""
    return [extent for extent in a if extent != 1] == [extent for extent in b if extent != 1]


def _view_or_none(array: TracerArray, shape: tuple[int, ...]) -> TracerArray | None:
    try:
        return view(array, ReshapeStep(shape))
    except ValueError:
        return None


def tied(array: TracerArray, shape: tuple[int, ...], found: TracerArray | None) -> TracerArray:
    """`array` in another shape or object: the view that NumPy makes of it by what is known here; None for a copy.

    Where its memory order is a guess, it is a copy as long as nobody could see the difference. Where arguments decide
    the order, they must keep to C order from the moment on when somebody can.
    """
    own = array.cell.storage
    if own.order_is_guess:
        result = fresh(reshape(array.value, shape), is_scalar=False)
        own.twins.append(result.cell.storage)
        result.cell.storage.twins.append(own)
        return result
    result = fresh(reshape(array.value, shape), is_scalar=False) if found is None else found
    own.bind(result.cell)
    if found is None:
        result.cell.storage.order_from = own.order_from
        result.cell.storage.bind(own)
    return result


def _need_order(array: TracerArray) -> None:
    """What is done next depends on the memory order of `array`. Raises TraceError where that is not known."""
    if array.cell.storage.order_is_guess:
        raise trace_error("the result depends on the memory order of a temporary", "x = x.copy() before")
    array.cell.storage.need_order()


def _c_or_f(array: TracerArray, order: str) -> str:
    """An `order` argument as "C" or "F"."""
    if order in ("C", "F"):
        return order
    if order != "A":
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r:.80})")
    _need_order(array)
    flags = array.cell.layout.flags
    return "F" if flags.f_contiguous and not flags.c_contiguous else "C"


def _complete(array: TracerArray, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with -1 replaced. Raises ValueError where NumPy does."""
    rest = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) == 1 and rest and array.size % rest == 0:
        return tuple(array.size // rest if extent == -1 else extent for extent in shape)
    if -1 in shape or rest != array.size:
        raise ValueError(f"cannot reshape array of size {array.size} into shape {shape}")
    return shape


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """As `np.ravel`."""
    array = as_tracer(a)
    if order == "K":
        _need_order(array)
        slowest_first = sorted(range(array.ndim), key=lambda d: -abs(array.strides[d]))
        return ravel(transpose(array, slowest_first))
    if _c_or_f(array, order) == "F":
        return ravel(transpose(array))
    shape = (array.size,)
    return tied(array, shape, view(array, ReshapeStep(shape)) if array.cell.layout.flags.c_contiguous else None)


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Any:
    """As `np.transpose`."""
    array = as_tracer(a)
    given: Sequence[Any] = range(array.ndim)[::-1] if axes is None else cast("Sequence[Any]", axes)
    permutation = tuple(one_axis(axis, array.ndim) for axis in given)
    if sorted(permutation) != list(range(array.ndim)):
        raise ValueError("axes don't match array")
    if permutation == tuple(range(array.ndim)):
        return array
    return view(array, TransposeStep(permutation))


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    """As `np.swapaxes`."""
    array = as_tracer(a)
    order = list(range(array.ndim))
    first, second = one_axis(axis1, array.ndim), one_axis(axis2, array.ndim)
    order[first], order[second] = order[second], order[first]
    return transpose(array, order)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """As `np.moveaxis`."""
    array = as_tracer(a)
    sources = [one_axis(axis, array.ndim) for axis in _listed(source)]
    targets = [one_axis(axis, array.ndim) for axis in _listed(destination)]
    if len(sources) != len(targets):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(array.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(array, order)


def _listed(axis: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", axis) if isinstance(axis, tuple | list) else (axis,)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: int = 0) -> Any:
    """As `np.rollaxis`."""
    array = as_tracer(a)
    source = one_axis(axis, array.ndim)
    start = start + array.ndim if start < 0 else start
    return moveaxis(array, source, start - 1 if source < start else start)


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    """As `np.squeeze`."""
    array = as_tracer(a)
    if array.is_scalar:
        return array
    axes = (
        tuple(d for d, extent in enumerate(array.shape) if extent == 1) if axis is None else many_axes(axis, array.ndim)
    )
    if any(array.shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape_(array, tuple(extent for d, extent in enumerate(array.shape) if d not in axes))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    """As `np.expand_dims`."""
    array = as_tracer(a)
    given = _listed(axis)
    axes = many_axes(tuple(given), array.ndim + len(given))
    extents = iter(array.shape)
    return reshape_(array, tuple(1 if d in axes else next(extents) for d in range(array.ndim + len(given))))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """As `np.broadcast_to`."""
    del subok
    source, wanted = as_tracer(array), static_shape(shape)
    if np.broadcast_shapes(source.shape, wanted) != wanted:
        raise ValueError(f"operands could not be broadcast together with remapped shapes {source.shape} and {wanted}")
    return view(source, BroadcastStep(wanted) if source.shape != wanted else ReadOnlyStep())


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """As `np.broadcast_arrays`."""
    del subok
    arrays = [call(np.asarray, as_tracer(item)) for item in args]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return tuple(array if array.shape == shape else broadcast_to(array, shape) for array in arrays)


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """As `np.flip`."""
    array = as_tracer(m)
    axes = many_axes(axis, array.ndim)
    return view(array, ReverseStep(axes)) if axes else array[()]


@implements(np.flipud)
def flipud(m: Any) -> Any:
    """As `np.flipud`."""
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Any:
    """As `np.fliplr`."""
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """As `np.rot90`."""
    array = as_tracer(m)
    first, second = (one_axis(axis, array.ndim) for axis in axes)
    match operator.index(k) % 4:
        case 0:
            return view(array)
        case 1:
            return swapaxes(flip(array, second), first, second)
        case 2:
            return flip(array, (first, second))
        case _:
            return flip(swapaxes(array, first, second), second)


def _at_least(rank: int, array: TracerArray) -> TracerArray:
    """NumPy's placement of new axes differs by function; for rank 3 they stand around the matrix."""
    if array.ndim >= rank:
        return array
    match rank, array.ndim:
        case 3, 1:
            shape: tuple[int, ...] = (1, *array.shape, 1)
        case 3, 2:
            shape = (*array.shape, 1)
        case _:
            shape = (1,) * (rank - array.ndim) + array.shape
    return reshape_(array, shape)


def _atleast(rank: int) -> Any:
    def atleast(*arys: Any) -> Any:
        results = tuple(_at_least(rank, as_tracer(item)) for item in arys)
        return results[0] if len(results) == 1 else results

    return atleast


implements(np.atleast_1d)(_atleast(1))
implements(np.atleast_2d)(_atleast(2))
implements(np.atleast_3d)(_atleast(3))


# splitting: views


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """As `np.array_split`."""
    array = as_tracer(ary)
    axis = one_axis(axis, array.ndim)
    extent = array.shape[axis]
    if np.ndim(indices_or_sections):
        bounds = [0, *(operator.index(bound) for bound in indices_or_sections), extent]
    else:
        each, extra = divmod(extent, operator.index(indices_or_sections))
        sizes = [each + 1] * extra + [each] * (operator.index(indices_or_sections) - extra)
        bounds = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    lead = (slice(None),) * axis
    return [array[(*lead, slice(low, high))] for low, high in pairwise(bounds)]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """As `np.split`."""
    array = as_tracer(ary)
    if not np.ndim(indices_or_sections) and array.shape[axis] % operator.index(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(array, indices_or_sections, axis)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """As `np.hsplit`."""
    return split(ary, indices_or_sections, 0 if as_tracer(ary).ndim == 1 else 1)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """As `np.vsplit`."""
    return split(ary, indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """As `np.dsplit`."""
    return split(ary, indices_or_sections, 2)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """As `np.unstack`."""
    return tuple(moveaxis(x, axis, 0))


# diagonals


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """As `np.diagonal`."""
    moved = moveaxis(as_tracer(a), (axis1, axis2), (-2, -1))
    return view(moved, DiagonalStep(operator.index(offset)))


@implements(np.linalg.diagonal)
def linalg_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """As `np.linalg.diagonal`."""
    return diagonal(x, offset, -2, -1)


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """As `np.trace`."""
    return call(np.sum, diagonal(a, offset, axis1, axis2), -1, dtype, out)


@implements(np.linalg.trace)
def linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """As `np.linalg.trace`."""
    return trace(x, offset, -2, -1, dtype)
