"""What is known of values while a graph is rewritten: who makes them, how often they are read, what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Node, Value
from autofuse.ir.interpreter import evaluate_node
from autofuse.ir.optable import role_of

Array = NDArray[Any]

SMALL_BYTES = 64 * 1024
"""Arrays that are computed ahead of time are at most this large, unless they replace larger ones."""


class Facts:
    """Filled node by node, in order; answers are kept."""

    def __init__(self, reads: Mapping[Value, int]) -> None:
        """`reads`: how often the graph that is being rewritten reads each of its values."""
        self._reads = reads
        self._producers: dict[Value, Node] = {}
        self._splats: dict[Value, Array | None] = {}
        self._known: dict[Value, Array | None] = {}

    def add(self, node: Node) -> None:
        """`node` is part of the new graph."""
        for value in node.outputs:
            self._producers[value] = node

    def producer(self, value: Value, *ops: str) -> Node | None:
        """The node that makes `value`, if it is one of `ops` (any, if none are given)."""
        node = self._producers.get(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def read_once(self, value: Value) -> bool:
        """Whether `value` certainly has one reader; False where that is not known yet."""
        return self._reads.get(value, 2) <= 1

    def constant(self, value: Value) -> Array | None:
        """The array, if `value` is a constant of the graph."""
        node = self._producers.get(value)
        return node.attrs["value"] if node is not None and node.op == "constant" else None

    def splat(self, value: Value) -> Array | None:
        """The 0-d array repeated everywhere in `value`, if that is known and `value` is not empty."""
        if value not in self._splats:
            self._splats[value] = self._find_splat(value)
        return self._splats[value]

    def known(self, value: Value) -> Array | None:
        """The elements of a constant, of a small iota, or of views of these that are small or no larger."""
        if value not in self._known:
            self._known[value] = self._find_known(value)
        return self._known[value]

    def _find_splat(self, value: Value) -> Array | None:
        node = self._producers.get(value)
        if node is None or value.type.size == 0:
            return None
        if node.op == "constant":
            return _repeated_by(node)
        return self.splat(node.inputs[0]) if role_of(node).is_view else None

    def _find_known(self, value: Value) -> Array | None:
        node = self._producers.get(value)
        if node is None:
            return None
        if node.op == "constant":
            return node.attrs["value"]
        if node.op == "iota":
            return evaluate_node(node, {})[0] if value.type.nbytes <= SMALL_BYTES else None
        if not role_of(node).is_view:
            return None
        source = self.known(node.inputs[0])
        if source is None or value.type.nbytes > max(SMALL_BYTES, source.nbytes):
            return None
        return evaluate_node(node, {node.inputs[0]: source})[0]


_REPEATED: WeakKeyDictionary[Node, Array | None] = WeakKeyDictionary()


def _repeated_by(constant: Node) -> Array | None:
    """As `repeated`; a constant is looked through once, however many graphs hold it."""
    if constant not in _REPEATED:
        _REPEATED[constant] = repeated(constant.attrs["value"])
    return _REPEATED[constant]


def repeated(array: Array) -> Array | None:
    """The 0-d array that `array` repeats, bit for bit; None if elements differ or there are none."""
    if array.size == 0:
        return None
    rows = array.reshape(-1).view(np.uint8).reshape(array.size, -1)
    for part in (rows[:64], rows):  # most arrays that vary do so at once
        if not np.array_equal(part, np.broadcast_to(rows[0], part.shape)):
            return None
    return array.reshape(-1)[:1].reshape(())
