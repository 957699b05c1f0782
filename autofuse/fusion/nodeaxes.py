"""What a node does with axes: which axes of its operands its result has, which it reduces, moves or keeps whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Affine, Element, Symbol, of
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.ir.pieces import Piece


class DotAxes:
    """The axes of a `dot_general`, by role."""

    __slots__ = ("lhs_batch", "lhs_contracting", "lhs_free", "rhs_batch", "rhs_contracting", "rhs_free")

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self.lhs_batch: tuple[int, ...] = attrs["lhs_batching_dimensions"]
        self.rhs_batch: tuple[int, ...] = attrs["rhs_batching_dimensions"]
        self.lhs_contracting: tuple[int, ...] = attrs["lhs_contracting_dimensions"]
        self.rhs_contracting: tuple[int, ...] = attrs["rhs_contracting_dimensions"]
        self.lhs_free = _others(node.inputs[0], self.lhs_batch, self.lhs_contracting)
        self.rhs_free = _others(node.inputs[1], self.rhs_batch, self.rhs_contracting)


def dot_axes(node: Node) -> DotAxes:
    """The axes of a `dot_general` node, by role."""
    known = _dot_axes.get(node)
    if known is None:
        known = _dot_axes[node] = DotAxes(node)
    return known


_dot_axes: WeakKeyDictionary[Node, DotAxes] = WeakKeyDictionary()
"""What is known of products: kernels ask for the same ones again and again. It pins no node."""


def kept_axes(node: Node) -> frozenset[tuple[int, int]]:
    """(operand, axis) of each axis whose position in the result is the position that the result's element reads.

    Of elementwise ops, reductions, products, and what moves elements; of a reshape all axes count as moved.
    """
    found: set[tuple[int, int]] = set()
    match role_of(node):
        case Role.ELEMENTWISE:
            found.update((number, axis) for number, v in enumerate(node.inputs) for axis in range(v.type.rank))
        case Role.REDUCE:
            found.update((0, axis) for axis in range(node.inputs[0].type.rank) if axis not in reduced_axes(node))
        case Role.DOT:
            parts = dot_axes(node)
            found.update((0, axis) for axis in (*parts.lhs_batch, *parts.lhs_free))
            found.update((1, axis) for axis in (*parts.rhs_batch, *parts.rhs_free))
        case role if role.moves and role is not Role.RESHAPE:
            found.update((operand, axis) for operand, axis, _ in (*walked_whole(node), *read_for_places(node)))
        case _:
            pass
    return frozenset(found)


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of a reduction's operand that its result does not have."""
    return node.attrs["dimensions"] if role_of(node) is Role.REDUCE else (node.attrs["dimension"],)


def whole_axes(node: Node) -> tuple[int, ...]:
    """The axes of a reduction-like op's result that one worker has whole: columns of a dot, the axis of a scan."""
    match role_of(node):
        case Role.SCAN:
            return (node.attrs["dimension"],)
        case Role.DOT:
            parts = dot_axes(node)
            return tuple(range(len(parts.lhs_batch) + len(parts.lhs_free), node.output.type.rank))
        case Role.CONVOLUTION:
            return (node.attrs["output_feature_dimension"],)
        case _:
            return ()


