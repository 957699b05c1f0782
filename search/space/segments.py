"""Cut points: a large program falls into segments that are searched one by one.

The atoms stand in a topological order. A cut is a position in it, and a segment is what lies between two cuts: it reads
from earlier segments only, so no path leaves it and comes back, and partitions of all segments together are a
partition of the program. What a cut forbids are the kernels across it, so that every value that crosses it is written
and read. It is therefore made where few bytes cross: between the layers of a network that is the residual stream alone.
The order is the program's, or that in which each result is computed as soon as it can be, whichever lets fewer bytes
cross: a program that does one thing to a hundred arrays, then the next thing to all of them, is cut between arrays.

Networks repeat themselves. Segments of equal structure are recognised, so that their sets are enumerated once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value

Segment = tuple[FusionAtom, ...]
"""Atoms that follow one another in a topological order."""

_NARROW = 4
"""A segment has at least this part of the most atoms: room to find a place where little crosses."""
_CUT_BYTES = 4096
"""What a cut costs that nothing crosses: kernels on both sides of it can no longer share a launch."""
_DEARER = 1.5
"""How much more may cross where that makes segments equal."""
_WORTH = 1.1
"""By how much less must cross in another order than the program's."""


def cut(graph: AtomGraph, most: int) -> tuple[Segment, ...]:
    """Segments of at most `most` atoms, with few bytes across all cuts together, and with many equal ones.

    By dynamic programming over the positions: over all, and over those of one kind each, between the same operations.
    Of what is not much dearer than the cheapest, the cuts with the fewest different segments. Raises ArgumentError
    unless `most` is positive.
    """
    if most < 1:
        raise ArgumentError(f"segment={most!r:.80} must be a positive number of atoms")
    if len(graph.atoms) <= most:
        return (graph.atoms,)
    price, usual = _cut(graph, graph.atoms, most)
    other, deep = _cut(graph, depth_first(graph), most)
    return deep if _WORTH * other < price else usual


def depth_first(graph: AtomGraph) -> Segment:
    """All atoms, what a result needs right before it, as far as that was not needed earlier."""
    order: dict[FusionAtom, None] = {}
    for atom in graph.atoms:
        todo = [] if graph.successors[atom] else [atom]
        while todo:
            waits = [maker for maker in graph.predecessors[todo[-1]] if maker not in order]
            if waits:
                todo += reversed(waits)
            else:
                order[todo.pop()] = None
    return tuple(order)


def _cut(graph: AtomGraph, atoms: Segment, most: int) -> tuple[float, tuple[Segment, ...]]:
    """What the cuts cost together, and the segments, for the atoms in this order."""
    crossing = crossing_bytes(graph, atoms)
    kinds = [_kind(graph, atom) for atom in atoms]
    price, positions = _cheapest(range(len(crossing)), crossing, most)
    found = [(_different(kinds, positions), price, positions)]
    for places in _alike(kinds):
        other, positions = _cheapest(places, crossing, most)
        if other <= _DEARER * price:
            found.append((_different(kinds, positions), other, positions))
    _, price, positions = min(found, key=lambda entry: entry[:2])
    return price, tuple(atoms[start:end] for start, end in itertools.pairwise(positions))


def _cheapest(places: Sequence[int], crossing: Sequence[int], most: int) -> tuple[float, list[int]]:
    """The cheapest of the positions from the first to the last at which to cut; of equal segments the longest, last.

    The price is infinite where these positions lie too far apart.
    """
    least = max(1, most // _NARROW)
    best, before, first = [0.0], [0], 0
    for number in range(1, len(places)):
        while places[number] - places[first] > most:
            first += 1
        near = [n for n in range(first, number) if places[number] - places[n] >= least]
        chosen = min(near, key=best.__getitem__, default=0)
        best.append((best[chosen] if near else math.inf) + crossing[places[number]] + _CUT_BYTES)
        before.append(chosen)
    taken = [len(places) - 1]
    while taken[-1]:
        taken.append(before[taken[-1]])
    return best[-1], [places[n] for n in reversed(taken)]


def _kind(graph: AtomGraph, atom: FusionAtom) -> Hashable:
    """What an atom does, roughly: enough to recognise the repeated parts of a network."""
    return tuple(node.op for node in atom.nodes), tuple(str(value.type) for value in graph.writes[atom])


def _alike(kinds: Sequence[Hashable]) -> Iterator[list[int]]:
    """The positions between atoms of the same two kinds, with both ends, for each two kinds."""
    found: dict[Hashable, list[int]] = {}
    for position, pair in enumerate(itertools.pairwise(kinds), 1):
        found.setdefault(pair, []).append(position)
    for positions in found.values():
        yield [0, *positions, len(kinds)]


def _different(kinds: Sequence[Hashable], positions: Sequence[int]) -> int:
    """How many segments look different."""
    return len({tuple(kinds[start:end]) for start, end in itertools.pairwise(positions)})


def crossing_bytes(graph: AtomGraph, order: Segment) -> list[int]:
    """For each position in an order of all atoms, both ends included: bytes of values made before and read after it."""
    place = {atom: number for number, atom in enumerate(order)}
    change = [0] * (len(order) + 1)
    for value, readers in graph.readers.items():
        maker = graph.maker(value)
        if maker is not None:
            change[place[maker] + 1] += value.type.nbytes
            change[max(place[reader] for reader in readers) + 1] -= value.type.nbytes
    return list(itertools.accumulate(change))


def structure(graph: AtomGraph, segment: Segment, alone: Mapping[FusionAtom, str]) -> tuple[Any, ...]:
    """What a segment is, less names: equal for segments of equal atoms that read one another and the rest alike.

    `alone`: the digest of each atom as a kernel of its own.
    """
    place = {atom: number for number, atom in enumerate(segment)}
    outside: dict[Value, int] = {}
    rows: list[tuple[str, tuple[tuple[int, int], ...], tuple[bool, ...]]] = []
    for atom in segment:
        reads: list[tuple[int, int]] = []
        for value in graph.reads[atom]:
            maker = graph.maker(value)
            if maker is None or maker not in place:
                reads.append((-1, outside.setdefault(value, len(outside))))
            else:
                reads.append((place[maker], graph.writes[maker].index(value)))
        kept = tuple(leaves(graph, value, place) for value in graph.writes[atom])
        rows.append((alone[atom], tuple(reads), kept))
    return tuple(rows)


def leaves(graph: AtomGraph, value: Value, segment: Container[FusionAtom]) -> bool:
    """Whether the caller, or an atom of a later segment, needs a value of this one."""
    return value in graph.returned or any(reader not in segment for reader in graph.readers.get(value, ()))


def homes(segments: Sequence[Segment]) -> dict[FusionAtom, int]:
    """The number of the segment that each atom is in."""
    return {atom: number for number, segment in enumerate(segments) for atom in segment}
