"""Where elements of moved arrays come from, remembered: the kernels of a search ask for the same ones over and over."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, reads_memory
from autofuse.ir.optable import index_op
from autofuse.ir.pieces import Piece
from autofuse.lower.knownpositions import at_known, known_positions

_MOST = 10_000
"""Pieces that are remembered, of half a kilobyte or so each; beyond that all are forgotten."""
_Pieces = tuple[Piece, ...]


class _Places:
    """What is known of index ops, by node: it keeps no node alive."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Node, dict[object, _Pieces]] = WeakKeyDictionary()
        self._count = 0

    def of(self, node: Node) -> dict[object, _Pieces]:
        """The pieces that are known of a node, by index."""
        held = self._found.get(node)
        if held is None:
            held = self._found[node] = {}
        return held

    def keep(self, held: dict[object, _Pieces], key: object, pieces: _Pieces) -> _Pieces:
        """Remember some."""
        self._count += len(pieces)
        if self._count > _MOST:
            self._found.clear()
            self._count = 0
        held[key] = pieces
        return pieces


_places = _Places()


def pieces_of(node: Node, at: tuple[Affine, ...], producers: Mapping[Value, Node]) -> _Pieces:
    """Where the element at `at` of what an index op gives comes from.

    `producers`: of positions that the graph holds.
    """
    held = _places.of(node)
    found = held.get(at)
    if found is None:
        types = [value.type for value in node.inputs]
        found = _places.keep(held, at, index_op(node).access(types, node.output.type, node.attrs, at))
    known = known_positions(node, producers) if len(node.inputs) > 1 else {}
    if not known or not any(map(_reads_memory, found)):
        return found
    key = at, tuple(known.items())
    return held.get(key) or _places.keep(held, key, at_known(found, known))


def _reads_memory(piece: Piece) -> bool:
    return any(map(reads_memory, piece.index)) or any(reads_memory(test.value) for test in piece.conditions)
