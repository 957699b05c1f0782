"""Functions that put arrays together or rearrange copies: concatenate, stack, pad, roll, tile, repeat, diff, ..."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.axes import UNSET, many_axes, one_axis, static_shape
from autofuse.frontend.dispatch import call, implements, tracers_in
from autofuse.frontend.promotion import as_tracer, broadcast, convert, is_weak, reshape, result_dtype, value_of
from autofuse.frontend.steps import Step
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh, view
from autofuse.frontend.ufuncs import finish, out_arrays
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

_MOST_RUNS = 8
"""`delete` copies no more than so many slices, else it takes one element at a time."""
_MOST_CALLS = 1024
"""`apply_along_axis` unrolls no more than this many calls."""


def _arrays(arrays: Any) -> list[TracerArray]:
    listed = [as_tracer(item) for item in arrays]
    if not listed:
        raise ValueError("need at least one array to concatenate")
    return listed


def joined(values: Sequence[Value], dimension: int) -> Value:
    """Values of one dtype, concatenated."""
    return values[0] if len(values) == 1 else current().emit("concatenate", values, dimension=dimension)


@implements(np.concatenate, np.concat)
def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """As `np.concatenate`."""
    given = list(arrays)
    listed, target = _arrays(given), out_arrays(out, 1)[0]
    typed = [item if is_weak(item) else array for item, array in zip(given, listed, strict=True)]
    if axis is None:
        listed, axis = [call(np.ravel, array) for array in listed], 0
    axis = one_axis(axis, listed[0].ndim)
    if any(array.ndim != listed[0].ndim for array in listed):
        raise ValueError("all the input array dimensions must match exactly: the number of dimensions differs")
    if len({(*array.shape[:axis], *array.shape[axis + 1 :]) for array in listed}) > 1:
        raise ValueError("all the input array dimensions except for the concatenation axis must match exactly")
    common = np.dtype(dtype) if dtype is not None else result_dtype(*typed)
    if dtype is not None and not all(np.can_cast(array.dtype, common, cast("Any", casting)) for array in listed):
        raise TypeError(f"Cannot cast to {common} according to the rule {casting!r:.80}")
    value = joined([convert(array.value, common) for array in listed], axis)
    result = finish(value, target, True, "np.concatenate(out=)")
    return result.copy() if len(listed) == 1 and target is None else result


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """As `np.stack`."""
    listed = _arrays(arrays)
    if len({array.shape for array in listed}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = one_axis(axis, listed[0].ndim + 1)
    shape = (*listed[0].shape[:axis], 1, *listed[0].shape[axis:])
    wide = [fresh(reshape(array.value, shape)) for array in listed]
    return concatenate(wide, axis, out, dtype=dtype, casting=casting)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """As `np.vstack`."""
    return concatenate([call(np.atleast_2d, array) for array in _arrays(tup)], 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """As `np.hstack`."""
    arrays = [call(np.atleast_1d, array) for array in _arrays(tup)]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> Any:
    """As `np.dstack`."""
    return concatenate([call(np.atleast_3d, array) for array in _arrays(tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Any:
    """As `np.column_stack`."""
    arrays = [array if array.ndim > 1 else array.reshape(-1, 1) for array in _arrays(tup)]
    return concatenate(arrays, 1)


@implements(np.block)
def block(arrays: Any) -> Any:
    """As `np.block`."""
    result = _block(arrays, _depth(arrays))
    return result.copy() if isinstance(arrays, TracerArray) else result


def _depth(arrays: Any) -> int:
    return 1 + _depth(cast("Sequence[Any]", arrays)[0]) if isinstance(arrays, list) else 0


def _block(arrays: Any, depth: int) -> TracerArray:
    if not isinstance(arrays, list):
        array = as_tracer(arrays)
        return array.reshape((1,) * max(depth - array.ndim, 0) + array.shape)
    parts = [_block(item, max(depth, 1)) for item in cast("list[Any]", arrays)]
    rank = max(part.ndim for part in parts)
    parts = [part.reshape((1,) * (rank - part.ndim) + part.shape) for part in parts]
    return concatenate(parts, -_depth(arrays))


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """As `np.append`."""
    if axis is None:
        return concatenate((call(np.ravel, as_tracer(arr)), call(np.ravel, as_tracer(values))))
    return concatenate((arr, values), axis)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """As `np.roll`."""
    array = as_tracer(a)
    if axis is None:
        return call(np.reshape, roll(call(np.ravel, array), shift, 0), array.shape)
    shifts: Any = cast("Any", shift) if isinstance(shift, tuple | list) else (shift,)
    axes: Any = cast("Any", axis) if isinstance(axis, tuple | list) else (axis,)
    pairs = np.broadcast(np.asarray(shifts, object), np.asarray(axes, object))
    value = array.value
    for by, dimension in pairs:
        value = _rolled(value, operator.index(by), one_axis(dimension, array.ndim))
    return fresh(value, is_scalar=False)


def sliced(value: Value, dimension: int, low: int, high: int) -> Value:
    """`value[low:high]` along one dimension."""
    if (low, high) == (0, value.type.shape[dimension]):
        return value
    start = [0] * value.type.rank
    limit = list(value.type.shape)
    start[dimension], limit[dimension] = low, high
    return current().emit(
        "slice", (value,), start_indices=tuple(start), limit_indices=tuple(limit), strides=(1,) * value.type.rank
    )


def _rolled(value: Value, shift: int, dimension: int) -> Value:
    extent = value.type.shape[dimension]
    shift = shift % extent if extent else 0
    if not shift:
        return value
    tail = sliced(value, dimension, extent - shift, extent)
    return joined([tail, sliced(value, dimension, 0, extent - shift)], dimension)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:  # noqa: N803 - NumPy's name
    """As `np.tile`."""
    array, counts = as_tracer(A), static_shape(reps)
    rank = max(array.ndim, len(counts))
    shape = (1,) * (rank - array.ndim) + array.shape
    counts = (1,) * (rank - len(counts)) + counts
    wide = reshape(array.value, tuple(e for extent in shape for e in (1, extent)))
    spread = broadcast(wide, tuple(e for pair in zip(counts, shape, strict=True) for e in pair))
    return fresh(reshape(spread, tuple(map(operator.mul, counts, shape))), is_scalar=False)


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """As `np.repeat`."""
    array = as_tracer(a)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    axis = one_axis(axis, array.ndim)
    counts = as_tracer(repeats)
    known = counts.known
    if known is None:
        raise TypeError("the repeats must be known while tracing: the shape of the result depends on them")
    if known().size != 1:
        return call(np.take, array, np.repeat(np.arange(array.shape[axis]), known()), axis)
    count = int(known().item())
    shape = array.shape
    wide = reshape(array.value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    spread = broadcast(wide, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return fresh(reshape(spread, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])))


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: Any = -1, prepend: Any = UNSET, append: Any = UNSET) -> Any:
    """As `np.diff`."""
    array = as_tracer(a)
    axis = one_axis(axis, array.ndim)
    parts = [_edge(array, item, axis) for item in (prepend, array, append) if item is not UNSET]
    if len(parts) > 1:
        array = concatenate(parts, axis)
    lead = (slice(None),) * axis
    for _ in range(n):
        step = np.not_equal if array.dtype == np.bool_ else np.subtract
        array = step(array[(*lead, slice(1, None))], array[(*lead, slice(None, -1))])
    return array


def _edge(array: TracerArray, item: Any, axis: int) -> TracerArray:
    edge = as_tracer(item)
    return edge if edge.ndim else call(np.broadcast_to, edge, (*array.shape[:axis], 1, *array.shape[axis + 1 :]))


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """As `np.ediff1d`."""
    array = call(np.ravel, as_tracer(ary))
    ends = [None if end is None else call(np.ravel, as_tracer(end)) for end in (to_begin, to_end)]
    for name, end in zip(("to_begin", "to_end"), ends, strict=True):
        if end is not None and not np.can_cast(end.dtype, array.dtype, "same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule")
    parts = [ends[0], np.subtract(array[1:], array[:-1]), ends[1]]
    return concatenate([as_tracer(part).astype(array.dtype) for part in parts if part is not None])


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """As `np.gradient`."""
    array = as_tracer(f)
    if array.dtype.kind == "b":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    axes = many_axes(axis, array.ndim)
    spacings = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    if edge_order != 1 or any(np.ndim(spacing) for spacing in spacings):
        raise TypeError("np.gradient is traced for edge_order=1 and scalar spacing only")
    results = [_gradient(array, d, spacing) for d, spacing in zip(axes, spacings, strict=True)]
    return results[0] if len(axes) == 1 else tuple(results)


def _gradient(array: TracerArray, axis: int, spacing: Any) -> TracerArray:
    def part(low: int | None, high: int | None) -> Any:
        return array[(*(slice(None),) * axis, slice(low, high))]

    inner = (part(2, None) - part(None, -2)) / (2.0 * spacing)
    first = (part(1, 2) - part(0, 1)) / spacing
    last = (part(-1, None) - part(-2, -1)) / spacing
    return concatenate((first, inner, last), axis)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """As `np.meshgrid`."""
    arrays = [as_tracer(x).reshape(-1) for x in xi]
    swap = indexing == "xy" and len(arrays) > 1
    order = [1, 0, *range(2, len(arrays))] if swap else list(range(len(arrays)))
    wide = [array.reshape([-1 if d == order[i] else 1 for d in range(len(arrays))]) for i, array in enumerate(arrays)]
    if sparse:
        return tuple(array.copy() if copy else array for array in wide)
    spread = call(np.broadcast_arrays, *wide)
    return tuple(array.copy() if copy else array for array in spread)


def _windows(value: Value, axis: int, size: int) -> Value:
    """All windows of `size` along an axis, the places in them as a last axis: rows of n, read in steps of n + 1."""
    before, extent, behind = value.type.shape[:axis], value.type.shape[axis], value.type.shape[axis + 1 :]
    kept = [d if d < axis else d + 1 for d in range(value.type.rank)]
    shape = (*before, size + 1, extent, *behind)
    rows = current().emit("broadcast_in_dim", [value], shape=shape, broadcast_dimensions=tuple(kept))
    flat = reshape(rows, (*before, (size + 1) * extent, *behind))
    steps = reshape(sliced(flat, axis, 0, size * (extent + 1)), (*before, size, extent + 1, *behind))
    permutation = (*kept, axis)
    windows = sliced(steps, axis + 1, 0, extent - size + 1)
    return current().emit("transpose", [windows], permutation=permutation)


@dataclass(frozen=True)
class _WindowStep(Step):
    """`sliding_window_view`: read-only, as in NumPy."""

    extents: tuple[tuple[int, int], ...]
    """(dimension, window size), one new dimension each."""
    writeable = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        dimensions, sizes = zip(*self.extents, strict=True)
        return np.lib.stride_tricks.sliding_window_view(array, sizes, dimensions)

    def read(self, parent: Value) -> Value:
        for dimension, size in self.extents:
            parent = _windows(parent, dimension, size)
        return parent

    def write(self, parent: Value, new: Value) -> Value:
        raise AssertionError(f"a window view is read-only ({parent}, {new})")


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """As `np.lib.stride_tricks.sliding_window_view`."""
    del subok
    array, sizes = as_tracer(x), static_shape(window_shape)
    if writeable:
        raise ValueError("sliding_window_view is traced as a read-only view")
    given: Any = range(array.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [one_axis(item, array.ndim) for item in given]
    if len(axes) != len(sizes):
        raise ValueError(f"Must provide matching length window_shape and axis; got {len(sizes)} and {len(axes)}")
    return view(array, _WindowStep(tuple(zip(axes, sizes, strict=True))))


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """As `np.apply_along_axis`, the calls unrolled."""
    moved = call(np.moveaxis, as_tracer(arr), axis, -1)
    lead = moved.shape[:-1]
    if math.prod(lead) > _MOST_CALLS:
        raise ValueError(f"np.apply_along_axis would unroll {math.prod(lead)} calls; call the function with axis=")
    rows = moved.reshape(-1, moved.shape[-1])
    results = [as_tracer(func1d(row, *args, **kwargs)) for row in rows]
    stacked = call(np.stack, results).reshape(lead + results[0].shape)
    inner = tuple(range(len(lead), stacked.ndim))
    return call(
        np.moveaxis,
        stacked,
        inner,
        tuple(range(one_axis(axis, len(lead) + 1), one_axis(axis, len(lead) + 1) + len(inner))),
    )


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """As `np.insert`."""
    array = as_tracer(arr)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    axis = one_axis(axis, array.ndim)
    at = operator.index(obj)
    at = at + array.shape[axis] if at < 0 else at
    new = value_of(values, array.dtype)
    if new.type.rank == array.ndim - 1:
        new = reshape(new, (*new.type.shape[:axis], 1, *new.type.shape[axis:]))
    shape = list(array.shape)
    shape[axis] = new.type.shape[axis] if new.type.rank == array.ndim else 1
    parts = [
        sliced(array.value, axis, 0, at),
        broadcast(new, tuple(shape)),
        sliced(array.value, axis, at, array.shape[axis]),
    ]
    return fresh(joined(parts, axis))


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """As `np.delete`."""
    array = as_tracer(arr)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    left = np.delete(np.arange(array.shape[axis]), obj)
    runs = np.split(left, np.flatnonzero(np.diff(left) != 1) + 1)
    if len(runs) > _MOST_RUNS or not left.size:
        return call(np.take, array, left, axis)
    axis = one_axis(axis, array.ndim)
    return fresh(joined([sliced(array.value, axis, int(run[0]), int(run[-1]) + 1) for run in runs], axis))


class Concatenator:
    """`np.r_` and `np.c_` in a traced function."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getitem__(self, key: Any) -> Any:
        items = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
        if not any(True for _ in tracers_in(items)):
            return call(np.array, self._original[key])
        if any(isinstance(item, str) or _has_complex_step(item) for item in items):
            raise TypeError("np.r_ and np.c_ are traced without axis strings and without complex steps")
        dtype = result_dtype(*(_range_of(item) for item in items))
        arrays = [as_tracer(_range_of(item)).astype(dtype) for item in items]
        if self._original is np.r_:
            return concatenate([call(np.atleast_1d, array) for array in arrays])
        return concatenate([array if array.ndim > 1 else array.reshape(-1, 1) for array in arrays], -1)


def _has_complex_step(item: Any) -> bool:
    return isinstance(item, slice) and isinstance(item.step, complex)


def _range_of(item: Any) -> Any:
    """A slice as the range it spells; anything else as it is."""
    if not isinstance(item, slice):
        return item
    return np.arange(item.start or 0, item.stop, 1 if item.step is None else item.step)
