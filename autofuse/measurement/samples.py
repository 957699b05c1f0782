"""Samples of a graph: a smaller graph that computes a part of what the whole one does, element for element.

Rows of a softmax do not depend on one another, nor rows of queries in attention: some of them tell whether an answer is
right. Axes of values that walk together are one. One of which every result needs all positions (a reduced one, the
depth of a product, one along which arrays are joined or cut) stays whole. Of the others a sample has the first and the
last position and some between.

    x f32[32768,4096] -> softmax           x f32[64,4096] -> softmax, of rows 0, 511, 1040, ..., 32767
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.fusion.nodeaxes import dot_axes, reduced_axes, walked_whole
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, replace

Array = NDArray[Any]
Axis = tuple[Value, int]
"""One axis of a value."""
_COUNTS = tuple(1 << power for power in range(16, 1, -1))
"""Positions of an axis that a sample may have, the most first."""
_WORTH = 0.5
"""Of the elements of all values: a sample with more of them is not worth having."""
_MOVES = ("broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "pad", "concatenate")
"""Ops that move elements so that `walked_whole` says all of an axis: no element of another place depends on it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A part of a graph."""

    graph: Graph
    """It computes outputs of the same number and order, with fewer positions along some axes."""
    positions: Mapping[Axis, Array]
    """Those that are left of each axis of a value of the whole graph; axes that stay whole are absent."""
    sources: tuple[Value | Node, ...]
    """Where the inputs of `graph` come from: inputs of the whole graph, or constants and iotas."""

    def inputs(self, known: Mapping[Value, Array]) -> list[Array]:
        """The arguments of `graph`. `known`: those of the whole graph."""
        return [self._leaf(s) if isinstance(s, Node) else self.of(s, known[s]) for s in self.sources]

    def of(self, value: Value, array: Array) -> Array:
        """What is left of the array of a value."""
        for axis in range(value.type.rank):
            if (value, axis) in self.positions:
                array = np.take(array, self.positions[value, axis], axis)
        return array

    def _leaf(self, node: Node) -> Array:
        if role_of(node) is Role.CONSTANT:
            return self.of(node.output, node.attrs["value"])
        along, shape = node.attrs["iota_dimension"], _shape(node.output, self.positions)
        line = np.arange(node.output.type.shape[along]).astype(node.attrs["dtype"].numpy)
        line = line[self.positions[node.output, along]] if (node.output, along) in self.positions else line
        return np.broadcast_to(line.reshape([-1 if axis == along else 1 for axis in range(len(shape))]), shape)


def sample_of(graph: Graph, most_elements: int, seed: int = 0) -> Sample | None:
    """A sample whose values have about so many elements together, or as few as there can be.

    None for a graph of which none is worth having. `seed`: of the positions between the first and the last.
    """
    if graph.captures or any(node.regions for node in graph.nodes):
        return None
    axes = _Axes(graph)
    whole = _elements(graph, {})
    rng = np.random.default_rng(seed)
    positions: dict[Axis, Array] = {}
    for most in _COUNTS:
        positions = axes.positions(most, rng)
        if _elements(graph, positions) <= most_elements:
            break
    if not positions or _elements(graph, positions) > _WORTH * whole:
        return None
    return _built(graph, positions)


class _Axes:
    """The axes of all values of a graph: which are one, and which stay whole."""

    def __init__(self, graph: Graph) -> None:
        self._values = list(graph.values())
        self._parent: dict[Axis, Axis] = {}
        self._whole: set[Axis] = set()
        for node in graph.nodes:
            tied = list(_tied(node))
            for operand, axis, result in tied:
                self._join((node.inputs[operand], axis), (node.output, result))
            kept = {(operand, axis) for operand, axis, _ in tied}
            made = {result for _, _, result in tied}.union(_free(node))
            for number, value in enumerate(node.inputs):
                self._whole.update((value, axis) for axis in range(value.type.rank) if (number, axis) not in kept)
            for value in node.outputs:
                self._whole.update((value, axis) for axis in range(value.type.rank) if axis not in made)
        self._whole = {self._find(axis) for axis in self._whole}

    def positions(self, most: int, rng: np.random.Generator) -> dict[Axis, Array]:
        """At most so many positions of each axis, sorted; those of axes that are one are the same."""
        chosen: dict[Axis, Array] = {}
        found: dict[Axis, Array] = {}
        for value in self._values:
            for number, extent in enumerate(value.type.shape):
                axis = value, number
                root = self._find(axis)
                if root in self._whole or extent <= most:
                    continue
                if root not in chosen:
                    chosen[root] = np.unique([0, extent - 1, *rng.integers(1, extent - 1, most - 2)])
                found[axis] = chosen[root]
        return found

    def _find(self, axis: Axis) -> Axis:
        path: list[Axis] = []
        while axis in self._parent:
            path.append(axis)
            axis = self._parent[axis]
        self._parent.update(dict.fromkeys(path, axis))
        return axis

    def _join(self, one: Axis, other: Axis) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._parent[one] = other


def _tied(node: Node) -> Iterator[tuple[int, int, int]]:
    """(operand, its axis, the result's axis) for axes of which each position of the result reads its own, alone."""
    match role_of(node):
        case _ if len(node.outputs) != 1:
            pass
        case Role.ELEMENTWISE:
            yield from ((n, axis, axis) for n, value in enumerate(node.inputs) for axis in range(value.type.rank))
        case Role.REDUCE | Role.ARG_REDUCE:
            kept = [axis for axis in range(node.inputs[0].type.rank) if axis not in reduced_axes(node)]
            yield from ((0, axis, result) for result, axis in enumerate(kept))
        case Role.SCAN:
            along = node.attrs["dimension"]
            yield from ((0, axis, axis) for axis in range(node.inputs[0].type.rank) if axis != along)
        case Role.DOT:
            parts = dot_axes(node)
            free = len(parts.lhs_batch) + len(parts.lhs_free)
            yield from ((0, axis, result) for result, axis in enumerate((*parts.lhs_batch, *parts.lhs_free)))
            yield from ((1, axis, result) for result, axis in enumerate(parts.rhs_batch))
            yield from ((1, axis, free + number) for number, axis in enumerate(parts.rhs_free))
        case _ if node.op in _MOVES:
            yield from _moved(node)
        case _:
            pass


def _moved(node: Node) -> Iterator[tuple[int, int, int]]:
    """Axes that all operands have, but for what a pad puts beside them: along the others, operands are joined."""
    found = walked_whole(node)
    agreed = {(operand, result) for operand, _, result in found}
    arrays = range(1 if node.op == "pad" else len(node.inputs))
    return ((operand, axis, result) for operand, axis, result in found if all((n, result) in agreed for n in arrays))


def _free(node: Node) -> Sequence[int]:
    """Axes of a result that no operand has: each position is the same, or follows from its number."""
    if role_of(node).is_leaf:
        return range(node.outputs[0].type.rank)
    if node.op == "broadcast_in_dim":
        return [axis for axis in range(node.output.type.rank) if axis not in node.attrs["broadcast_dimensions"]]
    return ()


def _shape(value: Value, positions: Mapping[Axis, Array]) -> tuple[int, ...]:
    return tuple(
        len(positions[value, axis]) if (value, axis) in positions else extent
        for axis, extent in enumerate(value.type.shape)
    )


def _elements(graph: Graph, positions: Mapping[Axis, Array]) -> int:
    """Of all values; the steps of a product count as a sixteenth of an element each."""
    total = sum(math.prod(_shape(value, positions)) for value in graph.values())
    for node in graph.nodes:
        if role_of(node) is Role.DOT:
            depth = math.prod(node.inputs[0].type.shape[axis] for axis in dot_axes(node).lhs_contracting)
            total += math.prod(_shape(node.output, positions)) * depth // 16
    return total


def _built(graph: Graph, positions: Mapping[Axis, Array]) -> Sample:
    builder = GraphBuilder(graph.name)
    known: dict[Value, Value] = {}
    sources: list[Value | Node] = []

    def source(value: Value, origin: Value | Node) -> None:
        known[value] = builder.input(replace(value.type, shape=_shape(value, positions)), value.name)
        sources.append(origin)

    for value in graph.inputs:
        source(value, value)
    for node in graph.nodes:
        if role_of(node).is_leaf and any((node.output, axis) in positions for axis in range(node.output.type.rank)):
            source(node.output, node)
        else:
            inputs = [known[value] for value in node.inputs]
            results = builder.emit_many(node.op, inputs, name=node.name, **_attrs(node, positions))
            known.update(zip(node.outputs, results, strict=True))
    return Sample(builder.finish([known[value] for value in graph.outputs]), positions, tuple(sources))


def _attrs(node: Node, positions: Mapping[Axis, Array]) -> Mapping[str, Any]:
    """A node's attributes, for shapes that are smaller."""
    match node.op:
        case "broadcast_in_dim" | "reshape":
            return {**node.attrs, "shape": _shape(node.output, positions)}
        case "slice":
            limits = [
                len(positions[node.output, axis]) if (node.output, axis) in positions else limit
                for axis, limit in enumerate(node.attrs["limit_indices"])
            ]
            return {**node.attrs, "limit_indices": tuple(limits)}
        case _:
            return node.attrs
