"""Dot clean-up: transposes and repeated batches go into the dimension numbers of `dot_general`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from autofuse.ir.graph import Attrs, Graph, Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.axismaps import ascending
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Expression, Rules, call, rewrite
from autofuse.passes.slicerules import AxisSlice, sliced, whole

_SIDES = ("lhs", "rhs")
_ROLES = ("batching", "contracting")
_MOST_PARTS = 16
"""Most parts of a concatenation that is taken apart: more are short products, which cost more."""


@dataclass(frozen=True, slots=True)
class FoldDots:
    """Makes `dot_general` read its operands where they lie.

    A transposed operand is read untransposed if its free dimensions keep their order, so that the result keeps its
    own. A dot that nobody else reads and whose result is transposed so that rhs's free dimensions come before those of
    lhs swaps its operands. An rhs repeated along batching dimensions is read once, if the result's order allows these
    to be free dimensions of lhs: a batch of products becomes one. Products with neighbouring rows of one matrix that
    are added up become one. Every product and every sum stays, though not the order in which sums are added.
    """

    name: ClassVar[str] = "dot-folding"
    joins_depths: bool = True
    """Whether products that are added up become one."""

    def apply(self, graph: Graph) -> Graph:
        """The graph with folded dots; the same object if nothing applied."""
        return rewrite(graph, lambda: _RULES if self.joins_depths else _RULES_APART)


@dataclass(frozen=True, slots=True)
class SplitDepths:
    """Writes a product whose left operand is concatenated along the depth as a sum of products, one for each part.

    So no row of the concatenation is put together, and each part is a product of its own. It is what joining depths
    undoes: the two do not belong into one list of passes. Every product stays, the order of the sum changes; 16-bit
    floats stay, since each product would round.
    """

    name: ClassVar[str] = "depths-apart"

    def apply(self, graph: Graph) -> Graph:
        """The graph with sums of products; the same object if nothing applied."""
        return rewrite(graph, lambda: {"dot_general": (split_depths,)})


def _key(side: str, role: str) -> str:
    return f"{side}_{role}_dimensions"


def free_dimensions(attrs: Attrs, side: str, rank: int) -> list[int]:
    """The dimensions of `lhs` or `rhs` that are neither batching nor contracting: those of the result, in order."""
    used = {d for role in _ROLES for d in attrs[_key(side, role)]}
    return [d for d in range(rank) if d not in used]


def has_one_column_axis(node: Node) -> bool:
    """Whether the last axis of a product, and it alone, comes from the right operand; not for an empty product."""
    return len(free_dimensions(node.attrs, "rhs", node.inputs[1].type.rank)) == 1 and node.output.type.size > 0


def read_untransposed(node: Node, facts: Facts) -> Call | None:
    """dot(transpose(x), y) = dot(x, y) with other dimension numbers."""
    for number, side in enumerate(_SIDES):
        inner = facts.producer(node.inputs[number], "transpose")
        if inner is None:
            continue
        permutation: Sequence[int] = inner.attrs["permutation"]
        if not ascending([permutation[d] for d in free_dimensions(node.attrs, side, len(permutation))]):
            continue
        operands = [inner.inputs[0] if n == number else value for n, value in enumerate(node.inputs)]
        renamed = {_key(side, role): tuple(permutation[d] for d in node.attrs[_key(side, role)]) for role in _ROLES}
        return call("dot_general", *operands, **{**node.attrs, **renamed})
    return None


def canonical_order(node: Node, facts: Facts) -> Call | None:
    """Pairs of contracting dimensions in the order of lhs, so that equal dots look alike."""
    left, right = node.attrs["lhs_contracting_dimensions"], node.attrs["rhs_contracting_dimensions"]
    pairs = sorted(zip(left, right, strict=True))
    if [a for a, _ in pairs] == list(left):
        return None
    sorted_dims = {
        "lhs_contracting_dimensions": tuple(a for a, _ in pairs),
        "rhs_contracting_dimensions": tuple(b for _, b in pairs),
    }
    return call("dot_general", *node.inputs, **{**node.attrs, **sorted_dims})


def read_repeated_once(node: Node, facts: Facts) -> Call | None:
    """dot(x, broadcast(y)) with y repeated along batching dimensions: these become free dimensions of x."""
    inner = facts.producer(node.inputs[1], "broadcast_in_dim")
    if inner is None:
        return None
    (y,), dims = inner.inputs, inner.attrs["broadcast_dimensions"]
    axis_of = {dim: axis for axis, dim in enumerate(dims)}
    given = {role: node.attrs[_key("rhs", role)] for role in _ROLES}
    full = [d for d in range(node.inputs[1].type.rank) if d not in given["batching"]]
    if any(d not in axis_of or y.type.shape[axis_of[d]] != node.inputs[1].type.shape[d] for d in full):
        return None
    pairs = list(zip(node.attrs["lhs_batching_dimensions"], given["batching"], strict=True))
    kept = [(a, b) for a, b in pairs if b in axis_of and y.type.shape[axis_of[b]] == node.inputs[1].type.shape[b]]
    if len(kept) == len(pairs) or any(b in axis_of for a, b in pairs if (a, b) not in kept):
        return None
    attrs: Mapping[str, Any] = {
        **node.attrs,
        "lhs_batching_dimensions": tuple(a for a, _ in kept),
        "rhs_batching_dimensions": tuple(axis_of[b] for _, b in kept),
        "rhs_contracting_dimensions": tuple(axis_of[d] for d in given["contracting"]),
    }
    if not ascending([axis_of[d] for d in free_dimensions(node.attrs, "rhs", node.inputs[1].type.rank)]):
        return None
    before = [a for a, _ in pairs] + free_dimensions(node.attrs, "lhs", node.inputs[0].type.rank)
    after = [a for a, _ in kept] + free_dimensions(attrs, "lhs", node.inputs[0].type.rank)
    return call("dot_general", node.inputs[0], y, **attrs) if before == after else None


def transpose_dot(node: Node, facts: Facts) -> Call | None:
    """transpose(dot(x, y)) = transpose(dot(y, x)) where columns come before rows and nobody else reads the dot.

    So a row of the result is a row of the left operand, and its columns are neighbours. The order of batching
    dimensions, and that of rows and columns among themselves, is left to a transpose, if it is another one.
    """
    dot = facts.producer(node.inputs[0], "dot_general")
    if dot is None or not facts.read_once(dot.output):
        return None
    batch = len(dot.attrs["lhs_batching_dimensions"])
    rows = len(free_dimensions(dot.attrs, "lhs", dot.inputs[0].type.rank))
    rank = node.output.type.rank
    swapped = (*range(batch), *range(batch + rows, rank), *range(batch, batch + rows))
    permutation: tuple[int, ...] = node.attrs["permutation"]
    if permutation != swapped and not _puts_first(permutation, dot.output.type.shape, batch, rows):
        return None
    attrs = {_key(side, role): dot.attrs[_key(other, role)] for side, other in zip(_SIDES, _SIDES[::-1], strict=True)
             for role in _ROLES}  # fmt: skip
    product = call("dot_general", *reversed(dot.inputs), **attrs)
    if permutation == swapped:
        return product
    return call("transpose", product, permutation=tuple(swapped.index(d) for d in permutation))


def _puts_first(permutation: Sequence[int], shape: Sequence[int], batch: int, rows: int) -> bool:
    """Whether a permutation puts all columns of a product before all of its rows. Extents of one do not count."""
    places = [(n, d) for n, d in enumerate(permutation) if d >= batch and shape[d] != 1]
    of_rows = [n for n, d in places if d < batch + rows]
    of_columns = [n for n, d in places if d >= batch + rows]
    return bool(of_rows and of_columns) and max(of_columns) < min(of_rows)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Consecutive rows of an array seen as a matrix with rows of some length."""

    base: Value
    first: int
    count: int


