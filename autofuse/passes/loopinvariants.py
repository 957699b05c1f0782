"""What is the same in all iterations of a loop is computed before it."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.graph import Node, Value
from autofuse.ir.optable import has_calls, role_of
from autofuse.ir.oprecord import Role
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.passes.editing import new_node
from autofuse.passes.loopediting import Loop, reads


def move_invariants(loop: Loop) -> None:
    """Move out of the body what reads nothing that an iteration gets or computes.

    Constants, positions and views stay: inside they cost nothing, outside they would be arrays in memory. What moves
    out and reads them gets copies of its own. Calls of functions stay: they may have effects.
    """
    varying = {*(carry.given for carry in loop.carries), *(row.row for row in loop.rows)}
    free: dict[Value, Node] = {}
    copies: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in loop.nodes:
        role = role_of(node)
        if not varying.isdisjoint(reads(node)) or role is Role.CALL or any(map(has_calls, node.regions)):
            varying.update(node.outputs)
            kept.append(node)
        elif role.is_leaf or role.is_view:
            free[node.output] = node
            kept.append(node)
        else:
            for value in reads(node):
                _copy(loop, value, free, copies)
            loop.move_before(substituted_node(node, copies))
    loop.nodes = kept


def _copy(loop: Loop, value: Value, free: Mapping[Value, Node], copies: dict[Value, Value]) -> None:
    """Compute a constant, a position or a view before the loop too."""
    node = free.get(value)
    if node is None or value in copies:
        return
    for operand in node.inputs:
        _copy(loop, operand, free, copies)
    made = new_node(loop.names, node.op, replaced(node.inputs, copies), node.attrs, location=node.location)
    loop.move_before(made)
    copies[value] = made.output