def with_bodies(nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes, and before each loop those of its body."""
    if not any(map(is_loop, nodes)):
        return nodes
    found: list[Node] = []
    for node in nodes:
        found += loop_nodes(node) if is_loop(node) else ()
        found.append(node)
    return found


def loop_nodes(node: Node) -> Sequence[Node]:
    """The nodes of a loop's condition, if it has one, and of its body; before each branch those of its sides."""
    return [inner for region in node.regions for inner in inner_nodes(region.nodes)]


def body_of(loop: Node) -> Graph:
    """What a loop does in each iteration."""
    return loop.regions[-1]


Taken = tuple[tuple[Value, bool], ...]
"""The conditions of branches, from the outermost inwards, and what each is on the side that is meant."""


def loops_inside(loop: Node) -> Sequence[tuple[Node, Taken]]:
    """The loops right in a loop's body, in order, each with the branches that it is in."""
    return [*_loops_among(body_of(loop).nodes, ())]


def _loops_among(nodes: Sequence[Node], taken: Taken) -> Iterator[tuple[Node, Taken]]:
    for node in nodes:
        if is_loop(node):
            yield node, taken
        elif role_of(node) is Role.BRANCH:
            for side, truth in zip(node.regions, (True, False), strict=True):
                yield from _loops_among(side.nodes, (*taken, (node.inputs[0], truth)))


def nested_loops(loop: Node) -> Sequence[Node]:
    """All loops in a loop's regions, however deep."""
    return [node for node in loop_nodes(loop) if is_loop(node)]


def parts_of_state(loop: Node) -> int:
    """How many operands, and results, of a loop are its state; the others are rows, of which a `while` has none."""
    return loop.attrs["carries"] if role_of(loop) is Role.COUNTED_LOOP else len(loop.inputs)


def inner_nodes(nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes of a body, and before each branch those of its sides."""
    found: list[Node] = []
    for node in nodes:
        for region in node.regions:
            found += inner_nodes(region.nodes)
        found.append(node)
    return found


def given_to(node: Node) -> tuple[Value, ...]:
    """What an iteration of a loop gets, its condition too: the state and the rows."""
    return tuple(value for region in node.regions for value in region.inputs) if is_loop(node) else ()


def is_loop(node: Node) -> bool:
    """Whether the node is a loop: one of a known number of iterations, or one that data end."""
    return bool(node.regions) and role_of(node) in (Role.COUNTED_LOOP, Role.LOOP)


def keeps_axes(node: Node) -> bool:
    """Whether all readers of a value see the same axes. An iota or a splat is made anew by each reader."""
    return not role_of(node).is_leaf


def _others(value: Value, *taken: tuple[int, ...]) -> tuple[int, ...]:
    used = {axis for axes in taken for axis in axes}
    return tuple(axis for axis in range(value.type.rank) if axis not in used)


_found_whole: WeakKeyDictionary[Node, tuple[tuple[int, int, int], ...]] = WeakKeyDictionary()
"""What is known of data movement, by node: kernels ask for the same nodes again and again. It pins none."""


def walked_whole(node: Node) -> tuple[tuple[int, int, int], ...]:
    """(operand, its axis, result axis) for each operand axis that is walked whole, in order, by one result axis."""
    known = _found_whole.get(node)
    if known is None:
        known = _found_whole[node] = tuple(_find_walked_whole(node))
    return known


def read_for_places(node: Node) -> Iterator[tuple[int, int, int]]:
    """As `walked_whole`, of operands that say where others are read: each element by the result's that needs it."""
    for piece, where in _pieces(node):
        for position in piece.index:
            for variable, _ in position.terms:
                if isinstance(variable, Element) and isinstance(variable.source, int):
                    yield from _walked(node, variable.source, variable.index, where)


def _find_walked_whole(node: Node) -> Iterator[tuple[int, int, int]]:
    """(operand, its axis, result axis) for each operand axis that is walked whole, in order, by one result axis."""
    for piece, where in _pieces(node):
        yield from _walked(node, piece.operand, piece.index, where)


def _pieces(node: Node) -> Iterator[tuple[Piece, Mapping[Affine, int]]]:
    """Where an element of a result comes from, and which axis of the result each position in that is."""
    out = node.output
    symbols = [Symbol(str(axis), extent) for axis, extent in enumerate(out.type.shape)]
    where = {of(s): axis for axis, s in enumerate(symbols) if s.extent > 1}
    at = tuple(of(s) for s in symbols)
    for piece in index_op(node).access([v.type for v in node.inputs], out.type, node.attrs, at):
        yield piece, where


def _walked(
    node: Node, operand: int, positions: Sequence[Affine], where: Mapping[Affine, int]
) -> Iterator[tuple[int, int, int]]:
    shape = node.inputs[operand].type.shape
    for position, index in enumerate(positions):
        axis = where.get(index)
        if axis is not None and shape[position] == node.output.type.shape[axis]:
            yield operand, position, axis


def window_is_identity(node: Node, axis: int) -> bool:
    """Whether a window reads one position along an axis: that of the result's element."""
    attrs = node.attrs
    return (
        attrs["window_dimensions"][axis] == 1
        and attrs["window_strides"][axis] == 1
        and attrs["base_dilations"][axis] == 1
        and tuple(attrs["padding"][axis]) == (0, 0)
    )