def _rows_of(value: Value, facts: Facts) -> _Rows | None:
    """Which rows of which array a matrix is, through slices and reshapes; None if it is no such thing."""
    length, base, start = value.type.shape[1], value, 0
    if value.type.size == 0:
        return None
    while (node := facts.producer(base, "reshape", "slice")) is not None:
        if node.op == "slice":
            begins, ends, whole = node.attrs["start_indices"], node.attrs["limit_indices"], node.inputs[0].type.shape
            extents = [end - begin for begin, end in zip(begins, ends, strict=True)]
            outer = next((n for n, extent in enumerate(extents) if extent != 1), len(extents))
            if any(step != 1 for step in node.attrs["strides"]) or extents[outer + 1 :] != list(whole[outer + 1 :]):
                return None
            start += int(np.ravel_multi_index(begins, whole))
        base = node.inputs[0]
    if start % length or base.type.size % length:
        return None
    return _Rows(base, start // length, value.type.shape[0])


def _plain(value: Value, facts: Facts) -> Node | None:
    """The product `x @ w` of rows and a matrix that makes `value` and that nobody else reads."""
    dot = facts.producer(value, "dot_general")
    if dot is None or not facts.read_once(value) or dot.inputs[1].type.rank != 2:
        return None
    rank = dot.inputs[0].type.rank
    contracting = dot.attrs["lhs_contracting_dimensions"], dot.attrs["rhs_contracting_dimensions"]
    return dot if contracting == ((rank - 1,), (0,)) and rank > 1 else None


def join_depths(node: Node, facts: Facts) -> Call | None:
    """x @ w[:k] + y @ w[k:] = concatenate([x, y]) @ w: a convolution written as shifted products is one product.

    Only where the two matrices are neighbouring rows of one array, so that nothing is copied to join them.
    """
    if not _adds_exactly(node):
        return None
    found = [_plain(value, facts) for value in node.inputs]
    for first, second in (found, found[::-1]):
        if first is None or second is None or first.inputs[0].type.rank != second.inputs[0].type.rank:
            return None
        upper, lower = _rows_of(first.inputs[1], facts), _rows_of(second.inputs[1], facts)
        if upper is None or lower is None or upper.base != lower.base or upper.first + upper.count != lower.first:
            continue
        length = first.inputs[1].type.shape[1]
        matrix = call("reshape", upper.base, shape=(upper.base.type.size // length, length))
        ends = upper.first, lower.first + lower.count
        rows = call("slice", matrix, start_indices=(ends[0], 0), limit_indices=(ends[1], length), strides=(1, 1))
        axis = first.inputs[0].type.rank - 1
        parts = [part for dot in (first, second) for part in _parts(dot.inputs[0], axis, facts)]
        return call("dot_general", call("concatenate", *parts, dimension=axis), rows, **first.attrs)
    return None


def _parts(value: Value, axis: int, facts: Facts) -> Sequence[Value]:
    """The operands of a concatenation that nobody else reads; else the value itself."""
    node = facts.producer(value, "concatenate")
    joined = node is not None and node.attrs["dimension"] == axis and facts.read_once(value)
    return node.inputs if node is not None and joined else (value,)


def split_depths(node: Node, facts: Facts) -> Expression | None:
    """concatenate([x, y]) @ w = x @ w[:k] + y @ w[k:]."""
    inner = facts.producer(node.inputs[0], "concatenate")
    if inner is None or node.attrs["lhs_contracting_dimensions"] != (inner.attrs["dimension"],):
        return None
    if not _adds_exactly(node) or len(inner.inputs) > _MOST_PARTS or node.inputs[0].type.size == 0:
        return None
    matrix, (axis,) = node.inputs[1], node.attrs["rhs_contracting_dimensions"]
    total: Expression | None = None
    begin = 0
    for part in inner.inputs:
        slices = whole(matrix.type.shape)
        slices[axis] = AxisSlice(begin, part.type.shape[inner.attrs["dimension"]])
        product = call("dot_general", part, sliced(matrix, slices), **node.attrs)
        total = product if total is None else call("add", total, product)
        begin += slices[axis].count
    return total


def _adds_exactly(node: Node) -> bool:
    """Whether partial sums of a product or a sum of products round no more than the whole does: not in 16 bits."""
    dtype = node.output.type.dtype
    return dtype.kind != "bool" and not (dtype.is_float and dtype.bits == 16)


_RULES_APART: Rules = {
    "dot_general": (read_untransposed, canonical_order, read_repeated_once),
    "transpose": (transpose_dot,),
}
_RULES: Rules = {"add": (join_depths,), **_RULES_APART}
