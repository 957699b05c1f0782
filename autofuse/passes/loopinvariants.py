"""What is the same in all iterations of a loop is computed before it."""

from __future__ import annotations

from collections.abc import Set

from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import has_calls, role_of
from autofuse.ir.substitution import substituted_node
from autofuse.passes.editing import new_node
from autofuse.passes.loopediting import Loop, reads


def move_invariants(loop: Loop) -> None:
    """Move out of the body what reads nothing that an iteration gets or computes.

    Constants, positions and views stay: inside they cost nothing, outside they would be arrays in memory. What moves
    out and reads them gets copies of its own. Calls of functions stay: they may have effects.
    """
    same = Invariants(loop)
    kept: list[Node] = []
    for node in loop.nodes:
        if node not in same.nodes or _is_free(node):
            kept.append(node)
        else:
            loop.move_before(substituted_node(node, {value: same.outside(value) for value in reads(node)}))
    loop.nodes = kept


class Invariants:
    """What is the same in all iterations."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._varying = {*(carry.given for carry in loop.carries), *(row.row for row in loop.rows)}
        self._makers: dict[Value, Node] = {}
        self._copies: dict[Value, Value] = {}
        for node in loop.nodes:
            if not self._varying.isdisjoint(reads(node)) or _has_effects(node):
                self._varying.update(node.outputs)
            else:
                self._makers.update(dict.fromkeys(node.outputs, node))
        self.nodes: Set[Node] = set(self._makers.values())
        """Those of the body."""

    def __contains__(self, value: Value) -> bool:
        return value not in self._varying

    def outside(self, value: Value) -> Value:
        """The value before the loop: constants, positions and views of the body are made there again."""
        node = self._makers.get(value)
        if node is None or not _is_free(node):
            return value
        if value not in self._copies:
            inputs = tuple(map(self.outside, node.inputs))
            made = new_node(self._loop.names, node.op, inputs, node.attrs, location=node.location)
            self._loop.move_before(made)
            self._copies[value] = made.output
        return self._copies[value]


def _is_free(node: Node) -> bool:
    return role_of(node).is_leaf or role_of(node).is_view


def _has_effects(node: Node) -> bool:
    return role_of(node) is Role.CALL or any(map(has_calls, node.regions))
