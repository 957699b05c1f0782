"""Cut points: a large program falls into segments that are searched one by one.

The atoms stand in topological order. A cut is a position in that order, and a segment is what lies between two cuts: it
reads from earlier segments only, so no path leaves it and comes back, and partitions of all segments together are a
partition of the program. What a cut forbids are the kernels across it, so that every value that crosses it is written
and read. It is therefore made where few bytes cross: between the layers of a network that is the residual stream alone.

Networks repeat themselves. Segments of equal structure are recognised, so that their sets are enumerated once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value

Segment = tuple[FusionAtom, ...]
"""Atoms that follow one another in topological order."""

_NARROW = 4
"""A segment has at least this part of the most atoms: room to find a place where little crosses."""
_CUT_BYTES = 4096
"""What a cut costs that nothing crosses: kernels on both sides of it can no longer share a launch."""
_DEARER = 1.5
"""How much more may cross where that makes segments equal."""


def cut(graph: AtomGraph, most: int) -> tuple[Segment, ...]:
    """Segments of at most `most` atoms, with few bytes across all cuts together, and with many equal ones.

    By dynamic programming over the positions: over all, and over those of one kind each, between the same operations.
    Of what is not much dearer than the cheapest, the cuts with the fewest different segments. Raises ArgumentError
    unless `most` is positive.
    """
    if most < 1:
        raise ArgumentError(f"segment={most!r} must be a positive number of atoms")
    atoms = graph.atoms
    if len(atoms) <= most:
        return (atoms,)
    crossing = crossing_bytes(graph)
    kinds = [_kind(graph, atom) for atom in atoms]
    price, positions = _cheapest(range(len(crossing)), crossing, most)
    found = [(_different(kinds, positions), price, positions)]
    for places in _alike(kinds):
        other, positions = _cheapest(places, crossing, most)
        if other <= _DEARER * price:
            found.append((_different(kinds, positions), other, positions))
    _, _, positions = min(found, key=lambda entry: entry[:2])
    return tuple(atoms[start:end] for start, end in itertools.pairwise(positions))


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


def crossing_bytes(graph: AtomGraph) -> list[int]:
    """For each position, from 0 to the number of atoms: the bytes of values made before it and read after it."""
    change = [0] * (len(graph.atoms) + 1)
    for value, readers in graph.readers.items():
        maker = graph.maker(value)
        if maker is not None:
            change[maker.number + 1] += value.type.nbytes
            change[max(reader.number for reader in readers) + 1] -= value.type.nbytes
    return list(itertools.accumulate(change))


def structure(graph: AtomGraph, segment: Segment, alone: Mapping[FusionAtom, str]) -> tuple[Any, ...]:
    """What a segment is, less names: equal for segments of equal atoms that read one another and the rest alike.

    `alone`: the digest of each atom as a kernel of its own.
    """
    first, last = segment[0].number, segment[-1].number
    outside: dict[Value, int] = {}
    rows: list[tuple[str, tuple[tuple[int, int], ...], tuple[bool, ...]]] = []
    for atom in segment:
        reads: list[tuple[int, int]] = []
        for value in graph.reads[atom]:
            maker = graph.maker(value)
            if maker is None or maker.number < first:
                reads.append((-1, outside.setdefault(value, len(outside))))
            else:
                reads.append((maker.number - first, graph.writes[maker].index(value)))
        kept = tuple(leaves(graph, value, last) for value in graph.writes[atom])
        rows.append((alone[atom], tuple(reads), kept))
    return tuple(rows)


def leaves(graph: AtomGraph, value: Value, last: int) -> bool:
    """Whether the caller, or an atom after number `last`, needs a value."""
    return value in graph.returned or any(reader.number > last for reader in graph.readers.get(value, ()))


def homes(segments: Sequence[Segment]) -> dict[FusionAtom, int]:
    """The number of the segment that each atom is in."""
    return {atom: number for number, segment in enumerate(segments) for atom in segment}
