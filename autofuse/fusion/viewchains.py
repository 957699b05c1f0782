"""Chains of views, which are cut where the index of what they read gets long.

A view rewrites the index at which its reader asks for an element. Most rewrites simplify, but `m.T.reshape(m.shape)`
reads element `k` at `k % 5 * 7 + k // 5`: each further one of these writes its index twice into the next. So an index
of twenty would have a million divisions. A view at which it would have more than `MOST_DIVISIONS` is computed, as other
operations are, and its readers begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol, of
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of

MOST_DIVISIONS = 32
"""Of the index of one element through views. As many take longer than writing and reading the element."""
_Index = tuple[Affine, ...]


class ReadIndices:
    """By value, the longest index at which a kernel reads it; it is asked about nodes behind all their readers."""

    def __init__(self) -> None:
        self._longest: dict[Value, _Index] = {}

    def passed_on(self, view: Node) -> bool:
        """Let the operand be read through a view. False, and nothing, if the index would be too long."""
        through = _through(view, self.longest(view.output))
        if index_divisions(through) > MOST_DIVISIONS:
            return False
        self._read(view.inputs[0], through)
        return True

    def start(self, node: Node, *, joined: bool) -> None:
        """Let a node read its operands: at the index of its readers if it has `joined` them, else at one of its own."""
        role = role_of(node)
        if role is Role.ELEMENTWISE and joined:
            for value in node.inputs:
                self._read(value, self.longest(node.output))
        elif role.is_view:
            self._read(node.inputs[0], _through(node, _own(node.output)))

    def longest(self, value: Value) -> _Index:
        """The index at which a value is read; that of loops over its elements, if no view is in between."""
        return self._longest.get(value) or _own(value)

    def _read(self, value: Value, at: _Index) -> None:
        known = self._longest.get(value)
        if known is None or index_divisions(known) < index_divisions(at):
            self._longest[value] = at


def is_long(nodes: Sequence[Node]) -> bool:
    """Whether a kernel of some nodes, in their order, would read through a view at too long an index."""
    indices = ReadIndices()
    for node in reversed(nodes):
        if not role_of(node).is_view:
            indices.start(node, joined=True)
        elif not indices.passed_on(node):
            return True
    return False


def index_divisions(at: Iterable[Affine]) -> int:
    """The divisions of an index."""
    return sum(position.divisions() for position in at)


def _own(value: Value) -> _Index:
    """The index of a loop nest over a value's elements."""
    return tuple([of(Symbol(str(axis), extent)) for axis, extent in enumerate(value.type.shape)])


def _through(view: Node, at: _Index) -> _Index:
    """The index of what a view reads for its element `at`."""
    (piece,) = index_op(view).access([view.inputs[0].type], view.output.type, view.attrs, at)
    return piece.index
