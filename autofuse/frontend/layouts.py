"""Memory order without memory: arrays of which only shape, dtype and strides count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autofuse.ir.types import TensorType


def without_data(type_: TensorType) -> NDArray[Any]:
    """A C-contiguous array of this type over one element of memory. Its elements must not be touched."""
    strides: list[int] = []
    stride = type_.dtype.itemsize
    for extent in reversed(type_.shape):
        strides.append(stride)
        stride *= max(extent, 1)
    return as_strided(np.empty(1, type_.dtype.numpy), type_.shape, tuple(reversed(strides)))


def fortran(type_: TensorType) -> NDArray[Any]:
    """The same in Fortran order."""
    return without_data(TensorType(type_.shape[::-1], type_.dtype)).T


def layout_like(layouts: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The layout NumPy gives to a new array computed elementwise from these; None for C-contiguous."""
    if len(shape) < 2 or all(layout.flags.c_contiguous or layout.ndim < 2 for layout in layouts) or 0 in shape:
        return None
    flags: Any = [["readonly"]] * len(layouts) + [["writeonly", "allocate"]]
    iterator: Any = np.nditer([*layouts, None], flags=["refs_ok"], op_flags=flags, op_dtypes=None, order="K")
    made: NDArray[Any] = iterator.operands[-1]
    return as_strided(np.empty(1, made.dtype), made.shape, made.strides)


def interleaved(layout: NDArray[Any], count: int) -> NDArray[Any]:
    """The layout of one of `count` arrays whose elements lie side by side, each as `layout` says."""
    return as_strided(np.empty(1, layout.dtype), layout.shape, tuple(count * stride for stride in layout.strides))


def taken(layout: NDArray[Any], index: Sequence[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The layout of `array[index]`, of this shape, for an index with integer arrays, given as their layouts.

    NumPy puts the dimensions of the arrays outside of those that are kept, whatever their place. It is asked, on arrays
    of at most two elements a dimension whose strides stand in the same order.
    """
    if not depends_on_order(shape):
        return without_shape(layout.dtype, shape, range(len(shape))[::-1])
    small = _small(layout)[tuple(_small(item) if isinstance(item, np.ndarray) else item for item in index)]
    inner_first = sorted(range(len(shape)), key=lambda d: (abs(small.strides[d]), -d))
    return without_shape(layout.dtype, shape, inner_first)


def without_shape(dtype: np.dtype[Any], shape: tuple[int, ...], inner_first: Sequence[int]) -> NDArray[Any]:
    """A dense layout whose dimensions lie in this order, the innermost first."""
    strides, stride = [0] * len(shape), dtype.itemsize
    for d in inner_first:
        strides[d] = stride
        stride *= max(shape[d], 1)
    return as_strided(np.empty(1, dtype), shape, tuple(strides))


def _small(layout: NDArray[Any]) -> NDArray[Any]:
    """Zeros of at most two elements a dimension, whose strides are ordered and signed as those of `layout`."""
    shape = tuple(min(extent, 2) for extent in layout.shape)
    strides, stride, first = [0] * layout.ndim, layout.itemsize, 0
    for d in sorted(range(layout.ndim), key=lambda d: (abs(layout.strides[d]), -d)):
        if layout.strides[d]:
            strides[d] = stride if layout.strides[d] > 0 else -stride
            first += max(-strides[d], 0) * (shape[d] - 1)
            stride *= 2
    return np.ndarray(shape, layout.dtype, bytes(max(stride, 1)), first, tuple(strides))


def layout_of(array: NDArray[Any]) -> NDArray[Any]:
    """The layout of an array that exists."""
    return as_strided(np.empty(1, array.dtype), array.shape, array.strides)


def depends_on_order(shape: tuple[int, ...]) -> bool:
    """Whether arrays of this shape have more than one memory order: two extents other than 1, none of them 0."""
    return 0 not in shape and sum(extent != 1 for extent in shape) > 1
