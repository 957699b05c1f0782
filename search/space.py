"""The candidate space: connected sets of atoms that can be one kernel.

Sets grow from every atom along the edges to producers, consumers and siblings that read the same value. Most are
convex: no path leaves them and comes back. A set that is not computes some values for itself alone, which another
kernel makes too: `y = x - 1` may be computed both where `t = sum(y)` is made and where `y / t` is. That is allowed
where these values are elementwise work; a fold or a product is not done twice.

Growth is bounded in size and number; what a bound cut off is counted, never hidden. Whatever the bounds, the space
holds the singletons and, from every atom that no large fusion has taken in yet, the sets that greedy growth reaches: so
there is always a cover, and the large fusions are always present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import subgraph_digest
from autofuse.ir.graph import Node, Value
from autofuse.ir.optable import Family, lookup
from autofuse.lower.lowering import Limits, lower, plain_scalars
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.search.restriction import UNRESTRICTED, Restriction

AtomSet = frozenset[FusionAtom]
_Key = tuple[AtomSet, tuple[Value, ...] | None]
"""A set, and what it writes where that was asked for."""

_RECOMPUTE = 3
_LEAST_SCALARS = 64
_TINY_BYTES = 4096
"""Sharing the loads of a value smaller than this is worth nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One member of the space."""

    atoms: AtomSet
    kernel: KernelCandidate
    digest: str
    """Equal for kernels that differ only in names: they are priced and tuned once."""
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
    """Enumeration stops when this many distinct kernels have been tried."""


@dataclass(slots=True)
class Space:
    """The candidates of one graph."""

    atom_graph: AtomGraph
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    refused: dict[AtomSet, str] = field(default_factory=dict[AtomSet, str])
    """Why a set that was tried is no kernel."""
    cut_off: int = 0
    """Sets from which enumeration did not go on because of a bound."""

    @property
    def classes(self) -> Mapping[str, list[Candidate]]:
        """Candidates by digest."""
        found: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            found.setdefault(candidate.digest, []).append(candidate)
        return found


class SpaceBuilder:
    """Finds and lowers the candidates of a graph; verdicts are shared by structurally equal sets."""

    def __init__(
        self,
        atom_graph: AtomGraph,
        limits: Limits,
        bounds: Bounds = Bounds(),
        restriction: Restriction = UNRESTRICTED,
    ) -> None:
        self.space = Space(atom_graph)
        self._graph = atom_graph
        self._limits = limits
        self._bounds = bounds
        self._restriction = restriction
        self._by_set: dict[_Key, Candidate | None] = {}
        self._reasons: dict[_Key, str] = {}
        self._programs: dict[str, TileProgram | OpaqueProgram | str] = {}
        self._siblings = _siblings(atom_graph)
        self._absorbed: set[FusionAtom] = set()
        """Atoms that greedy growth from another one took into a large kernel."""
        self._following = atom_graph.successors
        self._tiny = {a for a in atom_graph.atoms if all(v.type.nbytes < _TINY_BYTES for v in atom_graph.writes[a])}
        """Atoms whose results tie nothing together: a scalar that a hundred kernels read joins one of them at most."""

    def build(self, extra: Iterable[AtomSet] = ()) -> Space:
        """Enumerate. `extra` sets (those of rule policies) are added if they are legal."""
        for atom in self._graph.atoms:
            self.require(frozenset((atom,)))
        for atom in self._graph.atoms:
            if atom not in self._absorbed:
                self._grow_greedily(atom)
        self._enumerate()
        for atoms in extra:
            self.try_add(atoms)
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
                self._reasons[key] = self.space.refused[atoms] = str(error)
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
        broken = self._graph.control.refusal(frozenset(node for atom in atoms for node in atom.nodes))
        if broken is not None:
            raise LegalityError(broken)
        if outputs is None:
            outputs = self._outputs(atoms)
        elif len(atoms) > 1 and not self._graph.left_to_others(atoms).isdisjoint(outputs):
            raise LegalityError("a path leaves the set and comes back")
        kernel = self._restriction.kernel(self._graph, atoms, outputs)
        digest = subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs)
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
        makers = {self._graph.atom_of[self._graph.graph.producers[value]] for value in left}
        heavy = next((node.name for atom in makers for node in atom.nodes if not _is_light(node)), None)
        if heavy is not None:
            raise LegalityError(f"a path leaves the set and comes back, and %{heavy} is not worth doing twice")
        written = tuple(value for value in required if value not in left)
        needed = self._graph.needed(atoms, written)
        if needed != atoms:
            idle = min(atoms - needed, key=lambda atom: atom.number)
            raise LegalityError(f"a path leaves the set and comes back, and nothing here needs {idle}")
        return written

    def _lower(self, kernel: KernelCandidate, digest: str, scalars: int) -> TileProgram | OpaqueProgram | str:
        try:
            return lower(kernel, Schedule(), f"k_{digest[:12]}", replace(self._limits, scalars=scalars))
        except LegalityError as error:
            return str(error)

    def _most_scalars(self, atoms: AtomSet, kernel: KernelCandidate) -> int:
        """How large a kernel may become: a few times its parts; more is recomputation that cannot pay."""
        if len(atoms) == 1:
            return max(self._limits.scalars, plain_scalars(kernel))
        parts = sum(_count_scalars(self.require(frozenset((atom,))).program) for atom in atoms)
        return min(self._limits.scalars, max(_LEAST_SCALARS, _RECOMPUTE * parts))

    # ---- growth --------------------------------------------------------------------------------------------------

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
            grown = self._closure(current | frozenset(options[:step]))
            if self.try_add(grown) is not None:
                current = grown
                step *= 2
            elif step > 1:
                step = 1
            else:
                refused.add(options[0])
        if len(current) > 2 * self._bounds.atoms:
            self._absorbed |= current

    def _enumerate(self) -> None:
        """All small sets, smallest first, so that a bound cuts off the largest ones everywhere alike."""
        counts: dict[FusionAtom, int] = dict.fromkeys(self._graph.atoms, 0)
        frontier: list[AtomSet] = [frozenset((atom,)) for atom in self._graph.atoms]
        seen: set[AtomSet] = set(frontier)
        while frontier:
            following: list[AtomSet] = []
            for current in frontier:
                first = min(current, key=lambda a: a.number)
                for grown in self._grown(current, first):
                    if grown in seen:
                        continue
                    if self._out_of_bounds(grown, counts[first]):
                        self.space.cut_off += 1
                        break
                    seen.add(grown)
                    counts[first] += 1
                    if self.try_add(grown) is not None:
                        following.append(grown)
            frontier = following

    def _grown(self, current: AtomSet, first: FusionAtom) -> Iterator[AtomSet]:
        """The set with one neighbour more, made convex or left as it is; only sets in which `first` is first.

        Small ones come first.
        """
        later = [neighbour for neighbour in self._neighbours(current) if neighbour.number >= first.number]
        open_sets = [current | {neighbour} for neighbour in later]
        closed = [self._closure(atoms) for atoms in open_sets]
        yield from sorted(dict.fromkeys((*closed, *open_sets)), key=len)

    def _out_of_bounds(self, atoms: AtomSet, tried: int) -> bool:
        """Whether enumeration stops before a set, of which so many with the same first atom were tried."""
        bounds = self._bounds
        return len(atoms) > bounds.atoms or tried >= bounds.sets_per_atom or len(self._programs) >= bounds.classes

    def _closure(self, atoms: AtomSet) -> AtomSet:
        """Add the atoms that lie on paths between members, so that the set is convex."""
        low, high = min(a.number for a in atoms), max(a.number for a in atoms)
        below = _reach(atoms, self._graph.successors, low, high)
        above = _reach(atoms, self._graph.predecessors, low, high)
        return atoms | (below & above)

    def _neighbours(self, atoms: AtomSet) -> list[FusionAtom]:
        ordered = sorted(atoms, key=lambda a: a.number)
        found: dict[FusionAtom, None] = {}
        for relation in (self._graph.predecessors, self._following, self._siblings):
            for atom in ordered:
                if relation is self._following and len(atoms) > 1 and atom in self._tiny:
                    continue
                for other in relation[atom]:
                    if other not in atoms:
                        found[other] = None
        return list(found)


def _is_light(node: Node) -> bool:
    """Whether computing a node's elements again may cost less than keeping them."""
    return lookup(node.op).family in (Family.ELEMENTWISE, Family.INDEX, Family.LEAF)


def _count_scalars(program: TileProgram | OpaqueProgram) -> int:
    if isinstance(program, OpaqueProgram):
        return 0
    return sum(1 for phase in program.phases() for _ in statements(phase.steps))


def _reach(
    atoms: AtomSet, edges: Mapping[FusionAtom, Sequence[FusionAtom]], low: int, high: int
) -> frozenset[FusionAtom]:
    seen: set[FusionAtom] = set()
    todo = list(atoms)
    while todo:
        for other in edges[todo.pop()]:
            if low <= other.number <= high and other not in seen:
                seen.add(other)
                todo.append(other)
    return frozenset(seen)


def _siblings(graph: AtomGraph) -> Mapping[FusionAtom, tuple[FusionAtom, ...]]:
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
