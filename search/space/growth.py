"""Growth of sets of atoms, within bounds on size, number and time: large ones greedily, small ones one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.codesize import MOST_CODE, code_size
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import AtomSet, Bounds, Candidate
from autofuse.search.space.loose import LooseTies, is_large
from autofuse.search.space.segments import Segment, homes

_Relation = Mapping[FusionAtom, tuple[FusionAtom, ...]]

_FORESIGHT = 1.5
"""How much slower than the ones before a kernel may be lowered and still be done in time."""


class Growth:
    """Grows sets along the edges to producers, consumers and siblings that read the same value."""

    def __init__(self, builder: SpaceBuilder, bounds: Bounds, clock: Callable[[], float]) -> None:
        graph = builder.space.atom_graph
        self.stop = math.inf
        """When what is being done must be done, on the clock."""
        self.most_programs = 0
        """Sets are enumerated until so many kernels have been tried."""
        self.most_nodes = math.inf
        """Greedy growth stops when so many have been lowered."""
        self._builder, self._space, self._bounds, self._clock = builder, builder.space, bounds, clock
        self._lowering_s = 0.0
        """What making kernels that were lowered took, where there is a limit on time."""
        self._sizes = {atom: code_size(atom.nodes) for atom in graph.atoms}
        self._makers: _Relation = graph.predecessors
        self._following: _Relation = graph.successors
        self._siblings: _Relation = _siblings(graph)
        self._absorbed: set[FusionAtom] = set()
        """Atoms that greedy growth from another one took into a large kernel."""
        self._confirms = False
        """Whether kernels that wait are lowered as growth comes to them."""
        self._loose = LooseTies(graph)
        self._followed: _Relation = _followed(graph)
        """Of the atoms whose results tie nothing together, those that go on with them alone."""

    def keep_inside(self, segments: Sequence[Segment]) -> None:
        """Grow no set from one segment into another from now on."""
        home = homes(segments)
        self._makers = _inside(self._makers, home)
        self._following = _inside(self._following, home)
        self._siblings = _inside(self._siblings, home)
        self._followed = _inside(self._followed, home)

    def is_late(self, atoms: AtomSet = frozenset()) -> bool:
        """Whether the time for what is being done is up, or will be before a kernel of these atoms is lowered."""
        if self.stop == math.inf:
            return False
        nodes = sum(len(atom.nodes) for atom in atoms)
        needed = _FORESIGHT * self._lowering_s * nodes / max(self._builder.lowered_nodes, 1)
        return self._clock() + needed >= self.stop

    def leave_out(self, number: int = 1, late: bool = False) -> None:
        """Count sets that are not grown because of a bound. `late`: the one in time."""
        self._space.cut_off += number
        self._space.late += number * late

    def grow_all(self, atoms: Sequence[FusionAtom]) -> None:
        """Greedy growth from each atom that none has taken in; in a segment as long as it has kernels left to try."""
        for atom in atoms:
            if atom in self._absorbed:
                continue
            if self._space.segments and len(self._builder.tried) >= self.most_programs:
                self.leave_out()
            elif self._builder.lowered_nodes >= self.most_nodes:
                self.leave_out()
                self._space.unprobed += 1
            elif self.is_late():
                self.leave_out(late=True)
            else:
                self._absorb(self._grown_from(atom))

    def _absorb(self, atoms: AtomSet) -> None:
        """Grow from none of the atoms of a large kernel any more."""
        if len(atoms) > 2 * self._bounds.atoms:
            self._absorbed |= atoms

    def _grown_from(self, atom: FusionAtom) -> AtomSet:
        """What greedy growth from an atom reaches. Where kernels wait, the last is lowered; all are if it is none."""
        grown = self._grown_greedily(atom)
        if not self._builder.confirmed(grown):
            self._confirms = True
            grown = self._grown_greedily(atom)
            self._confirms = False
        return grown

    def _grown_greedily(self, atom: FusionAtom) -> AtomSet:
        """Absorb neighbours while that is legal: producers first, then consumers and siblings.

        Steps double while they succeed, so that a kernel of hundreds of atoms is reached in a dozen tries.
        """
        current: AtomSet = frozenset((atom,))
        refused: set[FusionAtom] = set()
        step = 1
        while True:
            options = [n for n in self._neighbours(current) if n not in refused]
            if not options:
                break
            grown = self._space.atom_graph.closure(current | frozenset(options[:step]))
            bound = self._builder.lowered_nodes >= self.most_nodes
            if bound or self.is_late(grown):
                self.leave_out(late=not bound)
                self._space.unprobed += bound
                break
            if not self._loose.hold(grown) and self._tried(grown) is not None:
                current = grown
                step *= 2
            elif step > 1:
                step = 1
            else:
                refused.add(options[0])
        return current

    def enumerate(self, atoms: Sequence[FusionAtom]) -> None:
        """All small sets of these atoms, smallest first, so that a bound cuts off the largest ones everywhere alike."""
        counts: dict[FusionAtom, int] = dict.fromkeys(atoms, 0)
        frontier: list[AtomSet] = [frozenset((atom,)) for atom in atoms]
        seen: set[AtomSet] = set(frontier)
        while frontier:
            following: list[AtomSet] = []
            for current in frontier:
                first = min(current, key=lambda a: a.number)
                bound = self._out_of_bounds(len(current) + 1, counts[first])
                if bound or self.is_late():
                    if self._is_open(current, first, seen):
                        self.leave_out(late=not bound)
                    continue
                for grown in self._grown(current, first):
                    if grown in seen:
                        continue
                    bound = self._out_of_bounds(len(grown), counts[first])
                    if bound or self.is_late(grown):
                        self.leave_out(late=not bound)
                        break
                    seen.add(grown)
                    counts[first] += 1
                    if self._tried(grown) is not None:
                        following.append(grown)
            frontier = following

    def _tried(self, atoms: AtomSet) -> Candidate | None:
        """The candidate of a set that growth came to; None too for one whose code would take long to generate."""
        size = sum(self._sizes[atom] for atom in atoms)
        if size > MOST_CODE:
            self._space.refused.setdefault(atoms, f"its code would take long to generate: {size} operations")
            return None
        found = self.timed(lambda: self._builder.try_add(atoms))
        return None if self._confirms and not self._builder.confirmed(atoms) else found

    def timed(self, make: Callable[[], Candidate | None]) -> Candidate | None:
        """What `make` gives, which may lower a kernel, so that it is known how long that takes."""
        if self._bounds.seconds == math.inf:
            return make()
        before, start = self._builder.lowered_nodes, self._clock()
        found = make()
        if self._builder.lowered_nodes > before:
            self._lowering_s += self._clock() - start
        return found

    def _grown(self, current: AtomSet, first: FusionAtom) -> list[AtomSet]:
        """The set with one neighbour more, made convex or left as it is, small ones first."""
        open_sets = self._with_one_more(current, first)
        closed = [self._space.atom_graph.closure(atoms) for atoms in open_sets]
        found = dict.fromkeys((*closed, *open_sets))
        return sorted((atoms for atoms in found if not self._loose.hold(atoms)), key=len)

    def _is_open(self, current: AtomSet, first: FusionAtom, seen: Collection[AtomSet]) -> bool:
        """Whether a set would grow to one that was not seen, were there no bounds."""
        return any(atoms not in seen for atoms in self._grown(current, first))

    def _with_one_more(self, current: AtomSet, first: FusionAtom) -> list[AtomSet]:
        """The set with each of its neighbours; only sets in which `first` is first."""
        return [current | {other} for other in self._neighbours(current) if other.number >= first.number]

    def _out_of_bounds(self, size: int, tried: int) -> bool:
        """Whether enumeration stops before a set, of which so many with the same first atom were tried."""
        bounds = self._bounds
        return size > bounds.atoms or tried >= bounds.sets_per_atom or len(self._builder.tried) >= self.most_programs

    def _neighbours(self, atoms: AtomSet) -> list[FusionAtom]:
        ordered = sorted(atoms, key=lambda a: a.number)
        found: dict[FusionAtom, None] = {}
        for relation in (self._makers, self._following, self._siblings):
            is_grown = relation is self._following and len(atoms) > 1
            for atom in ordered:
                for other in self._followed.get(atom, relation[atom]) if is_grown else relation[atom]:
                    if other not in atoms:
                        found[other] = None
        return list(found)


def _followed(graph: AtomGraph) -> _Relation:
    """By atoms with a small result: the one that goes on with it, if nothing else reads it and its own is small too.

    A number that a hundred kernels read joins one of them at most; what only scales a sum is the end of its kernel.
    """
    found: dict[FusionAtom, tuple[FusionAtom, ...]] = {}
    for atom in graph.atoms:
        if not is_large(graph.writes[atom]):
            following = graph.successors[atom]
            goes_on = len(following) == 1 and not is_large(graph.writes[following[0]])
            found[atom] = following if goes_on else ()
    return found


def _inside(relation: _Relation, home: Mapping[FusionAtom, int]) -> _Relation:
    """A relation between atoms of one segment only."""
    return {atom: tuple(other for other in others if home[other] == home[atom]) for atom, others in relation.items()}


def _siblings(graph: AtomGraph) -> _Relation:
    """Atoms that read a value in common which is large enough for sharing its loads to matter."""
    found: dict[FusionAtom, dict[FusionAtom, None]] = {atom: {} for atom in graph.atoms}
    for value, readers in graph.readers.items():
        for first, second in _pairs(readers) if is_large((value,)) else ():
            found[first][second] = None
            found[second][first] = None
    return {atom: tuple(others) for atom, others in found.items()}


def _pairs(readers: Sequence[FusionAtom]) -> Iterator[tuple[FusionAtom, FusionAtom]]:
    """Neighbouring readers: enough to connect all of them."""
    for position in range(len(readers) - 1):
        yield readers[position], readers[position + 1]
