"""Products whose columns are only read in pieces, as products of the pieces."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.productrules import free_dimensions, has_one_column_axis
from autofuse.passes.rewriting import Call, Rules, call, rewrite
from autofuse.passes.slicerules import sliced, slices_of, whole

_Columns = tuple[int, int]
"""First column, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """Slices the matrix of a product instead of the result, where that is only read in slices of its columns.

    The slices do not overlap. Elementwise work between the product and the slices is sliced as well, with all its
    operands. So the gates of a recurrent cell, slices of one sum of products, become sums of products of equal shape,
    and what is done with them goes column by column. Exact: the same sums, in the same order.
    """

    name: ClassVar[str] = "split-columns"

    def apply(self, graph: Graph) -> Graph:
        """The graph with more and narrower products; the same object if nothing applied."""
        values = _only_read_in_pieces(graph)
        return rewrite(graph, lambda: _rules(values)) if values else graph


def _rules(values: Collection[Value]) -> Rules:
    def sliced_before(node: Node, facts: Facts) -> Call | None:
        maker = facts.producer(node.inputs[0])
        return None if maker is None or node.inputs[0] not in values else _slice_before(maker, node)

    return {"slice": (sliced_before,)}


def _slice_before(maker: Node, node: Node) -> Call:
    """(x @ w)[:, a:b] = x @ w[:, a:b]; f(x, y)[:, a:b] = f(x[:, a:b], y[:, a:b])."""
    slices = slices_of(node)
    if maker.op != "dot_general":
        return call(maker.op, *(sliced(operand, slices) for operand in maker.inputs), **maker.attrs)
    left, right = maker.inputs
    (axis,) = free_dimensions(maker.attrs, "rhs", right.type.rank)
    columns = whole(right.type.shape)
    columns[axis] = slices[-1]
    return call("dot_general", left, sliced(right, columns), **maker.attrs)


def _only_read_in_pieces(graph: Graph) -> frozenset[Value]:
    """Products, and elementwise results that depend on them or are combined with them, that only slices read."""
    pieces: dict[Value, frozenset[_Columns]] = {}
    for node in reversed(graph.nodes):
        found = _pieces_of(node, graph, pieces)
        if found:
            pieces[node.output] = found
    wanted: set[Value] = set()
    for node in graph.nodes:
        is_sliced = len(node.outputs) == 1 and node.output in pieces
        if is_sliced and (node.op == "dot_general" or any(value in wanted for value in node.inputs)):
            wanted.add(node.output)
    todo = list(wanted)
    while todo:
        maker = graph.producers[todo.pop()]
        more = [] if maker.op == "dot_general" else [v for v in maker.inputs if v in pieces and v not in wanted]
        wanted.update(more)
        todo += more
    return frozenset(wanted)


def _pieces_of(node: Node, graph: Graph, pieces: dict[Value, frozenset[_Columns]]) -> frozenset[_Columns] | None:
    """The columns in which a result is read, if it is read in nothing else; None too where pieces overlap.

    `pieces`: the same for what stands later in the graph.
    """
    is_elementwise = role_of(node) is Role.ELEMENTWISE
    if not is_elementwise and not (node.op == "dot_general" and has_one_column_axis(node)):
        return None
    if node.output in graph.outputs:
        return None
    found: set[_Columns] = set()
    for reader in graph.users[node.output]:
        own = _columns_of(reader)
        if own is not None:
            found.add(own)
        elif role_of(reader) is Role.ELEMENTWISE and reader.output in pieces:
            found |= pieces[reader.output]
        else:
            return None
    ordered = sorted(found)
    return None if any(a[1] > b[0] for a, b in pairwise(ordered)) else frozenset(found)


def _columns_of(node: Node) -> _Columns | None:
    """What a slice takes of the last axis, if it takes all of the others and some neighbouring columns of that."""
    if node.op != "slice" or not node.inputs[0].type.rank or node.output.type.size == 0:
        return None
    *others, last = slices_of(node)
    shape = node.inputs[0].type.shape
    whole_others = all(taken.count == extent for taken, extent in zip(others, shape, strict=False))
    if not whole_others or last.count == shape[-1] or (last.stride != 1 and last.count > 1):
        return None
    return last.start, last.start + last.count
