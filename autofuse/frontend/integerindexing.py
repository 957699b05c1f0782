"""Integer-array indexing: gather, scatter, and the functions that are one (`take`, `take_along_axis`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.axes import one_axis
from autofuse.frontend.bounds import check_index, require_index_dtype
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, broadcast, convert, reshape, value_of
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh, write
from autofuse.frontend.ufuncs import finish, out_arrays
from autofuse.ir.graph import Value

_I64 = np.dtype(np.int64)


def wrapped(index: TracerArray, extent: int, dimension: int) -> TracerArray:
    """A traced index with negative entries counted from the end.

    Entries out of bounds are recorded where that is asked for, and else left to the ops: reads clamp, writes are
    dropped (of one element or window: clamp). Raises IndexError where there is nothing to index.
    """
    if index.size and not extent:
        raise IndexError(f"index is out of bounds for axis {dimension} with size 0")
    value = index.value
    if index.dtype.itemsize < 4 or index.dtype == np.uint64:
        value = convert(value, _I64)
    check_index(value, f"axis {dimension} with size {extent}", -extent, extent)
    if index.dtype.kind == "u" and index.dtype != np.uint64:
        return fresh(value)
    term = Term(value)
    return fresh((term < 0).select(term + extent, term).value)


def take_at(x: TracerArray, dims: Sequence[int], arrays: Sequence[Any], place: int) -> TracerArray:
    """`x` indexed by integer arrays along `dims`; the dimensions of the arrays go to `place` in the result."""
    span = _progression(arrays, x.shape[dims[0]])
    if span is not None:
        index = (slice(None),) * dims[0] + (span,)
        return x[index].copy()
    indices, batch = _start_indices(x.shape, dims, arrays)
    others = [d for d in range(x.ndim) if d not in dims]
    offsets = _offset_dims(len(others), len(batch), place)
    if not all(x.shape[d] for d in dims):  # of nothing, nothing is taken
        return fresh(current().splat(0, x.dtype, _taken_shape(x.shape, others, batch, place)), is_scalar=False)
    value = current().emit(
        "gather",
        (x.value, indices),
        offset_dims=offsets,
        collapsed_slice_dims=tuple(dims),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=tuple(dims),
        index_vector_dim=len(batch),
        slice_sizes=tuple(1 if d in dims else extent for d, extent in enumerate(x.shape)),
    )
    return fresh(value)


def put_where(x: TracerArray, index: TracerArray, mask: TracerArray, value: Any, combiner: str) -> None:
    """`x[index] = value` along the first axis, where a mask holds. `value`: broadcasts to what would be taken."""
    extent = x.shape[0]
    inside = wrapped(call(np.where, mask, index, 0), extent, 0)
    places = call(np.where, mask, inside, extent)  # what is written there is dropped
    _scattered(x, (0,), places.value, (*index.shape,), 0, value, combiner)


def put_at(x: TracerArray, dims: Sequence[int], arrays: Sequence[Any], place: int, value: Any, combiner: str) -> None:
    """Write `value` where `take_at` reads, combined with what is there; repeated indices apply in order."""
    indices, batch = _start_indices(x.shape, dims, arrays)
    _scattered(x, dims, indices, batch, place, value, combiner)


def _scattered(
    x: TracerArray, dims: Sequence[int], indices: Value, batch: tuple[int, ...], place: int, value: Any, combiner: str
) -> None:
    others = [d for d in range(x.ndim) if d not in dims]
    offsets = _offset_dims(len(others), len(batch), place)
    shape = _taken_shape(x.shape, others, batch, place)
    updates = value_of(value, x.dtype)
    while updates.type.rank > len(shape) and updates.type.shape[0] == 1:
        updates = reshape(updates, updates.type.shape[1:])
    spread = broadcast(updates, shape)
    if not spread.type.size:
        return
    new = current().emit(
        "scatter",
        (x.value, indices, spread),
        update_window_dims=offsets,
        inserted_window_dims=tuple(dims),
        input_batching_dims=(),
        scatter_indices_batching_dims=(),
        scatter_dims_to_operand_dims=tuple(dims),
        index_vector_dim=len(batch),
        combiner=combiner,
    )
    write(x, new, "assignment to an index")


def _taken_shape(shape: tuple[int, ...], others: Sequence[int], batch: tuple[int, ...], place: int) -> tuple[int, ...]:
    """The shape of what is taken: the dimensions that no array indexes, with those of the arrays at `place`."""
    kept = tuple(shape[d] for d in others)
    return (*kept[:place], *batch, *kept[place:])


def _offset_dims(others: int, batch: int, place: int) -> tuple[int, ...]:
    """Positions, in the result, of the dimensions that are not indexed by arrays."""
    return tuple(d if d < place else d + batch for d in range(others))


def _start_indices(shape: tuple[int, ...], dims: Sequence[int], arrays: Sequence[Any]) -> tuple[Value, tuple[int, ...]]:
    """The index vectors (last dimension, absent for one array) and the shape they are spread over."""
    batch = np.broadcast_shapes(
        *(np.shape(array) if not isinstance(array, TracerArray) else array.shape for array in arrays)
    )
    values = [broadcast(_index_value(a, shape[d], d), batch) for a, d in zip(arrays, dims, strict=True)]
    if len(values) == 1:
        return values[0], batch
    wide = [reshape(convert(value, _I64), (*batch, 1)) for value in values]
    return current().emit("concatenate", wide, dimension=len(batch)), batch


def _index_value(array: Any, extent: int, dimension: int) -> Value:
    found = array.known if isinstance(array, TracerArray) else None
    if isinstance(array, TracerArray) and found is None:
        return wrapped(array, extent, dimension).value
    known = np.asarray(array if found is None else found()).astype(np.int64)
    outside = known[(known < -extent) | (known >= extent)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of bounds for axis {dimension} with size {extent}")
    return current().builder.constant(np.where(known < 0, known + extent, known), "indices")


def _progression(arrays: Sequence[Any], extent: int) -> slice | None:
    """The slice that one known 1-d index array stands for, where it is evenly spaced."""
    if len(arrays) != 1 or not isinstance(arrays[0], np.ndarray) or arrays[0].ndim != 1 or not arrays[0].size:
        return None
    known: NDArray[Any] = np.where(arrays[0] < 0, arrays[0] + extent, arrays[0])
    if known.min() < 0 or known.max() >= extent:
        return None
    steps = np.diff(known)
    if steps.size and (steps[0] == 0 or not (steps == steps[0]).all()):
        return None
    step = int(steps[0]) if steps.size else 1
    stop = int(known[-1]) + (1 if step > 0 else -1)
    return slice(int(known[0]), None if stop < 0 else stop, step)


# the functions


def _axis_last(a: Any, indices: Any, axis: Any) -> tuple[TracerArray, TracerArray, int]:
    array, index = as_tracer(a), as_tracer(indices)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    return array, index, one_axis(axis, array.ndim)


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """As `np.take`."""
    array, index, axis = _axis_last(a, indices, axis)
    extent = array.shape[axis]
    index = _in_mode(index, extent, mode)
    known = index.known
    given = index if known is None else known().astype(np.int64)
    result = take_at(array, [axis], [given], axis)
    target = out_arrays(out, 1)[0]
    return result if target is None else finish(result.value, target, True, "np.take(out=)")


def _in_mode(index: TracerArray, extent: int, mode: str) -> TracerArray:
    """An index as `mode` has it. Raises ValueError for another mode, IndexError for entries where there is nothing."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r:.80})")
    if index.size and not extent:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if mode == "wrap" and extent:
        return as_tracer(np.remainder(index, extent))
    return as_tracer(call(np.clip, index, 0, extent - 1)) if mode == "clip" and extent else index


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """As `np.put`."""
    array = as_tracer(a)
    require_index_dtype(as_tracer(ind).dtype)
    index = _in_mode(call(np.ravel, as_tracer(ind)), array.size, mode)
    array.flat[index] = v


