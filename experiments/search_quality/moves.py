"""Every partition of a small space, one by one: what the choice of a search is held against.

A *move* is a kernel that can run: a candidate of the space with what it writes. It writes what nothing inside it reads,
and any of its other outputs. A partition is a set of moves in which every value that is needed has one writer, nothing
is written for nobody, and no kernels wait for one another. Whoever needs a value that no kernel writes has computed it
itself: so recomputation is in, as far as the bound on it goes.

Partitions are met by asking, from the last value backwards, who writes it. The values still open are decided by the
moves chosen so far, so each partition is met once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Value
from autofuse.search.prices.priced import Priced
from autofuse.search.solve.solver import Chosen, Solution, solve
from autofuse.search.solve.topological_order import Run, in_topological_order
from autofuse.search.space.candidates import Candidate, Space
from autofuse.search.space.classes import class_digest


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One kernel that a partition may have."""

    candidate: Candidate
    kernel: KernelCandidate
    """With exactly the outputs that this move writes."""
    digest: str
    """Of that kernel."""
    reads: tuple[Value, ...]
    """Values that other kernels must write."""

    @property
    def writes(self) -> tuple[Value, ...]:
        return self.kernel.outputs


@dataclass(frozen=True, slots=True)
class Ranked:
    """A partition and its price."""

    us: float
    moves: tuple[int, ...]
    """Numbers of the moves, in no order."""


@dataclass(slots=True)
class Enumerated:
    """What was met."""

    count: int = 0
    """Partitions."""
    complete: bool = True
    """Whether these are all, within the bound on recomputation."""
    best: list[Ranked] = field(default_factory=list[Ranked])
    """The cheapest, the best first."""


def moves_of(space: Space) -> list[Move]:
    """All kernels that a partition of the space may have."""
    return [move for candidate in space.candidates for move in _moves_of(space.atom_graph, candidate)]


def _moves_of(graph: AtomGraph, candidate: Candidate) -> Iterator[Move]:
    inner = [v for v in candidate.outputs if not candidate.atoms.isdisjoint(graph.readers.get(v, ()))]
    last = [v for v in candidate.outputs if v not in inner]
    reads = _reads(graph, candidate)
    for size in range(len(inner) + 1):
        for some in itertools.combinations(inner, size):
            written = tuple(v for v in candidate.outputs if v in last or v in some)
            if written:
                kernel = graph.candidate(candidate.atoms, written)
                yield Move(candidate, kernel, class_digest(kernel), reads)


def _reads(graph: AtomGraph, candidate: Candidate) -> tuple[Value, ...]:
    read = {value for atom in candidate.atoms for value in graph.reads[atom]}
    outside = (v for v in read if (maker := graph.maker(v)) is not None and maker not in candidate.atoms)
    return tuple(graph.value_order(outside))


def enumerate_partitions(
    space: Space, moves: Sequence[Move], us: Mapping[str, float], *, most: int, repeats: int, keep: int
) -> Enumerated:
    """Meet the partitions of the moves that have a time in `us`, by digest; the price is the sum of the times.

    `most`: stop after that many. `repeats`: how often, in all, an atom may be computed beyond its first time. `keep`:
    how many of the cheapest to give.
    """
    walk = _Walk(space.atom_graph, moves, us, most, repeats, keep)
    walk.go()
    return walk.found


class _Walk:
    """The walk over all partitions. Sets of values and atoms are the bits of an int."""

    def __init__(
        self, graph: AtomGraph, moves: Sequence[Move], us: Mapping[str, float], most: int, repeats: int, keep: int
    ) -> None:
        self.found = Enumerated()
        self._most, self._repeats, self._keep = most, repeats, keep
        made = graph.value_order(value for atom in graph.atoms for value in graph.writes[atom])
        self._bit = {value: 1 << number for number, value in enumerate(made)}
        self._returned = self._bits(value for value in graph.graph.outputs if value in self._bit)
        self._us = [us.get(move.digest, math.inf) for move in moves]
        self._reads = [self._bits(move.reads) for move in moves]
        self._writes = [self._bits(move.writes) for move in moves]
        self._atoms = [sum(1 << atom.number for atom in move.candidate.atoms) for move in moves]
        self._writers: list[list[int]] = [[] for _ in made]
        for number, move in enumerate(moves):
            if self._us[number] < math.inf:
                for value in move.writes:
                    self._writers[self._bit[value].bit_length() - 1].append(number)
        self._heap: list[tuple[float, int, tuple[int, ...]]] = []

    def _bits(self, values: Iterator[Value] | Sequence[Value]) -> int:
        return sum(self._bit[value] for value in dict.fromkeys(values))

    def go(self) -> None:
        """Meet them all."""
        self._extend((), self._returned, 0, 0, 0, 0.0)
        ordered = sorted(self._heap, reverse=True)
        self.found.best = [Ranked(-us, chosen) for us, _, chosen in ordered]

    def _extend(self, chosen: tuple[int, ...], needed: int, made: int, atoms: int, size: int, us: float) -> None:
        """Decide who writes the last value that is needed and not made."""
        waiting = needed & ~made
        if not waiting:
            if not made & ~needed and self._can_run(chosen):
                self._meet(chosen, us)
            return
        for number in self._writers[waiting.bit_length() - 1]:
            if self._writes[number] & made:
                continue
            covered = atoms | self._atoms[number]
            computed = size + self._atoms[number].bit_count()
            if computed - covered.bit_count() > self._repeats:
                continue
            then = needed | self._reads[number]
            self._extend((*chosen, number), then, made | self._writes[number], covered, computed, us + self._us[number])
            if not self.found.complete:
                return

    def _can_run(self, chosen: Sequence[int]) -> bool:
        there, left = 0, list(chosen)
        while left:
            waiting = [number for number in left if self._reads[number] & ~there]
            if len(waiting) == len(left):
                return False
            for number in left:
                if number not in waiting:
                    there |= self._writes[number]
            left = waiting
        return True

    def _meet(self, chosen: tuple[int, ...], us: float) -> None:
        self.found.count += 1
        heapq.heappush(self._heap, (-us, -self.found.count, chosen))
        if len(self._heap) > self._keep:
            heapq.heappop(self._heap)
        if self.found.count >= self._most:
            self.found.complete = False


def in_order(moves: Sequence[Move], numbers: Sequence[int]) -> list[Chosen]:
    """The moves of a partition as kernels, in an order in which each can run."""
    runs = [Run(number, moves[number].reads, moves[number].writes) for number in numbers]
    rank = [max(atom.number for atom in move.candidate.atoms) for move in moves]
    order, stuck = in_topological_order(runs, rank)
    assert not stuck  # a partition that was met can run
    return [Chosen(moves[run.number].candidate, run.writes) for run in order]


def cheapest(space: Space, moves: Sequence[Move], us: Mapping[str, float]) -> Solution:
    """What the exact solver finds among the same kernels at the same prices, with no bound on recomputation."""
    priced = [
        Priced(replace(move.candidate, kernel=move.kernel, digest=move.digest), us[move.digest], {})
        for move in moves
        if us.get(move.digest, math.inf) < math.inf
    ]
    return solve(space.atom_graph, priced)
