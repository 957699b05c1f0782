"""Loose ties: edges along which no kernels are tried, as they tie too many atoms together by a single number.

A number that many large arrays are made with, or one of many that large arrays are reduced to and then combined, passes
between kernels for next to nothing. Sets that hold some of the readers, or some of the reductions, are as many as there
are subsets, and each is another kernel: it would take all that enumeration may try.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value

TINY_BYTES = 4096
"""Sharing the loads of a value smaller than this is worth nothing."""
_FEW = 8
"""So many large arrays may one number go into, or so many may be reduced for one atom, and each counts."""


class LooseTies:
    """Which atoms of a graph are tied by numbers alone."""

    def __init__(self, graph: AtomGraph) -> None:
        single = {atom for atom in graph.atoms if all(value.type.size == 1 for value in graph.writes[atom])}
        large = {atom for atom in graph.atoms if is_large(graph.writes[atom])}
        reduced = {atom for atom in single if is_large(graph.reads[atom])}
        self._apart: dict[FusionAtom, frozenset[FusionAtom]] = {}
        """Atoms that each atom is not tried with."""
        for atom in graph.atoms:
            apart = set[FusionAtom]()
            if atom in single and len(large.intersection(graph.successors[atom])) > _FEW:
                apart.update(reader for reader in graph.successors[atom] if reader not in single)
            if len(reduced.intersection(graph.predecessors[atom])) > _FEW:
                apart.update(single.intersection(graph.predecessors[atom]))
            if apart:
                self._apart[atom] = frozenset(apart)

    def hold(self, atoms: frozenset[FusionAtom]) -> bool:
        """Whether a set has both ends of such a tie."""
        return any(atom in atoms and not others.isdisjoint(atoms) for atom, others in self._apart.items())


def is_large(values: Sequence[Value]) -> bool:
    """Whether any of the values is large enough for sharing its loads to matter."""
    return any(value.type.nbytes >= TINY_BYTES for value in values)
