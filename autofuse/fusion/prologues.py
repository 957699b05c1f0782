"""Scatters and sorts, and what a kernel may compute around them, element by element: what they read, what reads them.

A prologue is elementwise work, or moves elements. An epilogue is elementwise alone: it has an element as soon as the
scatter or sort has the one at the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of


def takes_prologues(node: Node) -> bool:
    """Whether a target may have code for an opaque node that computes what is around it: a scatter or a sort."""
    return role_of(node) in (Role.SCATTER, Role.SORT)


def is_prologue(node: Node) -> bool:
    """Whether elements of a node's result can be computed one by one, wherever they are read."""
    role = role_of(node)
    return role is Role.ELEMENTWISE or role.moves


def epilogue_of(nodes: Iterable[Node], node: Node) -> tuple[Node, ...]:
    """Those of `nodes`, in the order in which they run, that depend on a scatter or sort."""
    made = set(node.outputs)
    found: list[Node] = []
    for other in nodes:
        if other is not node and not made.isdisjoint(other.inputs):
            made.update(other.outputs)
            found.append(other)
    return tuple(found)


def may_be_around(nodes: Sequence[Node], node: Node, outputs: Iterable[Value]) -> bool:
    """Whether all of `nodes`, views included, can be computed around a scatter or sort that is one of them.

    `outputs`: what the kernel writes: results of the node, and of what is behind it.
    """
    behind = epilogue_of(nodes, node)
    made = {value for maker in (node, *behind) for value in maker.outputs}
    if not all(role_of(other) is Role.ELEMENTWISE for other in behind):
        return False
    before = [other for other in nodes if other is not node and role_of(other).computes]
    return made.issuperset(outputs) and all(map(is_prologue, before))
