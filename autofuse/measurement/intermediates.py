"""Values of a graph as the interpreter computes them: those used last are held, the others computed anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.interpreter import evaluate_node
from autofuse.ir.optable import role_of
from autofuse.measurement.inputvalues import is_unusual

Array = NDArray[Any]
References = Callable[[Node, Callable[[Value], Array | None]], Sequence[Array] | None]
"""The results of a node, or None; given it, and what gives the arrays that are known."""


def nothing_is_referred(node: Node, known: Callable[[Value], Array | None]) -> None:
    """The interpreter computes everything."""
    del node, known


class Intermediates:
    """The values of one graph on given arguments, within a limit of bytes.

    Arrays are held as the interpreter leaves them: views of others take no memory. Beyond the limit, what was used
    longest ago is let go, but for what is asked for at the moment, and what that is still to be computed from.
    """

    def __init__(
        self, graph: Graph, inputs: Sequence[Array], most_bytes: int, references: References = nothing_is_referred
    ) -> None:
        """`references`: what is asked for a node's results before the interpreter is, with what gives known arrays."""
        self._graph, self._most_bytes, self._references = graph, most_bytes, references
        self._referred: set[Node] = set()
        """Nodes that the interpreter did not compute."""
        self._inputs = dict(zip(graph.inputs, inputs, strict=True))
        self._held: dict[Value, Array] = {}
        """Those used last at the end."""
        self._users: dict[int, int] = {}
        """How many held values lie in an array's memory, by the identity of that array."""
        constants = [a for node in graph.nodes for a in node.attrs.values() if isinstance(a, np.ndarray)]
        self._given = {id(_owner(array)) for array in (*inputs, *constants)}
        """What is there anyway."""
        self._seconds: dict[Node, float] = {}
        self._unusual: dict[Value, bool] = {}
        self.held_bytes = 0

    def of(self, values: Sequence[Value]) -> list[Array]:
        """The arrays of these values. They may be views, and nobody may write to them.

        Raises GraphError where an op cannot be evaluated.
        """
        missing = self._missing(values)
        last_use = {value: place for place, node in enumerate(missing) for value in self._graph.reads(node)}
        last_use |= dict.fromkeys(values, len(missing))
        for place, node in enumerate(missing):
            operands = {value: self._known(value) for value in self._graph.reads(node)}
            start = perf_counter()
            found = self._references(node, self._if_known)
            (self._referred.discard if found is None else self._referred.add)(node)
            if found is None:
                found = evaluate_node(node, operands)
            self._seconds[node] = perf_counter() - start
            for value, array in zip(node.outputs, found, strict=True):
                self._hold(value, node, array)
            if self.held_bytes > self._most_bytes:
                self._let_go({value for value, last in last_use.items() if last > place})
        return [self._known(value) for value in values]

    def are_exact(self, nodes: Iterable[Node]) -> bool:
        """Whether the interpreter computed all of these nodes' results, of what they read."""
        return self._referred.isdisjoint(nodes)

    def seconds(self, nodes: Iterable[Node]) -> float:
        """How long these nodes took, as far as they were computed."""
        return sum(self._seconds.get(node, 0.0) for node in nodes)

    def any_unusual(self, values: Iterable[Value]) -> bool:
        """Whether arithmetic may take another time with any of these, as far as they are held."""
        return any(self._is_unusual(value) for value in values)

    def _is_unusual(self, value: Value) -> bool:
        array = self._inputs.get(value, self._held.get(value))
        if value not in self._unusual and array is not None:
            repeats = array.nbytes > _owner(array).nbytes  # what it repeats is a value too
            self._unusual[value] = not repeats and is_unusual(array)
        return self._unusual.get(value, False)

    def _missing(self, values: Sequence[Value]) -> list[Node]:
        """The nodes to evaluate for these values, in order."""
        found: set[Node] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            node = self._graph.producers.get(value)
            if node is not None and value not in self._held and node not in found:
                found.add(node)
                waiting += self._graph.reads(node)
        return sorted(found, key=self._graph.positions.__getitem__)

    def _if_known(self, value: Value) -> Array | None:
        return self._known(value) if value in self._inputs or value in self._held else None

    def _known(self, value: Value) -> Array:
        if value in self._inputs:
            return self._inputs[value]
        array = self._held[value] = self._held.pop(value)
        return array

    def _hold(self, value: Value, node: Node, array: Array) -> None:
        if value in self._held:  # made by a node that also makes another value, which was missing
            self._drop(value)
        if role_of(node).is_opaque and array.base is not None:
            array = array.copy()  # a function of a library may go on using what it returns
        self._held[value] = array
        owner = _owner(array)
        if id(owner) not in self._users:
            self.held_bytes += 0 if id(owner) in self._given else owner.nbytes
        self._users[id(owner)] = self._users.get(id(owner), 0) + 1

    def _let_go(self, needed: Collection[Value]) -> None:
        for value in [value for value in self._held if value not in needed]:
            self._drop(value)
            if self.held_bytes <= self._most_bytes:
                return

    def _drop(self, value: Value) -> None:
        owner = _owner(self._held.pop(value))
        self._users[id(owner)] -= 1
        if not self._users[id(owner)]:
            del self._users[id(owner)]
            self.held_bytes -= 0 if id(owner) in self._given else owner.nbytes


def _owner(array: Array) -> Array:
    """The array whose memory this one lies in."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
