"""Scatters and sorts, and what a kernel may compute for them: elements, one by one, where these read them."""

from __future__ import annotations

from autofuse.ir.graph import Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of


def takes_prologues(node: Node) -> bool:
    """Whether a target may have code for an opaque node that computes what it reads: a scatter or a sort."""
    return role_of(node) in (Role.SCATTER, Role.SORT)


def is_prologue(node: Node) -> bool:
    """Whether elements of a node's result can be computed one by one, wherever they are read."""
    role = role_of(node)
    return role is Role.ELEMENTWISE or role.moves
