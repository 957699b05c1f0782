"""`convolution`: windows of one operand contracted with another, any layout, dilation and grouping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import NUMERICS, AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import numerics, require
from autofuse.ir.ops.joins import padded
from autofuse.ir.ops.windows import padded_extent, require_padding, window_extent, windows_of
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_OP = "convolution"
_PER_SPATIAL = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
_LAYOUTS = {
    "lhs": ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
    "rhs": ("kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"),
    "result": ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
}


def _layout(attrs: Attrs, name: str) -> tuple[int, ...]:
    """The dimensions of an array as (batch or output feature, feature, spatial...)."""
    first, second, spatial = _LAYOUTS[name]
    return (attrs[first], attrs[second], *attrs[spatial])


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    lhs, rhs = operands
    require.same_dtype(_OP, ("lhs", "rhs"), operands)
    if lhs.rank != rhs.rank or lhs.rank < 2:
        raise GraphError(f"{_OP}: lhs and rhs must have equal ranks of at least 2, got {lhs} and {rhs}")
    for name, names in _LAYOUTS.items():
        require.length(_OP, names[2], attrs[names[2]], lhs.rank - 2, "spatial dimension")
        require.axes(_OP, " + ".join(names), _layout(attrs, name), lhs.rank, name)
    for name in _PER_SPATIAL:
        require.length(_OP, name, attrs[name], lhs.rank - 2, "spatial dimension")
        if name != "padding":
            require.at_least(_OP, name, attrs[name], 1)
    batch, features, *spatial = (lhs.shape[d] for d in _layout(attrs, "lhs"))
    out_features, kernel_features, *window = (rhs.shape[d] for d in _layout(attrs, "rhs"))
    _check_groups(attrs, lhs, rhs, batch, features, out_features, kernel_features)
    require.at_least(_OP, "kernel_spatial_dimensions' extents", window, 1)
    require_padding(_OP, spatial, attrs["lhs_dilation"], attrs["padding"])
    canonical = (batch // attrs["batch_group_count"], out_features, *_positions(attrs, spatial, window))
    shape = [0] * lhs.rank
    for extent, dim in zip(canonical, _layout(attrs, "result"), strict=True):
        shape[dim] = extent
    return (TensorType(tuple(shape), lhs.dtype),)


def _check_groups(
    attrs: Attrs, lhs: TensorType, rhs: TensorType, batch: int, features: int, out_features: int, kernel_features: int
) -> None:
    feature_groups, batch_groups = attrs["feature_group_count"], attrs["batch_group_count"]
    require.at_least(_OP, "feature_group_count", (feature_groups,), 1)
    require.at_least(_OP, "batch_group_count", (batch_groups,), 1)
    if feature_groups > 1 and batch_groups > 1:
        raise GraphError(
            f"{_OP}: feature_group_count or batch_group_count must be 1, got {feature_groups} and {batch_groups}"
        )
    if features != kernel_features * feature_groups:
        raise GraphError(
            f"{_OP}: lhs ({lhs}) must have {kernel_features * feature_groups} input features, those of rhs ({rhs}) "
            f"times feature_group_count {feature_groups}; got {features}"
        )
    if out_features % (feature_groups * batch_groups) or batch % batch_groups:
        raise GraphError(
            f"{_OP}: group counts (feature {feature_groups}, batch {batch_groups}) must divide the output features "
            f"{out_features} of rhs ({rhs}) and the batch {batch} of lhs ({lhs})"
        )


def _positions(attrs: Attrs, spatial: Sequence[int], window: Sequence[int]) -> tuple[int, ...]:
    sizes = zip(
        spatial,
        window,
        attrs["window_strides"],
        attrs["lhs_dilation"],
        attrs["rhs_dilation"],
        attrs["padding"],
        strict=True,
    )
    return tuple(window_extent(*size) for size in sizes)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    lhs = numerics.widen(operands[0]).transpose(_layout(attrs, "lhs"))
    rhs = numerics.widen(operands[1]).transpose(_layout(attrs, "rhs"))
    result = _canonical(lhs, rhs, attrs).astype(operands[0].dtype, copy=False)
    return (result.transpose(np.argsort(_layout(attrs, "result"))),)


def _canonical(lhs: Array, rhs: Array, attrs: Attrs) -> Array:
    """Both operands and the result with batch or output features first, features second, spatial dimensions last."""
    batch_groups, feature_groups = attrs["batch_group_count"], attrs["feature_group_count"]
    groups = batch_groups * feature_groups
    batch, out_features = lhs.shape[0] // batch_groups, rhs.shape[0]
    window = rhs.shape[2:]
    positions = _positions(attrs, lhs.shape[2:], window)
    if 0 in positions:
        return np.zeros((batch, out_features, *positions), lhs.dtype)
    low = [0, 0, *(edge[0] for edge in attrs["padding"])]
    high = [0, 0, *(edge[1] for edge in attrs["padding"])]
    base = padded(lhs, 0, low, high, [0, 0, *(dilation - 1 for dilation in attrs["lhs_dilation"])])
    view = windows_of(base, window, attrs["window_strides"], attrs["rhs_dilation"])
    count = len(window)
    view = view.reshape(batch_groups, batch, feature_groups, rhs.shape[1], *positions, *window)
    order = (0, 2, 1, *range(4, 4 + count), 3, *range(4 + count, 4 + 2 * count))
    depth = math.prod(rhs.shape[1:])
    rows = batch * math.prod(positions)
    patches = view.transpose(order).reshape(groups, rows, depth)
    kernels = rhs.reshape(groups, out_features // groups, depth).transpose(0, 2, 1)
    product = np.matmul(patches, kernels).reshape(groups, batch, *positions, out_features // groups)
    back = (1, 0, product.ndim - 1, *range(2, 2 + count))
    return product.transpose(back).reshape(batch, out_features, *positions)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    rhs = operands[1]
    out_features = rhs.shape[attrs["kernel_output_feature_dimension"]]
    return 2.0 * results[0].size * (rhs.size // out_features if out_features else 0)


def _scratch(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> int:
    """The padded lhs, and the elements under the window at each position; nothing where no window fits."""
    lhs, rhs = operands
    batch, features, *spatial = (lhs.shape[d] for d in _layout(attrs, "lhs"))
    _, kernel_features, *window = (rhs.shape[d] for d in _layout(attrs, "rhs"))
    positions = math.prod(results[0].shape[d] for d in attrs["output_spatial_dimensions"])
    padded_spatial = math.prod(map(padded_extent, spatial, attrs["lhs_dilation"], attrs["padding"]))
    patches = batch * positions * attrs["feature_group_count"] * kernel_features * math.prod(window)
    itemsize = max(lhs.dtype.itemsize, dtypes.F32.itemsize)
    return (batch * features * padded_spatial + patches) * itemsize if positions else 0


OPS = (
    OpDef(
        name=_OP,
        doc="Cross-correlation: for each window position and output feature the sum of products with the kernel, which "
        "is not reversed. f16 and bf16 accumulate in f32 and round once; integers wrap; negative padding removes.",
        role=Role.CONVOLUTION,
        infer=_infer,
        evaluate=_evaluate,
        code=100,
        attrs={
            "window_strides": AttrSpec("ints", "step from window to window, per spatial dimension"),
            "padding": AttrSpec("int_pairs", "zeros added (before, after), per spatial dimension; may be negative"),
            "lhs_dilation": AttrSpec("ints", "step between neighbouring elements of lhs; zeros in between"),
            "rhs_dilation": AttrSpec("ints", "step between neighbouring elements of a window"),
            "input_batch_dimension": AttrSpec("int", "batch dimension of lhs"),
            "input_feature_dimension": AttrSpec("int", "feature dimension of lhs"),
            "input_spatial_dimensions": AttrSpec("ints", "spatial dimensions of lhs, in window order"),
            "kernel_input_feature_dimension": AttrSpec("int", "input feature dimension of rhs"),
            "kernel_output_feature_dimension": AttrSpec("int", "output feature dimension of rhs"),
            "kernel_spatial_dimensions": AttrSpec("ints", "spatial dimensions of rhs, in window order"),
            "output_batch_dimension": AttrSpec("int", "batch dimension of the result"),
            "output_feature_dimension": AttrSpec("int", "feature dimension of the result"),
            "output_spatial_dimensions": AttrSpec("ints", "spatial dimensions of the result, in window order"),
            "feature_group_count": AttrSpec("int", "groups of features that do not mix"),
            "batch_group_count": AttrSpec("int", "groups of the batch that give different output features"),
            **NUMERICS,
        },
        arity=2,
        flops=_flops,
        scratch=_scratch,
    ),
)
