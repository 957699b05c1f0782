"""Convolutions in groups, and others by choice, in operations that kernels are made of.

A group reads some input features and makes some output features. Each element under the window is a strided slice of
the padded operand, and with these slices the groups are

    few features     a sum of products, element by element: depthwise convolutions
    more             products of matrices, one for each group; the slices are joined along the depth

Groups of the batch are groups of features of an operand that has those beside each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Attrs, Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Expression, call, rewrite

_MOST_TAPS = 128
"""Elements under a window at most, and products of an element: more are a call."""
_FEW = 4
"""Input features of a group up to which its products are added one by one."""


@dataclass(frozen=True, slots=True)
class SplitGroups:
    """Writes convolutions in groups as sums of products or as products of matrices.

    Every product stays, the order of the sum changes; 16-bit floats are added in f32 and rounded once. Convolutions
    with windows of more than 128 elements stay as they are.
    """

    name: ClassVar[str] = "convolution-groups"

    def apply(self, graph: Graph) -> Graph:
        """The graph without such convolutions; the same object if it has none."""
        return rewrite(graph, lambda: {"convolution": (split_groups,)}) if _has_groups(graph) else graph


@dataclass(frozen=True, slots=True)
class MultiplyPatches:
    """Writes convolutions without groups as products of matrices whose rows are patches, channels last.

    So a layout of its own, with packed rows, stands beside the one that the program has. What is elementwise between
    two of them is computed in that layout, too. Every product stays, the order of the sum changes.
    """

    name: ClassVar[str] = "convolution-patches"

    def apply(self, graph: Graph) -> Graph:
        """The graph with products; the same object if nothing applied."""
        return rewrite(graph, lambda: {"convolution": (multiply_patches,)}) if _has_groups(graph, 1) else graph


def _has_groups(graph: Graph, least: int = 2) -> bool:
    return any(_groups(node.attrs) >= least for node in graph.nodes if role_of(node) is Role.CONVOLUTION) or any(
        _has_groups(region, least) for node in graph.nodes for region in node.regions
    )


def _groups(attrs: Attrs) -> int:
    return attrs["feature_group_count"] * attrs["batch_group_count"]


def split_groups(node: Node, facts: Facts) -> Expression | None:
    """A convolution in groups by what each group does."""
    del facts
    parts = _parts(node) if _groups(node.attrs) > 1 else None
    if parts is None:
        return None
    is_summed = parts.features <= _FEW and math.prod(parts.window) * parts.features <= _MOST_TAPS
    return parts.laid_out(parts.summed() if is_summed else parts.multiplied())


def multiply_patches(node: Node, facts: Facts) -> Expression | None:
    """A convolution without groups as one product."""
    del facts
    parts = _parts(node) if _groups(node.attrs) == 1 else None
    return None if parts is None else parts.laid_out(parts.multiplied())


def _parts(node: Node) -> _Parts | None:
    """A convolution as slices; None for one of nothing, and for too many slices."""
    if 0 in (*node.output.type.shape, *node.inputs[0].type.shape) or node.output.type.dtype.kind == "bool":
        return None
    parts = _Parts(node)
    return parts if math.prod(parts.window) <= _MOST_TAPS else None


class _Parts:
    """A convolution as slices of its operand, and its kernel as matrices.

    Arrays have the batch first, the spatial dimensions next, and features last, by groups.
    """

    def __init__(self, node: Node) -> None:
        self.attrs, (self.lhs, self.rhs) = node.attrs, node.inputs
        self.dtype: DType = node.output.type.dtype
        self.groups = _groups(node.attrs)
        shape = self.rhs.type.shape
        self.window = tuple(shape[d] for d in node.attrs["kernel_spatial_dimensions"])
        self.features = shape[node.attrs["kernel_input_feature_dimension"]]
        """Input features of a group."""
        self.made = shape[node.attrs["kernel_output_feature_dimension"]] // self.groups
        """Output features of a group."""
        out = node.output.type.shape
        self.positions = tuple(out[d] for d in node.attrs["output_spatial_dimensions"])
        self.batch = out[node.attrs["output_batch_dimension"]]
        self.outer = (self.batch, *self.positions)
        self.padded = self._padded(self._operand(self.lhs))

    def laid_out(self, result: Expression) -> Expression:
        """A result `[batch, positions, groups, features]` in the layout of the convolution's."""
        attrs, rank = self.attrs, len(self.outer) + 1
        spatial = attrs["output_spatial_dimensions"]
        order = (attrs["output_batch_dimension"], *spatial, attrs["output_feature_dimension"])
        flat = _reshaped(result, (*self.outer, self.groups * self.made))
        return call("transpose", flat, permutation=tuple(order.index(d) for d in range(rank)))

    def summed(self) -> Expression:
        """Products added one by one."""
        is_half = self.dtype.is_float and self.dtype.bits == 16
        held = dtypes.F32 if is_half else self.dtype
        shape = (*self.outer, self.groups, self.made)
        kernel = _converted(self._kernel(), held, is_half)
        total: Expression | None = None
        for number, tap in enumerate(self._taps()):
            for feature in range(self.features):
                at = (number * self.features + feature, 0, 0)
                row = _sliced(kernel, at, (at[0] + 1, self.groups, self.made))
                factor = call(
                    "broadcast_in_dim",
                    _reshaped(row, (self.groups, self.made)),
                    shape=shape,
                    broadcast_dimensions=(len(shape) - 2, len(shape) - 1),
                )
                product = call("multiply", self._spread(_converted(tap, held, is_half), feature, shape), factor)
                total = product if total is None else call("add", total, product)
        assert total is not None
        return _converted(total, self.dtype, is_half)

    def multiplied(self) -> Expression:
        """A product of matrices for each group; of one group without the dimension of groups."""
        rank = len(self.outer)
        taps = list(self._taps())
        joined = call("concatenate", *taps, dimension=rank + 1) if len(taps) > 1 else taps[0]
        if self.groups == 1:
            depth = math.prod(self.window) * self.features
            return call(
                "dot_general",
                _reshaped(joined, (*self.outer, depth)),
                _reshaped(self._kernel(), (depth, self.made)),
                lhs_batching_dimensions=(),
                rhs_batching_dimensions=(),
                lhs_contracting_dimensions=(rank,),
                rhs_contracting_dimensions=(0,),
            )
        product = call(
            "dot_general",
            joined,
            self._kernel(),
            lhs_batching_dimensions=(rank,),
            rhs_batching_dimensions=(1,),
            lhs_contracting_dimensions=(rank + 1,),
            rhs_contracting_dimensions=(0,),
        )
        return call("transpose", product, permutation=(*range(1, rank + 1), 0, rank + 1))

    # ---- operands ------------------------------------------------------------------------------------------------

    def _operand(self, lhs: Value) -> Expression:
        """`[batch, spatial, features]`, groups of the batch among the features."""
        attrs, shape = self.attrs, lhs.type.shape
        order = (attrs["input_batch_dimension"], *attrs["input_spatial_dimensions"], attrs["input_feature_dimension"])
        found, groups = call("transpose", lhs, permutation=order), attrs["batch_group_count"]
        if groups == 1:
            return found
        batch, *spatial, features = (shape[d] for d in order)
        apart = _reshaped(found, (groups, batch // groups, *spatial, features))
        beside = call("transpose", apart, permutation=(*range(1, len(shape)), 0, len(shape)))
        return _reshaped(beside, (batch // groups, *spatial, groups * features))

    def _padded(self, operand: Expression) -> Expression:
        low, high = zip(*self.attrs["padding"], strict=True) if self.window else ((), ())
        zero = call("constant", value=np.zeros((), self.dtype.numpy))
        return call(
            "pad",
            operand,
            zero,
            edge_padding_low=(0, *low, 0),
            edge_padding_high=(0, *high, 0),
            interior_padding=(0, *(dilation - 1 for dilation in self.attrs["lhs_dilation"]), 0),
        )

    def _kernel(self) -> Expression:
        """`[taps and features, groups, output features]`."""
        attrs = self.attrs
        order = (
            *attrs["kernel_spatial_dimensions"],
            attrs["kernel_input_feature_dimension"],
            attrs["kernel_output_feature_dimension"],
        )
        depth = math.prod(self.window) * self.features
        return _reshaped(call("transpose", self.rhs, permutation=order), (depth, self.groups, self.made))

    def _taps(self) -> list[Expression]:
        """For each element of the window what it meets: `[batch, positions, groups, features]`."""
        strides, dilations = self.attrs["window_strides"], self.attrs["rhs_dilation"]
        features = self.groups * self.features
        found: list[Expression] = []
        for place in itertools.product(*map(range, self.window)):
            first = [step * dilation for step, dilation in zip(place, dilations, strict=True)]
            sizes = zip(first, self.positions, strides, strict=True)
            last = [begin + (count - 1) * stride + 1 for begin, count, stride in sizes]
            tap = _sliced(self.padded, (0, *first, 0), (self.batch, *last, features), (1, *strides, 1))
            found.append(_reshaped(tap, (*self.outer, self.groups, self.features)))
        return found

    def _spread(self, tap: Expression, feature: int, shape: tuple[int, ...]) -> Expression:
        """One input feature of each group, for all output features of the group."""
        start = (*(0 for _ in self.outer), 0, feature)
        alone = _sliced(tap, start, (*self.outer, self.groups, feature + 1))
        rank = len(self.outer) + 1
        dense = _reshaped(alone, (*self.outer, self.groups))
        return call("broadcast_in_dim", dense, shape=shape, broadcast_dimensions=tuple(range(rank)))


def _reshaped(value: Expression, shape: Sequence[int]) -> Call:
    return call("reshape", value, shape=tuple(shape))


def _sliced(value: Expression, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] = ()) -> Call:
    attrs: dict[str, Any] = {"start_indices": tuple(start), "limit_indices": tuple(limit)}
    return call("slice", value, **attrs, strides=tuple(strides) or (1,) * len(start))


def _converted(value: Expression, dtype: DType, wanted: bool) -> Expression:
    return call("convert", value, dtype=dtype) if wanted else value
