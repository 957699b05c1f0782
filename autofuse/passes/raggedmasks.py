"""Masks that the run decides, in bodies of loops: of slices that grow and shrink with a counter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, replace
from autofuse.passes.editing import Editor

_LOGIC = ("and", "or", "not", "compare")


@dataclass(frozen=True, slots=True)
class WidenMasks:
    """Compares places anew wherever a mask is read, in the shape that it chooses in.

    A mask that several read would be a kernel of its own, and one that is read from memory ends no loop. Exact. It runs
    last: other passes merge what is equal, and compare before they repeat.
    """

    name: ClassVar[str] = "masks"

    def apply(self, graph: Graph) -> Graph:
        """The rewritten graph; the same object if there is nothing to rewrite."""
        return in_bodies(graph, _widened)


def in_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with its regions changed, those inside of others first; the same object if none is."""
    nodes = tuple(_with_regions(node, change) for node in graph.nodes)
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return Graph(graph.name, graph.inputs, nodes, graph.outputs, graph.captures)


def _with_regions(node: Node, change: Callable[[Graph], Graph]) -> Node:
    if not node.regions:
        return node
    regions = tuple(change(in_bodies(region, change)) for region in node.regions)
    same = all(new is old for new, old in zip(regions, node.regions, strict=True))
    return node if same else replace(node, regions=regions)


def _widened(region: Graph) -> Graph:
    editor = Editor(region)
    for node in region.nodes:
        if node.op == "select" and is_ragged(region, node.inputs[0]):
            mask, *sides = node.inputs
            shape = mask.type.shape
            editor.define(node, "select", _wide(editor, region, node, mask, shape, (*range(len(shape)),)), *sides)
    return editor.finish()


def _wide(
    editor: Editor, region: Graph, like: Node, value: Value, shape: tuple[int, ...], way: tuple[int, ...]
) -> Value:
    """A value repeated to a shape, by the same steps in that shape. `way`: the axis there of each of its own."""
    node = region.producers.get(value)
    if node is not None and node.op in _LOGIC:
        operands = [_wide(editor, region, like, operand, shape, way) for operand in node.inputs]
        return editor.emit(node.op, *operands, like=like, **node.attrs)
    if node is not None and node.op == "broadcast_in_dim":
        inner = tuple(way[axis] for axis in node.attrs["broadcast_dimensions"])
        if all(e == shape[axis] for e, axis in zip(node.inputs[0].type.shape, inner, strict=True)):
            return _wide(editor, region, like, node.inputs[0], shape, inner)
    if node is not None and node.op == "reshape" and _without_ones(node.inputs[0]) == _without_ones(value):
        kept = iter(axis for axis, extent in zip(way, value.type.shape, strict=True) if extent != 1)
        inside = node.inputs[0]
        if all(extent != 1 for extent in inside.type.shape):
            return _wide(editor, region, like, inside, shape, tuple(kept))
    if node is not None and role_of(node) is Role.IOTA and value.type.shape == tuple(shape[axis] for axis in way):
        axis = way[node.attrs["iota_dimension"]]
        return editor.emit("iota", like=like, shape=shape, dtype=value.type.dtype, iota_dimension=axis)
    if value.type.shape == shape and way == (*range(len(shape)),):
        return value
    return editor.emit("broadcast_in_dim", value, like=like, shape=shape, broadcast_dimensions=way)


def _without_ones(value: Value) -> tuple[int, ...]:
    return tuple(extent for extent in value.type.shape if extent != 1)


# ---- what masks are ------------------------------------------------------------------------------------------------


def is_ragged(region: Graph, mask: Value) -> bool:
    """Whether a mask compares places with a number that only the run knows."""
    return any(_compares_places(region, region.producers.get(value)) for value in _joined(region, mask))


def _compares_places(region: Graph, node: Node | None) -> bool:
    if node is None or node.op != "compare":
        return False
    values = [unmoved(region, side) for side in node.inputs]
    makers = [region.producers.get(value) for value in values]
    for (_, place), (number, maker) in zip(pairs := [*zip(values, makers, strict=True)], pairs[::-1], strict=True):
        is_place = place is not None and role_of(place) is Role.IOTA
        if is_place and number.type.size == 1 and (maker is None or not role_of(maker).is_leaf):
            return True
    return False


def _joined(region: Graph, mask: Value) -> Iterator[Value]:
    """The conditions that all must hold where a mask does."""
    todo = [mask]
    while todo:
        value = unmoved(region, todo.pop())
        node = region.producers.get(value)
        if node is not None and node.op == "and":
            todo += node.inputs
        else:
            yield value


def unmoved(region: Graph, value: Value) -> Value:
    """What a value is a view of."""
    node = region.producers.get(value)
    while node is not None and role_of(node).is_view:
        value = node.inputs[0]
        node = region.producers.get(value)
    return value