def _along(array: TracerArray, index: TracerArray, axis: int) -> list[Any]:
    """Index arrays for every dimension, so that `index` selects along `axis`."""
    if array.ndim != index.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    arrays: list[Any] = []
    for dimension in range(array.ndim):
        shape = [1] * array.ndim
        shape[dimension] = -1
        arrays.append(index if dimension == axis else np.arange(array.shape[dimension]).reshape(shape))
    return arrays


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """As `np.take_along_axis`."""
    array, index, axis = _axis_last(arr, indices, axis)
    return take_at(array, range(array.ndim), _along(array, index, axis), 0)


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """As `np.put_along_axis`."""
    array, index, axis = _axis_last(arr, indices, axis)
    put_at(array, range(array.ndim), _along(array, index, axis), 0, values, "set")


@implements(np.ix_)
def ix_(*args: Any) -> Any:
    """As `np.ix_`."""
    arrays = [_one_index(item) for item in args]
    return tuple(
        array.reshape((1,) * i + (array.size,) + (1,) * (len(arrays) - i - 1)) for i, array in enumerate(arrays)
    )


def _one_index(item: Any) -> TracerArray:
    array = as_tracer(item)
    if array.ndim != 1:
        raise ValueError("Cross index must be 1 dimensional")
    if array.dtype.kind == "b":
        if array.known is None:
            raise trace_error(
                "np.ix_ of a mask that is a traced value: how many indices there are depends on data",
                "np.where(mask[:, None], a, b), or indices that are known",
            )
        return as_tracer(np.flatnonzero(array.known()))
    return array if array.size or isinstance(item, TracerArray | np.ndarray) else array.astype(np.intp)
