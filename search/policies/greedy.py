"""Greedy and beam search over the candidate space: baselines for the exact solver, and anytime for any size.

Both build a partition by merging: at first every atom is a kernel; a step replaces two kernels, one of which reads the
other or both of which read the same value, by the candidate that holds the atoms of both. The greedy search takes the
merge that saves most by the model until none saves anything. The beam search keeps the best few partitions of every
number of merges, and returns the cheapest one it met. No atom is computed twice, and no choice is taken back: that is
what the exact solver is compared with.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping

from autofuse.errors import SearchError
from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, field
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.solve.solver import Chosen
from autofuse.search.solve.topological_order import Run, in_topological_order
from autofuse.search.space.candidates import AtomSet, Candidate, Space


@dataclass(frozen=True, slots=True)
class Greedy:
    """The merge that saves most, until none saves anything."""

    name: str = "greedy"
    width: int = field(default=1, init=False)

    def partition(self, context: Context) -> Partition:
        """Raises SearchError if the space has no candidate for some atom."""
        return merged(context, self)


@dataclass(frozen=True, slots=True)
class Beam:
    """The `width` cheapest partitions of every number of merges."""

    name: str = "beam"
    width: int = 8

    def partition(self, context: Context) -> Partition:
        """Raises SearchError if the space has no candidate for some atom."""
        return merged(context, self)


@dataclass(frozen=True, slots=True)
class _State:
    """A partition: which candidate holds each atom."""

    kernels: frozenset[Candidate]
    price_us: float
    home: Mapping[FusionAtom, Candidate] = field(repr=False, compare=False)

    @staticmethod
    def of(kernels: frozenset[Candidate], price_us: float) -> _State:
        return _State(kernels, price_us, {atom: kernel for kernel in kernels for atom in kernel.atoms})


class _Searcher:
    def __init__(self, context: Context) -> None:
        self.space: Space = context.space
        self.prices = {digest: price.predicted_us for digest, price in context.prices(self.space).items()}
        self.by_atoms: dict[AtomSet, Candidate] = {}
        for candidate in self.space.candidates:
            if self._is_whole(candidate):
                self.by_atoms.setdefault(candidate.atoms, candidate)
        self.rank = {candidate: number for number, candidate in enumerate(self.space.candidates)}

    def start(self) -> _State:
        """Every atom a kernel of its own."""
        kernels: list[Candidate] = []
        for atom in self.space.atom_graph.atoms:
            alone = self.by_atoms.get(frozenset((atom,)))
            if alone is None:
                raise SearchError(f"no candidate computes {atom} alone")
            kernels.append(alone)
        return _State.of(frozenset(kernels), sum(self.price(kernel) for kernel in kernels))

    def price(self, candidate: Candidate) -> float:
        return self.prices[candidate.digest]

    def merges(self, state: _State) -> Iterator[tuple[float, Candidate, Candidate, Candidate]]:
        """(saved us, one kernel, the other, the candidate for both), the best first."""
        found: list[tuple[float, Candidate, Candidate, Candidate]] = []
        for one, other in self._neighbours(state):
            both = self.by_atoms.get(one.atoms | other.atoms)
            if both is not None:
                saved = self.price(one) + self.price(other) - self.price(both)
                if saved > 0:
                    found.append((saved, one, other, both))
        found.sort(key=lambda entry: (-entry[0], self.rank[entry[3]]))
        yield from found

    def successors(self, state: _State, most: int) -> Iterator[_State]:
        """The partitions after the `most` best merges that leave no kernels waiting for one another."""
        count = 0
        for saved, one, other, both in self.merges(state):
            found = _State.of(state.kernels - {one, other} | {both}, state.price_us - saved)
            if self.order(found) is not None:
                yield found
                count += 1
            if count == most:
                return

    def order(self, state: _State) -> list[Candidate] | None:
        """The kernels in an order in which each can run; None if some wait for one another."""
        kernels = sorted(state.kernels, key=self.rank.__getitem__)
        runs = [Run(number, self._reads(kernel), kernel.outputs) for number, kernel in enumerate(kernels)]
        done, stuck = in_topological_order(runs, [max(atom.number for atom in kernel.atoms) for kernel in kernels])
        return None if stuck else [kernels[run.number] for run in done]

    def _reads(self, kernel: Candidate) -> tuple[Value, ...]:
        """The values that other kernels must write for this one."""
        graph = self.space.atom_graph
        ordered = sorted(kernel.atoms, key=lambda atom: atom.number)
        values = dict.fromkeys(value for atom in ordered for value in graph.reads[atom])
        return tuple(v for v in values if (maker := graph.maker(v)) is not None and maker not in kernel.atoms)

    def _neighbours(self, state: _State) -> Iterator[tuple[Candidate, Candidate]]:
        """Pairs of kernels that could merge, each once."""
        graph = self.space.atom_graph
        seen: set[frozenset[Candidate]] = set()
        for value, readers in graph.readers.items():
            maker = graph.maker(value)
            atoms = readers if maker is None else (maker, *readers)
            homes = list(dict.fromkeys(state.home[atom] for atom in atoms))
            for one, other in itertools.pairwise(homes):
                yield from self._once(one, other, seen)
            for other in homes[2:]:
                yield from self._once(homes[0], other, seen)

    def _once(
        self, one: Candidate, other: Candidate, seen: set[frozenset[Candidate]]
    ) -> Iterator[tuple[Candidate, Candidate]]:
        pair = frozenset((one, other))
        if pair not in seen:
            seen.add(pair)
            yield one, other

    def _is_whole(self, candidate: Candidate) -> bool:
        """Whether a candidate writes all that others may need of its atoms."""
        return set(candidate.outputs) == set(self.space.atom_graph.required_outputs(candidate.atoms))


def merged(context: Context, policy: Greedy | Beam, clock: Callable[[], float] = time.monotonic) -> Partition:
    """What a policy merges of the context's space; the best so far when the context's deadline is over.

    Raises SearchError if the space has no candidate for some atom.
    """
    searcher, width = _Searcher(context), policy.width
    until = clock() + context.deadline_s
    beam = [searcher.start()]
    best = beam[0]
    while beam and clock() < until:
        following: dict[frozenset[Candidate], _State] = {}
        for state in beam:
            for found in searcher.successors(state, width):
                following.setdefault(found.kernels, found)
        beam = sorted(following.values(), key=lambda state: state.price_us)[:width]
        best = min([best, *beam], key=lambda state: state.price_us)
    kernels = tuple(Chosen(kernel, kernel.outputs) for kernel in searcher.order(best) or ())
    known = predicted(kernels, context.prices(context.space))
    notes = (f"merging ended with the time, after {context.deadline_s:g} s",) if beam else ()
    return Partition(context.space.atom_graph, kernels, known, best.price_us, notes=notes)
