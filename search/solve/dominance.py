"""Candidates that need not be looked at, since two smaller ones do the same for no more.

A candidate S is dominated by A and B, which share out its atoms, if

- one of them, say A, needs nothing of the other, and writes all that B needs of it;
- whatever S writes, one of the two writes;
- price A + price B + what A pays to write what B needs + what the two pay more than S for the other outputs <= price S,
  whichever of its outputs S writes.

Where a selection runs S, A and then B can run in its place: they read nothing that S does not, and write at least as
much. If one of them runs elsewhere already, the earlier of the two runs can write for both. No atom runs more often
than before, and neither leaves the segment that S is in. So the cheapest selection of those that are left is as cheap
as that of all, whether atoms may run twice or not, in segments or whole. A and B are smaller than S; either may be
dominated itself, by still smaller ones, and single atoms never are.

That holds for the price alone. Where the caller limits what exists at a moment, or wants other classes than some, a
dominated candidate may be the one that is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.prices.priced import Priced


def undominated(graph: AtomGraph, priced: Sequence[Priced]) -> list[Priced]:
    """The candidates that no two others dominate, in order."""
    sets = [_bits(p) for p in priced]
    index = _Index.of(sets, priced)
    return [p for p, atoms in zip(priced, sets, strict=True) if not _is_dominated(graph, p, atoms, priced, index)]


@dataclass(frozen=True, slots=True)
class _Index:
    """Candidates by their atoms, which are the bits of an int."""

    by_set: Mapping[int, Sequence[int]]
    """Numbers of the candidates of exactly these atoms."""
    by_first: Mapping[int, Sequence[int]]
    """The sets that have this lowest bit."""
    least: Mapping[int, float]
    """The smallest price of any candidate of a set."""

    @classmethod
    def of(cls, sets: Sequence[int], priced: Sequence[Priced]) -> _Index:
        by_set: dict[int, list[int]] = {}
        by_first: dict[int, list[int]] = {}
        for number, atoms in enumerate(sets):
            if atoms not in by_set:
                by_first.setdefault(_first(atoms), []).append(atoms)
            by_set.setdefault(atoms, []).append(number)
        least = {atoms: min(priced[n].price_us for n in numbers) for atoms, numbers in by_set.items()}
        return cls(by_set, by_first, least)

    def splits(self, atoms: int, most_us: float) -> Iterator[tuple[int, int]]:
        """Pairs of candidates that share these atoms out, and whose own prices are at most `most_us` together."""
        for one in self.by_first[_first(atoms)]:
            other = atoms ^ one
            if one & ~atoms or other not in self.by_set or self.least[one] + self.least[other] > most_us:
                continue
            for first in self.by_set[one]:
                for second in self.by_set[other]:
                    yield first, second


def _is_dominated(graph: AtomGraph, whole: Priced, atoms: int, priced: Sequence[Priced], index: _Index) -> bool:
    if atoms & (atoms - 1) == 0:
        return False
    return any(
        _can_replace(graph, whole, first, second) or _can_replace(graph, whole, second, first)
        for first, second in ((priced[one], priced[two]) for one, two in index.splits(atoms, whole.price_us))
    )


def _can_replace(graph: AtomGraph, whole: Priced, first: Priced, second: Priced) -> bool:
    """Whether `first` and then `second`, which share out the atoms of `whole`, do the same for no more."""
    if _between(graph, second, first):
        return False
    passed = _between(graph, first, second)
    if not passed <= set(first.candidate.outputs):
        return False
    writes = {value: part.write_us.get(value, 0.0) for part in (first, second) for value in part.candidate.outputs}
    kept = whole.candidate.outputs
    if not writes.keys() >= set(kept):
        return False
    more = [max(0.0, writes[value] - whole.write_us.get(value, 0.0)) for value in kept if value not in passed]
    # rounded once, so that the order of sets decides nothing
    return math.fsum((first.price_us, second.price_us, *(writes[v] for v in passed), *more)) <= whole.price_us


def _between(graph: AtomGraph, maker: Priced, reader: Priced) -> set[Value]:
    """What one of two candidates without a common atom reads of what the other one's atoms make."""
    made = {value for atom in maker.candidate.atoms for value in graph.writes[atom]}
    return {value for atom in reader.candidate.atoms for value in graph.reads[atom] if value in made}


def _bits(priced: Priced) -> int:
    return sum(1 << atom.number for atom in priced.candidate.atoms)


def _first(atoms: int) -> int:
    return atoms & -atoms
