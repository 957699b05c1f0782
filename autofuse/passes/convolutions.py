"""Convolutions in groups or of few results, and others by choice, in operations that kernels are made of.

A group reads some input features and makes some output features. Each element under the window is a strided slice of
the padded operand, and with these slices the groups are

    few features     a sum of products, element by element: depthwise convolutions
    more             products of matrices, one for each group; the slices are joined along the depth

Groups of the batch are groups of features of an operand that has those beside each other.

A convolution that makes a few features of many, as one that ends in a picture, would pack many patches for a product of
a few columns. Its operand is multiplied with all of the window instead, and shifted results are added up.
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
"""Input features of a group up to which its products are added one by one; output features that are few."""
_MANY = 16
"""Input features of which a few output features are made by shifted results."""
_MOST_SHIFTS = 49
_LEAST_PRODUCTS = 1 << 18
"""Multiply-adds below which a second kernel costs more than patches."""


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
class ShiftResults:
    """Writes convolutions of many features into at most 4 as sums of shifted results of one product.

    Every product stays, the order of the sum changes; 16-bit floats are added in f32 and rounded once. Strided ones
    and those of dilated operands stay as they are: most of their product's results would not be read.
    """

    name: ClassVar[str] = "convolution-shifts"

    def apply(self, graph: Graph) -> Graph:
        """The graph without such convolutions; the same object if it has none."""
        return rewrite(graph, lambda: {"convolution": (shift_results,)}) if _has_groups(graph, 1) else graph


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


def shift_results(node: Node, facts: Facts) -> Expression | None:
    """A convolution into few features by what each element under the window adds."""
    del facts
    attrs, kernel = node.attrs, node.inputs[1].type
    made = kernel.shape[attrs["kernel_output_feature_dimension"]]
    steps = (*attrs["window_strides"], *attrs["lhs_dilation"])
    if _groups(attrs) != 1 or made > _FEW or kernel.size * node.output.type.size < _LEAST_PRODUCTS * max(made, 1):
        return None
    parts = _parts(node) if all(step == 1 for step in steps) else None
    if parts is None or parts.features < _MANY or not 1 < math.prod(parts.window) <= _MOST_SHIFTS:
        return None
    return parts.laid_out(parts.shifted())


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

    def shifted(self) -> Expression:
        """The operand times all of the window, what belongs to a result added one by one."""
        is_half = self.dtype.is_float and self.dtype.bits == 16
        held = dtypes.F32 if is_half else self.dtype
        taps = math.prod(self.window)
        kernel = call("transpose", _reshaped(self._kernel(), (taps, self.features, self.made)), permutation=(1, 0, 2))
        product = call(
            "dot_general",
            _converted(self.padded, held, is_half),
            _converted(_reshaped(kernel, (self.features, taps * self.made)), held, is_half),
            lhs_batching_dimensions=(),
            rhs_batching_dimensions=(),
            lhs_contracting_dimensions=(len(self.outer),),
            rhs_contracting_dimensions=(0,),
        )
        total: Expression | None = None
        for number, (first, last) in enumerate(self._spans()):
            columns = (number * self.made, (number + 1) * self.made)
            term = _sliced(product, (0, *first, columns[0]), (self.batch, *last, columns[1]))
            total = term if total is None else call("add", total, term)
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
        strides, features = self.attrs["window_strides"], self.groups * self.features
        found: list[Expression] = []
        for first, last in self._spans():
            tap = _sliced(self.padded, (0, *first, 0), (self.batch, *last, features), (1, *strides, 1))
            found.append(_reshaped(tap, (*self.outer, self.groups, self.features)))
        return found

    def _spans(self) -> list[tuple[list[int], list[int]]]:
        """For each element of the window the first position of the padded operand that it meets, and the end."""
        strides, dilations = self.attrs["window_strides"], self.attrs["rhs_dilation"]
        found: list[tuple[list[int], list[int]]] = []
        for place in itertools.product(*map(range, self.window)):
            first = [step * dilation for step, dilation in zip(place, dilations, strict=True)]
            sizes = zip(first, self.positions, strides, strict=True)
            found.append((first, [begin + (count - 1) * stride + 1 for begin, count, stride in sizes]))
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
