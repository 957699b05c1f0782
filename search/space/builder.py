"""The candidate space: connected sets of atoms that can be one kernel.

Sets grow from every atom along the edges to producers, consumers and siblings that read the same value. Most are
convex: no path leaves them and comes back. A set that is not computes some values for itself alone, which another
kernel makes too: `y = x - 1` may be computed both where `t = sum(y)` is made and where `y / t` is. That is allowed
where these values are elementwise work; a fold or a product is not done twice.

Growth is bounded in size, number and time; what a bound cut off is counted, never hidden. Whatever the bounds, the
space holds the singletons, so there is always a cover; and, unless the time is up, from every atom that no large fusion
has taken in yet the sets that greedy growth reaches, so that the large fusions are present. What growth may lower is
bounded too: in a long chain that no kernel can take in whole, it would lower nearly the same set from every atom. No
set grows beyond the code that is quickly generated (`codesize.py`).

A large graph is cut into segments first (`segments.py`), and no set grows across a cut.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.codesize import MOST_CODE, code_size
from autofuse.fusion.control import NO_RULES
from autofuse.ir.graph import Value
from autofuse.lower.lowering import Limits, lower, plain_scalars
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.search.space.classes import digests
from autofuse.search.space.leaner import is_light, leaner_outputs
from autofuse.search.space.restriction import UNRESTRICTED, Restriction
from autofuse.search.space.segments import Segment, cut, homes, structure

AtomSet = frozenset[FusionAtom]
_Key = tuple[AtomSet, tuple[Value, ...] | None]
"""A set, and what it writes where that was asked for."""
_Relation = Mapping[FusionAtom, tuple[FusionAtom, ...]]

_RECOMPUTE = 3
_LEAST_SCALARS = 64
_TINY_BYTES = 4096
"""Sharing the loads of a value smaller than this is worth nothing."""
_LEANER_SHARE = 0.1
"""Of the time: kept for kernels that write less."""
_FORESIGHT = 1.5
"""How much slower than the ones before a kernel may be lowered and still be done in time."""
_MANY = 3
"""Segments without an equal that may each try as many kernels as a whole graph; more of them share what these may."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One member of the space."""

    atoms: AtomSet
    kernel: KernelCandidate
    digest: str
    """Of `class_digest`: equal for kernels that do the same work, and that rules give the same schedule, if any. They
    are lowered, priced and tuned once."""
    program: TileProgram | OpaqueProgram
    """The kernel under the canonical schedule. Shared by all candidates of a digest class."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.kernel.outputs


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far enumeration goes."""

    atoms: int = 12
    """Most atoms in an enumerated set; greedy growth is not bound by it."""
    sets_per_atom: int = 64
    """Most sets enumerated from one atom."""
    classes: int = 400
    """Enumeration stops when this many distinct kernels have been tried beside single atoms and what greedy growth
    tries. In segments this holds for each one that is not like another, less where there are many, and half of it is
    for greedy growth."""
    grown_nodes: int = 10_000
    """Greedy growth stops when the distinct kernels that it lowered have so many nodes together; twelve layers of BERT
    have 4,300. In segments each one that is not like another has an equal share."""
    whole: int = 600
    """Most atoms of a graph that is searched whole: twenty layers of BERT. A larger one is cut into segments."""
    segment: int = 160
    """Most atoms of a segment."""
    seconds: float = math.inf
    """When enumeration stops: greedy growth after nearly half of it, the small sets when a tenth is left. Infinite, the
    space does not depend on the machine."""


@dataclass(slots=True)
class Space:
    """The candidates of one graph."""

    atom_graph: AtomGraph
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    refused: dict[AtomSet, str] = field(default_factory=dict[AtomSet, str])
    """Why a set that was tried is no kernel."""
    cut_off: int = 0
    """Sets from which enumeration did not go on because of a bound."""
    segments: tuple[Segment, ...] = ()
    """The parts that were enumerated one by one; () for a graph that was enumerated whole."""
    late: int = 0
    """Those of them for which no time was left."""
    unprobed: int = 0
    """Atoms from which greedy growth did not begin or end, as it had lowered all that it may."""

    @property
    def classes(self) -> Mapping[str, list[Candidate]]:
        """Candidates by digest."""
        found: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            found.setdefault(candidate.digest, []).append(candidate)
        return found


