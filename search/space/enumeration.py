"""The candidate space: connected sets of atoms that can be one kernel, found within bounds.

Sets grow from every atom (`growth.py`). What a bound on size, number or time cut off is counted, never hidden. Whatever
the bounds, the space holds the singletons, so there is always a cover; and, unless the time is up, from every atom that
no large fusion has taken in yet the sets that greedy growth reaches, so that the large fusions are present. What growth
may lower is bounded too: in a long chain that no kernel can take in whole, it would lower nearly the same set from
every atom. No set grows beyond the code that is quickly generated (`fusion/codesize.py`).

A large graph is cut into segments first (`segments.py`), and no set grows across a cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

from autofuse.fusion.candidate import work_of
from autofuse.lazydataclass import dataclass
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import USUAL, AtomSet, Bounds, Space
from autofuse.search.space.growth import Growth
from autofuse.search.space.leaner import leaner_outputs
from autofuse.search.space.segments import Segment, cut, structure

_LEANER_SHARE = 0.1
"""Of the time: kept for kernels that write less."""
_ALIKE = 4
"""So many atoms of each kind, and more: their kernels are of few classes, and weighing them takes longer than lowering
these."""
_MANY = 3
"""Segments without an equal that may each try as many kernels as a whole graph; more of them share what these may."""


def enumerated(
    builder: SpaceBuilder,
    bounds: Bounds = USUAL,
    clock: Callable[[], float] = time.monotonic,
    leaner: bool = True,
) -> Space:
    """The space of a builder, filled within the bounds.

    `clock`: in seconds; for `bounds.seconds`. `leaner`: with kernels that write what others need to compute large
    values for themselves, instead of these.
    """
    return _Enumeration(builder, bounds, clock).run(leaner)


@dataclass(frozen=True, slots=True)
class _Explored:
    """What enumeration found in a segment, for those that are like it."""

    segment: Segment
    sets: tuple[AtomSet, ...]
    cut_off: int
    late: int


class _Enumeration:
    def __init__(self, builder: SpaceBuilder, bounds: Bounds, clock: Callable[[], float]) -> None:
        self.builder, self.space, self.bounds, self.clock = builder, builder.space, bounds, clock
        self.graph = builder.space.atom_graph
        self.growth = Growth(builder, bounds, clock)
        self.classes = bounds.classes
        """Most distinct kernels to try beside single atoms and what greedy growth tries."""

    def run(self, leaner: bool) -> Space:
        atoms = self.graph.atoms
        end = self.clock() + self.bounds.seconds
        for atom in atoms:
            self.growth.timed(lambda alone=frozenset((atom,)): self.builder.require(alone))
        kinds = len(self.builder.tried)
        self.builder.waits = self.builder.waits and len(atoms) < _ALIKE * kinds
        self.classes = self.bounds.most_classes(kinds, self.builder.classes_a_kind)
        segments = cut(self.graph, self.bounds.segment) if len(atoms) > self.bounds.whole else (atoms,)
        grown = self._within(1 - _LEANER_SHARE, end) if leaner else end
        if len(segments) > 1:
            self._explore_apart(segments, grown)
        else:
            self.growth.stop = self._within(0.5, grown)
            self.growth.most_nodes = self.builder.lowered_nodes + self.bounds.grown_nodes
            self.growth.grow_all(atoms)
            self.growth.most_programs = len(self.builder.tried) + self.classes
            self.growth.stop = grown
            self.growth.enumerate(atoms)
        self.growth.stop = end
        if leaner:
            self._add_leaner()
        return self.space

    def _within(self, share: float, end: float) -> float:
        """When a share of the time from now to `end` is over."""
        now = self.clock()
        return now + share * max(0.0, end - now)

    def _explore_apart(self, segments: Sequence[Segment], end: float) -> None:
        """Enumerate each segment by itself; of equal ones the first, whose sets the others have too.

        `end`: when all must be done. Each has an equal share of the time that is left.
        """
        self.space.segments = tuple(segments)
        self.growth.keep_inside(segments)
        shapes = self._shapes(segments)
        left, waiting = _MANY * self.classes, len(set(shapes))
        explored: dict[Hashable, _Explored] = {}
        for segment, shape in zip(segments, shapes, strict=True):
            if shape in explored:
                self.growth.stop = end
                self._repeat(explored[shape], segment)
                continue
            before = len(self.builder.tried)
            self.growth.most_nodes = self.builder.lowered_nodes + self.bounds.grown_nodes // len(set(shapes))
            classes = min(self.classes, max(left, 0) // waiting)
            explored[shape] = self._explore(segment, classes, self._within(1 / waiting, end))
            left -= len(self.builder.tried) - before
            waiting -= 1

    def _shapes(self, segments: Sequence[Segment]) -> list[Hashable]:
        """Equal for segments in which enumeration goes the same way."""
        if self.builder.is_ruled:
            return list(range(len(segments)))
        alone = {atom: work_of(self.builder.require(frozenset((atom,))).digest) for atom in self.graph.atoms}
        return [structure(self.graph, segment, alone) for segment in segments]

    def _explore(self, segment: Segment, classes: int, end: float) -> _Explored:
        """Enumerate one segment until `end`.

        `classes`: how many distinct kernels may be tried, half of them by greedy growth.
        """
        programs, candidates = len(self.builder.tried), len(self.space.candidates)
        cut_off, late = self.space.cut_off, self.space.late
        self.growth.most_programs, self.growth.stop = programs + classes // 2, self._within(0.5, end)
        self.growth.grow_all(segment)
        self.growth.most_programs, self.growth.stop = programs + classes, end
        self.growth.enumerate(segment)
        sets = tuple(candidate.atoms for candidate in self.space.candidates[candidates:])
        return _Explored(segment, sets, self.space.cut_off - cut_off, self.space.late - late)

    def _repeat(self, explored: _Explored, segment: Segment) -> None:
        """Try in a segment what was found in one that is like it."""
        twin = dict(zip(explored.segment, segment, strict=True))
        for number, atoms in enumerate(explored.sets):
            if self.growth.is_late():
                self.growth.leave_out(len(explored.sets) - number, late=True)
                break
            self.builder.try_add(frozenset(twin[atom] for atom in atoms))
        self.space.cut_off += explored.cut_off
        self.space.late += explored.late

    def _add_leaner(self) -> None:
        """The same sets, writing what others need to compute large values for themselves, instead of these."""
        for candidate in list(self.space.candidates):
            outputs = leaner_outputs(self.graph, candidate.atoms, candidate.outputs)
            if outputs and self.growth.is_late():
                self.growth.leave_out(late=True)
            elif outputs:
                self.builder.try_add(candidate.atoms, outputs)
