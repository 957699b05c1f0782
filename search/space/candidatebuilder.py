"""Sets of atoms made into candidates: lowered once for all that do the same work, or refused with the reason.

Most sets are convex: no path leaves them and comes back. A set that is not computes some values for itself alone, which
another kernel makes too: `y = x - 1` may be computed both where `t = sum(y)` is made and where `y / t` is. That is
allowed where these values are elementwise work; a reduction or a product is not done twice.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate, class_of, work_of
from autofuse.fusion.domain import Domain
from autofuse.fusion.userrules import NO_RULES
from autofuse.ir.graph import Value
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits, as_it_is
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.overlapped import kept_values
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.search.space.candidates import AtomSet, Candidate, Space
from autofuse.search.space.classes import digests
from autofuse.search.space.leaner import is_light
from autofuse.search.space.verdicts import elements, loops_of, repeats_little

MakeKernel = Callable[[AtomGraph, AtomSet, tuple[Value, ...]], KernelCandidate]
"""The kernel of a set that writes some values. Raises LegalityError for one that is not wanted."""

Steering = Callable[[KernelCandidate], str]
"""A digest of the values that steer a kernel; empty for one that nothing steers."""

_Key = tuple[AtomSet, tuple[Value, ...] | None]
"""A set, and what it writes where that was asked for."""
_RECOMPUTE = 3
_LEAST_SCALARS = 64


def unsteered(kernel: KernelCandidate) -> str:
    """Where no values are known: kernels that do the same work are of one class."""
    del kernel
    return ""


class SpaceBuilder:
    """Makes and lowers the candidates of a graph; verdicts are shared by structurally equal sets."""

    def __init__(
        self,
        atom_graph: AtomGraph,
        limits: Limits,
        kernel: MakeKernel = AtomGraph.candidate,
        known: SpaceBuilder | None = None,
        steering: Steering = unsteered,
    ) -> None:
        """`known`: one for the same limits; what it lowered is not lowered again.

        `steering`: what tells kernels apart that do the same work.
        """
        self.space = Space(atom_graph)
        self.tried: set[str] = set()
        """Structural digests of all kernels, where their slices begin included."""
        self.lowered_nodes = 0
        """Of all distinct kernels that were lowered, or wait for that."""
        self.is_ruled = atom_graph.control != NO_RULES
        """Whether a user's rules are kept, so that equal sets may have different verdicts."""
        self.classes_a_kind = limits.classes_a_kind
        """See `Limits`."""
        self.waits = False
        """Whether kernels of several atoms wait to be lowered until `confirmed` or `lower` asks for them, where all
        that decides whether they are kernels is that their loops fit together."""
        self.waiting: dict[_Key, Candidate] = {}
        """What waits, in the order of the space."""
        self._graph, self._limits, self._kernel, self._steering = atom_graph, limits, kernel, steering
        self._by_set: dict[_Key, Candidate | None] = {}
        self._reasons: dict[_Key, str] = {}
        self._computed: dict[FusionAtom, int] = {}
        """Elements that an atom computes, as a kernel of its own, for one of each result."""
        self._domains: dict[str, tuple[AtomSet, KernelCandidate, Domain]] = {}
        """By digest of the work of what waits, the first such kernel and its loops."""
        self._programs: dict[str, TileProgram | OpaqueProgram | str] = {} if known is None else known._programs
        """By digest of the work: a program, or why there is none."""
        self._scalars: dict[str, int] = {} if known is None else known._scalars
        """Of each program, how many scalar values it had before the target's passes: what its limit is about."""

    def require(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate:
        """The candidate of a set. Raises LegalityError with the reason if it cannot be a kernel.

        `outputs`: what it writes; by default all that others may need of it.
        """
        candidate = self.try_add(atoms, outputs)
        if candidate is None:
            raise LegalityError(self._named(atoms) + self._reasons[atoms, outputs])
        return candidate

    def try_add(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate | None:
        """The candidate of a set, or None; the reason is kept in `space.refused`. `outputs`: as for `require`."""
        key = atoms, outputs
        if key not in self._by_set:
            try:
                candidate = self._make(atoms, outputs)
            except LegalityError as error:
                self._refuse(key, str(error))
            else:
                self._by_set[key] = candidate
                self.space.candidates.append(candidate)
                if candidate.lowered is None:
                    self.waiting[key] = candidate
        return self._by_set[key]

    def confirmed(self, atoms: AtomSet) -> bool:
        """Whether a set that was added is a kernel for certain: one that waits is lowered."""
        waiting = self.waiting.get((atoms, None))
        return waiting is None or not isinstance(self.lower(waiting), str)

    def lower(self, waiting: Candidate) -> TileProgram | OpaqueProgram | str:
        """What a candidate that waits becomes, with all of its class; or why it is no kernel. See `settle`."""
        work = work_of(waiting.digest)
        if work not in self._programs:
            atoms, kernel, domain = self._domains[work]
            self._programs[work] = self._lower(kernel, work, self._most_scalars(atoms, kernel), domain)
        return self._programs[work]

    def as_it_is(self, candidate: Candidate) -> Candidate | None:
        """A candidate, lowered if by now its class is; None if it turned out to be no kernel."""
        if candidate.lowered is not None:
            return candidate
        program = self._programs.get(work_of(candidate.digest))
        if isinstance(program, str):
            return None
        return candidate if program is None else replace(candidate, lowered=program)

    def settle(self) -> None:
        """End of waiting: of the candidates that wait those stay in the space that `lower` made kernels."""
        settled: dict[Candidate, Candidate | None] = {}
        for key, candidate in self.waiting.items():
            program = self._programs.get(work_of(candidate.digest))
            if program is None:
                del self._by_set[key]
                self.space.weighed += 1
                settled[candidate] = None
            elif isinstance(program, str):
                self._refuse(key, program)
                settled[candidate] = None
            else:
                settled[candidate] = self._by_set[key] = replace(candidate, lowered=program)
        self.waits = False
        self.waiting.clear()
        self._domains.clear()
        found = (settled.get(candidate, candidate) for candidate in self.space.candidates)
        self.space.candidates[:] = [candidate for candidate in found if candidate is not None]

    def _refuse(self, key: _Key, reason: str) -> None:
        self._reasons[key] = reason
        atoms, outputs = key
        if outputs is None or self._by_set.get((atoms, None)) is None:  # else it is a kernel if it writes more
            self.space.refused[atoms] = reason
        self._by_set[key] = None

    def _named(self, atoms: AtomSet) -> str:
        """Which rule of the user asks for a kernel, if one does."""
        nodes = {node for atom in atoms for node in atom.nodes}
        rules = [t.rule for t in self._graph.control.together if len(t.nodes) > 1 and t.nodes <= nodes]
        return f"rules: {rules[0]}: " if rules and len(atoms) == 1 else ""

    def _make(self, atoms: AtomSet, outputs: tuple[Value, ...] | None) -> Candidate:
        if self.is_ruled:
            broken = self._graph.control.refusal(frozenset(node for atom in atoms for node in atom.nodes))
            if broken is not None:
                raise LegalityError(broken)
        if outputs is None:
            outputs = self._outputs(atoms)
        elif len(atoms) > 1 and not self._graph.left_to_others(atoms).isdisjoint(outputs):
            raise LegalityError("a path leaves the set and comes back")
        kernel = self._kernel(self._graph, atoms, outputs)
        pinned = self._graph.control.schedule_of(kernel.nodes) if self.is_ruled else None
        own, work = digests(kernel, pinned)
        self.tried.add(own)
        program = self._programs.get(work) or self._tried(atoms, kernel, work)
        if isinstance(program, str):
            raise LegalityError(program)
        return Candidate(atoms, kernel, class_of(work, self._steering(kernel)), program)

    def _tried(self, atoms: AtomSet, kernel: KernelCandidate, work: str) -> TileProgram | OpaqueProgram | str | None:
        """A kernel of a new class, lowered; or why there is none; None if it waits."""
        if work in self._domains:
            return None
        self.lowered_nodes += len(kernel.nodes)
        domain = loops_of(kernel) if self.waits and len(atoms) > 1 else None
        if domain is not None and repeats_little(kernel, self._elements(atoms)):
            self._domains[work] = atoms, kernel, domain
            return None
        program = self._programs[work] = self._lower(kernel, work, self._most_scalars(atoms, kernel), domain)
        return program

    def _elements(self, atoms: AtomSet) -> int:
        """Elements that atoms compute for one of each result, as kernels of their own."""
        for atom in atoms:
            if atom not in self._computed:
                self._computed[atom] = elements(self.require(frozenset((atom,))).kernel)
        return sum(self._computed[atom] for atom in atoms)

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

    def _lower(
        self, kernel: KernelCandidate, digest: str, scalars: int, domain: Domain | None
    ) -> TileProgram | OpaqueProgram | str:
        """The kernel lowered, or why it cannot be."""
        try:
            limits = replace(self._limits, scalars=scalars, passes=as_it_is)
            program = lower(kernel, Schedule(), f"k_{digest[:12]}", limits, domain)
        except LegalityError as error:
            return self._in_tiles(kernel, digest) or str(error)
        if _is_tiled(program):
            return self._in_tiles(kernel, digest) or f"more than {scalars} scalar values: too much is recomputed"
        self._scalars[digest] = _count_scalars(program)
        return program if isinstance(program, OpaqueProgram) else self._limits.passes(program)

    def _in_tiles(self, kernel: KernelCandidate, digest: str) -> TileProgram | None:
        """A kernel that computes too much anew, in tiles, if those that lower a plan's kernels have it so."""
        if not self._limits.overlaps or not kept_values(kernel):
            return None
        try:
            scalars = max(self._limits.scalars, plain_scalars(kernel))
            program = lower(
                kernel, Schedule(), f"k_{digest[:12]}", replace(self._limits, scalars=scalars, passes=as_it_is)
            )
        except LegalityError:
            return None
        if isinstance(program, OpaqueProgram) or not _is_tiled(program):
            return None
        self._scalars[digest] = _count_scalars(program)
        return self._limits.passes(program)

    def _most_scalars(self, atoms: AtomSet, kernel: KernelCandidate) -> int:
        """How large a kernel may become: a few times its parts; more is recomputation that cannot pay."""
        if len(atoms) == 1:
            return max(self._limits.scalars, plain_scalars(kernel))
        parts = sum(self._scalars[work_of(self.require(frozenset((atom,))).digest)] for atom in atoms)
        return min(self._limits.scalars, max(_LEAST_SCALARS, _RECOMPUTE * parts))


def _is_tiled(program: TileProgram | OpaqueProgram) -> bool:
    return not isinstance(program, OpaqueProgram) and any(phase.tile is not None for phase in program.phases())


def _count_scalars(program: TileProgram | OpaqueProgram) -> int:
    if isinstance(program, OpaqueProgram):
        return 0
    return sum(1 for phase in program.phases() for _ in statements(phase.steps))