@dataclass(frozen=True, slots=True)
class _Explored:
    """What enumeration found in a segment, for those that are like it."""

    segment: Segment
    sets: tuple[AtomSet, ...]
    cut_off: int
    late: int


class SpaceBuilder:
    """Finds and lowers the candidates of a graph; verdicts are shared by structurally equal sets."""

    def __init__(
        self,
        atom_graph: AtomGraph,
        limits: Limits,
        bounds: Bounds = Bounds(),
        restriction: Restriction = UNRESTRICTED,
        clock: Callable[[], float] = time.monotonic,
        known: SpaceBuilder | None = None,
    ) -> None:
        """`clock`: in seconds; for `bounds.seconds`. `known`: one for the same limits; what it lowered is not again."""
        self.space = Space(atom_graph)
        self._graph = atom_graph
        self._limits = limits
        self._bounds = bounds
        self._restriction = restriction
        self._most_programs = 0
        """Enumeration stops when so many have been tried."""
        self._clock = clock
        self._stop = math.inf
        """When what is being done must be done, on the clock."""
        self._by_set: dict[_Key, Candidate | None] = {}
        self._reasons: dict[_Key, str] = {}
        self._lowered_nodes = 0
        """Of all distinct kernels that were lowered."""
        self._lowering_s = 0.0
        """What lowering these took, where there is a limit on time."""
        self._most_nodes = math.inf
        """Greedy growth stops when so many have been lowered."""
        self._sizes = {atom: code_size(atom.nodes) for atom in atom_graph.atoms}
        self._tried: set[str] = set()
        """Structural digests of all kernels, where their slices begin included."""
        self._programs: dict[str, TileProgram | OpaqueProgram | str] = {} if known is None else known._programs
        """By digest of the class: a program, or why there is none."""
        self._makers: _Relation = atom_graph.predecessors
        self._following: _Relation = atom_graph.successors
        self._siblings: _Relation = _siblings(atom_graph)
        self._absorbed: set[FusionAtom] = set()
        """Atoms that greedy growth from another one took into a large kernel."""
        self._tiny = {a for a in atom_graph.atoms if all(v.type.nbytes < _TINY_BYTES for v in atom_graph.writes[a])}
        """Atoms whose results tie nothing together: a scalar that a hundred kernels read joins one of them at most."""
        self._ruled = atom_graph.control != NO_RULES

    def build(self, extra: Iterable[AtomSet] = ()) -> Space:
        """Enumerate. `extra` sets (those of rule policies) are added if they are legal."""
        atoms = self._graph.atoms
        end = self._clock() + self._bounds.seconds
        for atom in atoms:
            self.require(frozenset((atom,)))
        segments = cut(self._graph, self._bounds.segment) if len(atoms) > self._bounds.whole else (atoms,)
        leaner = self._restriction.recompute and self._restriction.multi_output
        grown = self._within(1 - _LEANER_SHARE, end) if leaner else end
        if len(segments) > 1:
            self._explore_apart(segments, grown)
        else:
            self._stop = self._within(0.5, grown)
            self._most_nodes = self._lowered_nodes + self._bounds.grown_nodes
            self._grow_all(atoms)
            self._most_programs = len(self._tried) + self._bounds.classes
            self._stop = grown
            self._enumerate(atoms)
        self._stop = end
        if leaner:
            self._add_leaner()
        for chosen in extra:
            self.try_add(chosen)
        return self.space

    def require(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate:
        """The candidate of a set. Raises LegalityError with the reason if it cannot be a kernel.

        `outputs`: what it writes; by default all that others may need of it.
        """
        candidate = self.try_add(atoms, outputs)
        if candidate is None:
            raise LegalityError(self._named(atoms) + self._reasons[atoms, outputs])
        return candidate

    def try_add(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate | None:
        """The candidate of a set, or None; the reason is kept in `space.refused`."""
        key = atoms, outputs
        if key not in self._by_set:
            try:
                candidate = self._make(atoms, outputs)
            except LegalityError as error:
                self._reasons[key] = str(error)
                if self._by_set.get((atoms, None)) is None:  # it may be a kernel if it writes something else
                    self.space.refused[atoms] = str(error)
                self._by_set[key] = None
            else:
                self._by_set[key] = candidate
                self.space.candidates.append(candidate)
        return self._by_set[key]

    def _named(self, atoms: AtomSet) -> str:
        """Which rule of the user asks for a kernel, if one does."""
        nodes = {node for atom in atoms for node in atom.nodes}
        rules = [t.rule for t in self._graph.control.together if len(t.nodes) > 1 and t.nodes <= nodes]
        return f"rules: {rules[0]}: " if rules and len(atoms) == 1 else ""

    def _make(self, atoms: AtomSet, outputs: tuple[Value, ...] | None) -> Candidate:
        if self._ruled:
            broken = self._graph.control.refusal(frozenset(node for atom in atoms for node in atom.nodes))
            if broken is not None:
                raise LegalityError(broken)
        if outputs is None:
            outputs = self._outputs(atoms)
        elif len(atoms) > 1 and not self._graph.left_to_others(atoms).isdisjoint(outputs):
            raise LegalityError("a path leaves the set and comes back")
        kernel = self._restriction.kernel(self._graph, atoms, outputs)
        pinned = self._graph.control.schedule_of(kernel.nodes) if self._ruled else None
        own, digest = digests(kernel, pinned)
        self._tried.add(own)
        if digest not in self._programs:
            self._programs[digest] = self._lower(kernel, digest, self._most_scalars(atoms, kernel))
        program = self._programs[digest]
        if isinstance(program, str):
            raise LegalityError(program)
        return Candidate(atoms, kernel, digest, program)

    def _outputs(self, atoms: AtomSet) -> tuple[Value, ...]:
        """What a kernel of these atoms writes. Raises LegalityError where it would have to wait for itself."""
        required = self._graph.required_outputs(atoms)
        left = self._graph.left_to_others(atoms) if len(atoms) > 1 else frozenset[Value]()
        if not left:
            return required
        makers = [self._graph.atom_of[self._graph.graph.producers[value]] for value in self._graph.value_order(left)]
        heavy = next((node.name for atom in makers for node in atom.nodes if not is_light(node)), None)
        if heavy is not None:
            raise LegalityError(f"a path leaves the set and comes back, and %{heavy} is not worth doing twice")
        written = tuple(value for value in required if value not in left)
        needed = self._graph.needed(atoms, written)
        if needed != atoms:
            idle = min(atoms - needed, key=lambda atom: atom.number)
            raise LegalityError(f"a path leaves the set and comes back, and nothing here needs {idle}")
        return written

    def _lower(self, kernel: KernelCandidate, digest: str, scalars: int) -> TileProgram | OpaqueProgram | str:
        """The kernel lowered, or why it cannot be."""
        start = self._clock() if self._bounds.seconds < math.inf else 0.0
        try:
            return lower(kernel, Schedule(), f"k_{digest[:12]}", replace(self._limits, scalars=scalars))
        except LegalityError as error:
            return str(error)
        finally:
            self._lowered_nodes += len(kernel.nodes)
            if self._bounds.seconds < math.inf:
                self._lowering_s += self._clock() - start

    def _most_scalars(self, atoms: AtomSet, kernel: KernelCandidate) -> int:
        """How large a kernel may become: a few times its parts; more is recomputation that cannot pay."""
        if len(atoms) == 1:
            return max(self._limits.scalars, plain_scalars(kernel))
        parts = sum(_count_scalars(self.require(frozenset((atom,))).program) for atom in atoms)
        return min(self._limits.scalars, max(_LEAST_SCALARS, _RECOMPUTE * parts))

    # ---- segments ------------------------------------------------------------------------------------------------

    def _explore_apart(self, segments: Sequence[Segment], end: float) -> None:
        """Enumerate each segment by itself; of equal ones the first, whose sets the others have too.

        `end`: when all must be done. Each has an equal share of the time that is left.
        """
        self.space.segments = tuple(segments)
        home = homes(segments)
        self._makers = _inside(self._makers, home)
        self._following = _inside(self._following, home)
        self._siblings = _inside(self._siblings, home)
        shapes = self._shapes(segments)
        left, waiting = _MANY * self._bounds.classes, len(set(shapes))
        explored: dict[Hashable, _Explored] = {}
        for segment, shape in zip(segments, shapes, strict=True):
            if shape in explored:
                self._stop = end
                self._repeat(explored[shape], segment)
                continue
            before = len(self._tried)
            self._most_nodes = self._lowered_nodes + self._bounds.grown_nodes // len(set(shapes))
            classes = min(self._bounds.classes, max(left, 0) // waiting)
            explored[shape] = self._explore(segment, classes, self._within(1 / waiting, end))
            left -= len(self._tried) - before
            waiting -= 1

    def _shapes(self, segments: Sequence[Segment]) -> list[Hashable]:
        """Equal for segments in which enumeration goes the same way."""
        if self._ruled:
            return list(range(len(segments)))
        alone = {atom: self.require(frozenset((atom,))).digest for atom in self._graph.atoms}
        return [structure(self._graph, segment, alone) for segment in segments]

    def _explore(self, segment: Segment, classes: int, end: float) -> _Explored:
        """Enumerate one segment until `end`.

        `classes`: how many distinct kernels may be tried, half of them by greedy growth.
        """
        programs, candidates = len(self._tried), len(self.space.candidates)
        cut_off, late = self.space.cut_off, self.space.late
        self._most_programs, self._stop = programs + classes // 2, self._within(0.5, end)
        self._grow_all(segment)
        self._most_programs, self._stop = programs + classes, end
        self._enumerate(segment)
        sets = tuple(candidate.atoms for candidate in self.space.candidates[candidates:])
        return _Explored(segment, sets, self.space.cut_off - cut_off, self.space.late - late)

    def _repeat(self, explored: _Explored, segment: Segment) -> None:
        """Try in a segment what was found in one that is like it."""
        twin = dict(zip(explored.segment, segment, strict=True))
        for number, atoms in enumerate(explored.sets):
            if self._is_late():
                self._leave_out(len(explored.sets) - number, late=True)
                break
            self.try_add(frozenset(twin[atom] for atom in atoms))
        self.space.cut_off += explored.cut_off
        self.space.late += explored.late

    # ---- time ----------------------------------------------------------------------------------------------------

    def _within(self, share: float, end: float) -> float:
        """When a share of the time from now to `end` is over."""
        now = self._clock()
        return now + share * max(0.0, end - now)

    def _is_late(self, atoms: AtomSet = frozenset()) -> bool:
        """Whether the time for what is being done is up, or will be before a kernel of these atoms is lowered."""
        if self._stop == math.inf:
            return False
        nodes = sum(len(atom.nodes) for atom in atoms)
        needed = _FORESIGHT * self._lowering_s * nodes / max(self._lowered_nodes, 1)
        return self._clock() + needed >= self._stop

    def _leave_out(self, number: int = 1, late: bool = False) -> None:
        """Count sets that are not grown because of a bound. `late`: the one in time."""
        self.space.cut_off += number
        self.space.late += number * late

    # ---- growth --------------------------------------------------------------------------------------------------

    def _grow_all(self, atoms: Sequence[FusionAtom]) -> None:
        """Greedy growth from each atom that none has taken in; in a segment as long as it has kernels left to try."""
        for atom in atoms:
            if atom in self._absorbed:
                continue
            if self.space.segments and len(self._tried) >= self._most_programs:
                self._leave_out()
            elif self._lowered_nodes >= self._most_nodes:
                self._leave_out()
                self.space.unprobed += 1
            elif self._is_late():
                self._leave_out(late=True)
            else:
                self._grow_greedily(atom)

    def _grow_greedily(self, atom: FusionAtom) -> None:
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
            grown = self._graph.closure(current | frozenset(options[:step]))
            bound = self._lowered_nodes >= self._most_nodes
            if bound or self._is_late(grown):
                self._leave_out(late=not bound)
                self.space.unprobed += bound
                break
            if self._try_grown(grown) is not None:
                current = grown
                step *= 2
            elif step > 1:
                step = 1
            else:
                refused.add(options[0])
        if len(current) > 2 * self._bounds.atoms:
            self._absorbed |= current

    def _enumerate(self, atoms: Sequence[FusionAtom]) -> None:
        """All small sets of these atoms, smallest first, so that a bound cuts off the largest ones everywhere alike."""
        counts: dict[FusionAtom, int] = dict.fromkeys(atoms, 0)
        frontier: list[AtomSet] = [frozenset((atom,)) for atom in atoms]
        seen: set[AtomSet] = set(frontier)
        while frontier:
            following: list[AtomSet] = []
            for current in frontier:
                first = min(current, key=lambda a: a.number)
                bound = self._out_of_bounds(len(current) + 1, counts[first])
                if bound or self._is_late():
                    if self._is_open(current, first, seen):
                        self._leave_out(late=not bound)
                    continue
                for grown in self._grown(current, first):
                    if grown in seen:
                        continue
                    bound = self._out_of_bounds(len(grown), counts[first])
                    if bound or self._is_late(grown):
                        self._leave_out(late=not bound)
                        break
                    seen.add(grown)
                    counts[first] += 1
                    if self._try_grown(grown) is not None:
                        following.append(grown)
            frontier = following

    def _try_grown(self, atoms: AtomSet) -> Candidate | None:
        """The candidate of a set that growth came to; None too for one whose code would take long to generate."""
        size = sum(self._sizes[atom] for atom in atoms)
        if size > MOST_CODE:
            self.space.refused.setdefault(atoms, f"its code would take long to generate: {size} operations")
            return None
        return self.try_add(atoms)

    def _grown(self, current: AtomSet, first: FusionAtom) -> list[AtomSet]:
        """The set with one neighbour more, made convex or left as it is, small ones first."""
        open_sets = self._with_one_more(current, first)
        closed = [self._graph.closure(atoms) for atoms in open_sets]
        return sorted(dict.fromkeys((*closed, *open_sets)), key=len)

    def _is_open(self, current: AtomSet, first: FusionAtom, seen: Collection[AtomSet]) -> bool:
        """Whether a set would grow to one that was not seen, were there no bounds."""
        open_sets = self._with_one_more(current, first)
        if any(atoms not in seen for atoms in open_sets):
            return True
        return any(self._graph.closure(atoms) not in seen for atoms in open_sets)

    def _with_one_more(self, current: AtomSet, first: FusionAtom) -> list[AtomSet]:
        """The set with each of its neighbours; only sets in which `first` is first."""
        return [current | {other} for other in self._neighbours(current) if other.number >= first.number]

    def _out_of_bounds(self, size: int, tried: int) -> bool:
        """Whether enumeration stops before a set, of which so many with the same first atom were tried."""
        bounds = self._bounds
        return size > bounds.atoms or tried >= bounds.sets_per_atom or len(self._tried) >= self._most_programs

    # ---- what others may compute once more -----------------------------------------------------------------------

    def _add_leaner(self) -> None:
        """The same sets, writing what others need to compute large values for themselves, instead of these."""
        for candidate in list(self.space.candidates):
            outputs = leaner_outputs(self._graph, candidate.atoms, candidate.outputs)
            if outputs and self._is_late():
                self._leave_out(late=True)
            elif outputs:
                self.try_add(candidate.atoms, outputs)

    def _neighbours(self, atoms: AtomSet) -> list[FusionAtom]:
        ordered = sorted(atoms, key=lambda a: a.number)
        found: dict[FusionAtom, None] = {}
        for relation in (self._makers, self._following, self._siblings):
            for atom in ordered:
                if relation is self._following and len(atoms) > 1 and atom in self._tiny:
                    continue
                for other in relation[atom]:
                    if other not in atoms:
                        found[other] = None
        return list(found)


def _count_scalars(program: TileProgram | OpaqueProgram) -> int:
    if isinstance(program, OpaqueProgram):
        return 0
    return sum(1 for phase in program.phases() for _ in statements(phase.steps))


def _inside(relation: _Relation, home: Mapping[FusionAtom, int]) -> _Relation:
    """A relation between atoms of one segment only."""
    return {atom: tuple(other for other in others if home[other] == home[atom]) for atom, others in relation.items()}


def _siblings(graph: AtomGraph) -> _Relation:
    """Atoms that read a value in common which is large enough for sharing its loads to matter."""
    found: dict[FusionAtom, dict[FusionAtom, None]] = {atom: {} for atom in graph.atoms}
    for value, readers in graph.readers.items():
        if value.type.nbytes < _TINY_BYTES:
            continue
        for first, second in _pairs(readers):
            found[first][second] = None
            found[second][first] = None
    return {atom: tuple(others) for atom, others in found.items()}


def _pairs(readers: Sequence[FusionAtom]) -> Iterator[tuple[FusionAtom, FusionAtom]]:
    """Neighbouring readers: enough to connect all of them."""
    for position in range(len(readers) - 1):
        yield readers[position], readers[position + 1]
