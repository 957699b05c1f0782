"""Ops that reduce a neighbourhood and keep dimensions: cumulative and reduce_window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.combiners import COMBINERS, combiner_identity
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import numerics, require
from autofuse.ir.ops.joins import padded
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_PER_DIMENSION = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")


def window_extent(
    extent: int, window: int, stride: int, dilation: int, window_dilation: int, edge: Sequence[int]
) -> int:
    """The number of positions of a window on a padded, dilated dimension; 0 if it does not fit once."""
    return max(0, (padded_extent(extent, dilation, edge) - ((window - 1) * window_dilation + 1)) // stride + 1)


def padded_extent(extent: int, dilation: int, edge: Sequence[int]) -> int:
    """Of a dimension with holes between its elements and padding on both sides."""
    return ((extent - 1) * dilation + 1 if extent else 0) + sum(edge)


def windows_of(x: Array, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """A view of the last `len(window)` dimensions' windows: (..., positions, window). Every window must fit."""
    count = len(window)
    axes = tuple(range(x.ndim - count, x.ndim))
    spans = tuple((extent - 1) * dilation + 1 for extent, dilation in zip(window, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes) if count else x
    steps = (*(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))
    return view[(..., *steps)]


def _infer_cumulative(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.axis("cumulative", "dimension", attrs["dimension"], operands[0].rank)
    require.combiner_fits("cumulative", attrs["combiner"], operands[0])
    return (operands[0],)


def _cumulative(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    (x,), axis = operands, attrs["dimension"]
    wide = numerics.accumulator(x.dtype)
    source = np.flip(x, axis) if attrs["reverse"] else x
    reduced = COMBINERS[attrs["combiner"]].accumulate(source.astype(wide, copy=False), axis=axis, dtype=wide)
    reduced = reduced.astype(x.dtype, copy=False)
    return (np.flip(reduced, axis) if attrs["reverse"] else reduced,)


def _infer_window(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    (x,) = operands
    for name in _PER_DIMENSION:
        require.length("reduce_window", name, attrs[name], x.rank, "dimension of the operand")
    for name in _PER_DIMENSION[:-1]:
        require.at_least("reduce_window", name, attrs[name], 1)
    require.combiner_fits("reduce_window", attrs["combiner"], x)
    require_padding("reduce_window", x.shape, attrs["base_dilations"], attrs["padding"])
    sizes = zip(x.shape, *(attrs[name] for name in _PER_DIMENSION), strict=True)
    return (TensorType(tuple(window_extent(*size) for size in sizes), x.dtype),)


def require_padding(op: str, shape: Sequence[int], dilations: Sequence[int], padding: Sequence[Sequence[int]]) -> None:
    """Negative padding removes no more than there is."""
    for axis, (extent, dilation, edge) in enumerate(zip(shape, dilations, padding, strict=True)):
        if max(0, (extent - 1) * dilation + 1) + sum(edge) < 0:
            raise GraphError(
                f"{op}: attribute padding[{axis}] must not remove more than the extent {extent} "
                f"(dilated by {dilation}), got {tuple(edge)}"
            )


def _window(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    (x,), combiner = operands, attrs["combiner"]
    sizes = zip(x.shape, *(attrs[name] for name in _PER_DIMENSION), strict=True)
    shape = tuple(window_extent(*size) for size in sizes)
    if 0 in shape:
        return (np.empty(shape, x.dtype),)
    wide = x.astype(numerics.accumulator(x.dtype), copy=False)
    low, high = [edge[0] for edge in attrs["padding"]], [edge[1] for edge in attrs["padding"]]
    interior = [dilation - 1 for dilation in attrs["base_dilations"]]
    neutral = combiner_identity(combiner, dtypes.from_numpy(wide.dtype))
    base = padded(wide, neutral, low, high, interior)
    view = windows_of(base, attrs["window_dimensions"], attrs["window_strides"], attrs["window_dilations"])
    reduced = COMBINERS[combiner].reduce(view, axis=tuple(range(x.ndim, 2 * x.ndim)), dtype=wide.dtype)
    return (np.asarray(reduced).astype(x.dtype, copy=False),)


def _window_flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    return float(results[0].size * math.prod(attrs["window_dimensions"]))


def _window_scratch(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> int:
    """The padded operand; nothing where no window fits."""
    (x,) = operands
    extents = map(padded_extent, x.shape, attrs["base_dilations"], attrs["padding"])
    return math.prod(extents) * max(x.dtype.itemsize, dtypes.F32.itemsize) if results[0].size else 0


OPS = (
    OpDef(
        name="cumulative",
        doc="Running reduction along a dimension, each element included; from the end if reverse. f16 and bf16 "
        "accumulate in f32, each result rounded; minimum and maximum stay NaN after the first NaN.",
        role=Role.SCAN,
        infer=_infer_cumulative,
        evaluate=_cumulative,
        code=1,
        attrs={
            "dimension": AttrSpec("int", "the dimension that is walked"),
            "combiner": AttrSpec("str", "how two elements become one", ("add", "multiply", "maximum", "minimum")),
            "reverse": AttrSpec("bool", "walk from the last element to the first"),
        },
        arity=1,
    ),
    OpDef(
        name="reduce_window",
        doc="Reduces every position of a window. Padding and dilation holes hold the combiner's identity; negative "
        "padding removes elements. f16 and bf16 accumulate in f32 and round once.",
        role=Role.WINDOW,
        infer=_infer_window,
        evaluate=_window,
        code=1,
        attrs={
            "window_dimensions": AttrSpec("ints", "the window's extents"),
            "window_strides": AttrSpec("ints", "step from window to window"),
            "base_dilations": AttrSpec("ints", "step between neighbouring elements of x; holes in between"),
            "window_dilations": AttrSpec("ints", "step between neighbouring elements of a window"),
            "padding": AttrSpec("int_pairs", "elements added (before, after), per dimension; may be negative"),
            "combiner": AttrSpec("str", "how two elements become one", tuple(COMBINERS)),
        },
        arity=1,
        flops=_window_flops,
        scratch=_window_scratch,
    ),
)
