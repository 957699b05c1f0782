"""Search policies: each turns a program into a partition. What they share is in the context."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from autofuse.cost_models.base import CostModel
from autofuse.errors import ArgumentError, PlanError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.control import NO_RULES, Control
from autofuse.ir.graph import Value
from autofuse.lower.decisions import choosable, idle_decisions, illegal_decision
from autofuse.lower.lowering import Limits, lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import Identity
from autofuse.search.plans.concurrent_groups import SMALL_US
from autofuse.search.plans.memory import MemoryLimit
from autofuse.search.plans.planning import Program, Tuned, one_by_one, plan_document
from autofuse.search.prices.priced import Priced
from autofuse.search.prices.pricing import bare_prices, class_prices
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.solve.coverprogram import Room
from autofuse.search.solve.dominance import undominated
from autofuse.search.solve.solver import Chosen, Solution, lower_bound, solve
from autofuse.search.space.builder import AtomSet, Bounds, Candidate, Space, SpaceBuilder
from autofuse.search.space.classes import class_digest
from autofuse.search.space.restriction import UNRESTRICTED, Restriction

_BATCH = 16
"""Candidates that are priced between two looks at the clock."""


@dataclass(slots=True)
class Context:
    """What a policy may use."""

    program: Program
    model: CostModel
    limits: Limits
    deadline_s: float = 60.0
    """Most time for one solve."""
    control: Control = NO_RULES
    """The user's rules."""
    restriction: Restriction = UNRESTRICTED
    """What the search is kept from using; for studies."""
    bounds: Bounds = field(default_factory=Bounds)
    """How far the space is enumerated, and from which size on it is cut into segments."""
    memory: MemoryLimit | None = None
    """How much memory a plan may take."""
    _space: Space | None = field(default=None)
    _builder: SpaceBuilder | None = field(default=None)
    _prices: dict[str, ClassPrice] = field(default_factory=dict[str, ClassPrice])
    _bare: dict[str, float] = field(default_factory=dict[str, float])

    def of(self, program: Program) -> Context:
        """The same question about another graph. Prices are shared: they belong to kernels. Rules are not."""
        fresh = dict[str, float]()
        memory = None if self.memory is None else MemoryLimit(self.memory.nbytes, program, self.limits)
        return replace(self, program=program, control=NO_RULES, memory=memory, _space=None, _builder=None, _bare=fresh)

    @property
    def space(self) -> Space:
        """The full candidate space, enumerated at first use."""
        return self.enumerated() if self._space is None else self._space

    def enumerated(self, clock: Callable[[], float] = time.monotonic) -> Space:
        """The candidate space within the bounds, enumerated anew; what was lowered before is not lowered again."""
        atoms = AtomGraph(self.program.graph, control=self.control)
        self._builder = SpaceBuilder(atoms, self.limits, self.bounds, self.restriction, clock, self._builder)
        self._space = self._builder.build()
        return self._space

    def keep_priced(self, is_late: Callable[[], bool]) -> int:
        """Price the space's candidates in turn until it is late, single atoms always; forget the others.

        Returns how many there were of these.
        """
        space = self.space
        for start in range(0, len(space.candidates), _BATCH):
            batch = space.candidates[start : start + _BATCH]
            if start and is_late():
                batch = [candidate for candidate in batch if len(candidate.atoms) == 1]
            part = replace(space, candidates=batch)
            self.prices(part)
            if start and is_late():
                self._bare.update((c.digest, 1.0) for c in batch if c.digest not in self._bare)
            self.saved(part)
        kept = [candidate for candidate in space.candidates if candidate.digest in self._prices]
        left_out = len(space.candidates) - len(kept)
        space.candidates[:] = kept
        return left_out

    def is_of_space(self, partition: Partition) -> bool:
        """Whether a partition was chosen from the space."""
        return self._space is not None and partition.atoms is self._space.atom_graph

    def pinned(self, candidate: Candidate) -> Schedule | None:
        """The schedule that a rule of the user gives a kernel.

        Raises ArgumentError for one that is none, and for decisions that the kernel does not have.
        """
        nodes = [node for atom in candidate.atoms for node in atom.nodes]
        wanted = self.control.schedule_of(nodes)
        if wanted is None:
            return None
        try:
            schedule = Schedule.from_json(dict(wanted))
        except PlanError as error:
            raise ArgumentError(f"rules: Pin: {error}") from None
        idle = [key for key in wanted if key in idle_decisions(candidate.program)]
        if idle:
            names = ", ".join(sorted(node.name for node in nodes))
            raise ArgumentError(f"rules: Pin: schedule: there is no {idle[0]} to decide in the kernel of {names}")
        reason = illegal_decision(schedule, candidate.program)
        if reason is not None:
            raise ArgumentError(f"rules: Pin: schedule: {reason}")
        return schedule

    def try_add(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate | None:
        """The candidate of a set of the space's atoms, added to the space; None if it is no kernel.

        `outputs`: what it writes; by default all that others may need of it.
        """
        assert self.space is not None
        assert self._builder is not None
        usual = self._builder.try_add(atoms)
        if outputs is None or (usual is not None and usual.outputs == outputs):
            return usual
        return self._builder.try_add(atoms, outputs)

    def prices(self, space: Space) -> Mapping[str, ClassPrice]:
        """The model's price of every digest class."""
        fresh = [c for c in space.candidates if c.digest not in self._prices]
        self._prices.update(class_prices(self.model, fresh))
        return self._prices

    def as_written(self, atoms: AtomGraph, chosen: Chosen) -> Candidate:
        """The kernel that writes what a chosen one does in a partition, of all that its candidate can."""
        kernel = atoms.candidate(chosen.candidate.atoms, chosen.outputs)
        digest = class_digest(kernel)
        limits = replace(self.limits, scalars=max(self.limits.scalars, plain_scalars(kernel)))
        program = lower(kernel, Schedule(), f"k_{digest[:12]}", limits)
        return Candidate(chosen.candidate.atoms, kernel, digest, program)

    def price_as_written(self, atoms: AtomGraph, chosen: Chosen) -> ClassPrice:
        """The model's price of the same."""
        digest = class_digest(atoms.candidate(chosen.candidate.atoms, chosen.outputs))
        if digest not in self._prices:
            self._prices.update(class_prices(self.model, [self.as_written(atoms, chosen)]))
        return self._prices[digest]

    def saved(self, space: Space) -> Mapping[str, float]:
        """The share of a class's price that leaving out all its optional outputs saves, where the model can tell."""
        prices = self.prices(space)
        left_out: dict[str, tuple[Candidate, list[int]]] = {}
        for candidate in space.candidates:
            optional = _optional_outputs(space.atom_graph, candidate)
            if optional and candidate.digest not in self._bare:
                left_out[candidate.digest] = candidate, [candidate.outputs.index(value) for value in optional]
        for digest, us in bare_prices(self.model, left_out).items():
            self._bare[digest] = max(0.0, 1.0 - us / max(prices[digest].predicted_us, 1e-9))
        return self._bare


@dataclass(frozen=True, slots=True)
class Partition:
    """What a policy returns."""

    atoms: AtomGraph
    kernels: tuple[Chosen, ...]
    """In running order."""
    known: Mapping[str, Tuned]
    """Schedules and prices by digest of the chosen kernels."""
    price_us: float
    solution: Solution | None = None
    notes: tuple[str, ...] = ()
    """What people should know of how it was found."""


class SearchPolicy(Protocol):
    """Decides which kernels compute a program.

    A policy must return kernels whose outputs cover the program's, in an order in which each can run. It may be called
    from any thread, must not keep the context, and must give the same partition for the same context.
    """

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    def partition(self, context: Context) -> Partition:
        """Choose. Raises SearchError or LegalityError if it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Unfused:
    """One kernel per operation, as an eager library would run them; views cost nothing here either."""

    name: str = "unfused"

    def partition(self, context: Context) -> Partition:
        atoms = AtomGraph(context.program.graph, contract=False, control=context.control)
        builder = SpaceBuilder(atoms, context.limits)
        candidates = [builder.require(frozenset((atom,))) for atom in atoms.atoms]
        prices = context.prices(builder.space)
        kernels = tuple(Chosen(c, c.outputs) for c in candidates)
        return Partition(
            atoms, kernels, predicted(kernels, prices), sum(prices[c.digest].predicted_us for c in candidates)
        )


@dataclass(frozen=True, slots=True)
class Analytical:
    """The cheapest partition of the full space at the analytical model's prices."""

    name: str = "analytical"

    def partition(self, context: Context) -> Partition:
        space = context.space
        prices = context.prices(space)
        solution = solve_at(context, space, {digest: price.predicted_us for digest, price in prices.items()})
        return Partition(
            space.atom_graph, solution.kernels, predicted(solution.kernels, prices), solution.price_us, solution
        )


def solve_at(
    context: Context,
    space: Space,
    price: Mapping[str, float],
    deadline_s: float | None = None,
    unlike: Sequence[Collection[str]] = (),
) -> Solution:
    """The cheapest partition at the given prices per class; classes priced infinite are left out.

    `deadline_s`: by default the context's. `unlike`: as for `solve`. Raises SearchError if the classes that are left
    cannot compute the program, or not in the memory that there is.
    """
    priced = _all_priced(context, space, price, context.saved(space))
    seconds = context.deadline_s if deadline_s is None else deadline_s
    once = not context.restriction.recompute
    if context.memory is None:
        return solve(space.atom_graph, priced, seconds, unlike=unlike, once=once, segments=space.segments)

    def solve_within(rooms: Sequence[Room], left: float) -> Solution:
        segments = () if rooms else space.segments  # what is alive at one moment may be of several segments
        return solve(space.atom_graph, priced, left, unlike=unlike, once=once, segments=segments, rooms=rooms)

    def known(kernels: Sequence[Chosen]) -> Sequence[Tuned]:
        return _decided(context, Partition(space.atom_graph, tuple(kernels), {}, 0.0))

    return context.memory.solve(space.atom_graph, solve_within, seconds, known)


def dominated_at(context: Context, space: Space, price: Mapping[str, float]) -> int:
    """How many candidates the solver leaves out at the given prices per class, as two smaller ones cost no more."""
    priced = _all_priced(context, space, price, context.saved(space))
    return len(priced) - len(undominated(space.atom_graph, priced))


def bound_at(context: Context, space: Space, price: Mapping[str, float]) -> float:
    """What no partition costs less than at the given prices per class; at most the price of the cheapest one."""
    return lower_bound(space.atom_graph, _all_priced(context, space, price, {}), space.segments)


def _all_priced(context: Context, space: Space, price: Mapping[str, float], saved: Mapping[str, float]) -> list[Priced]:
    """`saved`: see `Context.saved`; absent for a class: as if nothing hid the writing."""
    return [
        _priced(context, space.atom_graph, candidate, us, saved.get(candidate.digest, 1.0))
        for candidate in space.candidates
        if (us := price[candidate.digest]) < float("inf")
    ]


def _priced(context: Context, atoms: AtomGraph, candidate: Candidate, us: float, saved: float) -> Priced:
    """Give outputs that the kernel itself reads further a price of their own, so that they may be left out."""
    optional = _optional_outputs(atoms, candidate)
    if not optional:
        return Priced(candidate, us, {})
    share = min(0.8, 0.9 * len(optional) / max(len(candidate.outputs), 1))
    costs = [context.model.write_us(value.type) for value in optional]
    writes = {v: min(float(c), us * share / len(optional)) for v, c in zip(optional, costs, strict=True)}
    scale = min(1.0, us * saved / max(sum(writes.values()), 1e-9))
    writes = {value: cost * scale for value, cost in writes.items()}
    return Priced(candidate, us - sum(writes.values()), writes)


def _optional_outputs(atoms: AtomGraph, candidate: Candidate) -> list[Value]:
    return [
        value
        for value in candidate.outputs
        if value not in atoms.returned and any(reader in candidate.atoms for reader in atoms.readers.get(value, ()))
    ]


def predicted(kernels: Iterable[Chosen], prices: Mapping[str, ClassPrice]) -> dict[str, Tuned]:
    """What the model says of each kernel, by digest."""
    return {
        chosen.candidate.digest: Tuned(
            predicted_us=prices[chosen.candidate.digest].predicted_us, bound=prices[chosen.candidate.digest].bound
        )
        for chosen in kernels
    }


def document_of(context: Context, partition: Partition, identity: Identity) -> PlanDocument:
    """A plan document for a partition, with the schedules and times that it knows, and the rules it keeps as notes.

    Where memory is limited, kernels run one by one if they must.
    """
    known = _decided(context, partition)
    small_us = SMALL_US if context.restriction.horizontal else 0.0
    document = plan_document(context.program, partition.atoms, partition.kernels, known, identity, small_us=small_us)
    if context.memory is not None and not context.memory.fits(document):
        # kernels that run together keep more alive
        document = one_by_one(document)
    notes = [f"kept rule: {rule}" for rule in context.control.rules]
    if context.is_of_space(partition):
        notes += space_notes(context.space)
    if partition.solution is not None:
        notes += _certainty(partition.solution, context.memory is not None)
    notes += partition.notes
    return replace(document, notes=(*document.notes, *notes))


def _decided(context: Context, partition: Partition) -> list[Tuned]:
    """What is known of each kernel of a partition, as it is there; users' schedules before others."""
    known: list[Tuned] = []
    for chosen in partition.kernels:
        tuned = partition.known.get(chosen.candidate.digest, Tuned())
        pinned = context.pinned(chosen.candidate)
        if pinned is not None:
            tuned = replace(tuned, schedule=pinned)
        if chosen.outputs != chosen.candidate.outputs:
            tuned = replace(tuned, measured_us=None)
            if tuned.schedule != Schedule():  # what is decided of an output goes with it
                written = context.as_written(partition.atoms, chosen)
                tuned = replace(tuned, schedule=choosable(tuned.schedule, written.program))
            if tuned.predicted_us is not None:
                price = context.price_as_written(partition.atoms, chosen)
                tuned = replace(tuned, predicted_us=price.predicted_us, bound=price.bound)
        known.append(tuned)
    return known


def space_notes(space: Space) -> Iterable[str]:
    """What was not searched."""
    if len(space.segments) > 1:
        yield (
            f"searched in {len(space.segments)} segments, as the program is large: no kernel crosses a cut between "
            "them, and bounds are those of such plans"
        )
    if space.cut_off:
        late = f"; {space.late} of them for want of time" if space.late else ""
        yield (
            f"searched among {len(space.candidates)} kernels; {space.cut_off} sets of operations were not grown "
            f"further, for their size or their number{late}"
        )


def _certainty(solution: Solution, limited: bool) -> Iterable[str]:
    """What was not proved of the choice among all kernels of the space."""
    if solution.segments > 1:
        proved = "" if solution.optimal else "it was not proved that "
        yield f"{proved}what was chosen in each segment is the cheapest there under these costs"
        return
    if solution.optimal:
        return
    why = "of those that keep the limit on memory" if limited else "the time was too short to prove it the cheapest"
    gap = f"under these costs no plan takes less than {solution.bound_us:.4g} us, this one {solution.price_us:.4g}"
    yield f"the best partition found, {why}: {gap}"
