"""Prices of the candidate space: one per digest class, asked of the cost model in one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.cost_models.compiled import CompiledFacts
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.regionprograms import control_node
from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Store
from autofuse.lower.tile import Dot, OpaqueProgram, RowGroup, Space, Step, TileProgram
from autofuse.plan.document import RegionPlan
from autofuse.search.prices.priced import Priced
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.space.candidates import Candidate
from autofuse.search.space.candidates import Space as CandidateSpace

Compiler = Callable[[Sequence[TileProgram | OpaqueProgram]], Sequence[CompiledFacts | None]]
Facts = Mapping[str, CompiledFacts | None]
_BATCH = 16
"""Candidates that are priced between two looks at the clock."""


def nothing_is_compiled(programs: Sequence[TileProgram | OpaqueProgram]) -> Sequence[None]:
    """As a target does that has no compiler to ask."""
    return [None] * len(programs)


class OtherWay(NamedTuple):
    """A loop that could be run so."""

    schedule: Schedule
    price: ClassPrice
    regions: tuple[RegionPlan, ...]
    """See `PlannedKernel.regions`."""


class Regions(Protocol):
    """Plans loops and branches that are no kernel: what is inside, kernel by kernel, for a driver to run."""

    def plans(self, kernel: KernelCandidate) -> tuple[RegionPlan, ...]:
        """See `PlannedKernel.regions`."""
        ...

    def schedule(self, kernel: KernelCandidate) -> Schedule:
        """What was decided for it: that the driver runs it, or that it is a kernel after all."""
        ...

    def other_way(self, kernel: KernelCandidate) -> OtherWay | None:
        """What it is where it is run in the other way that it can be; None if there is none."""
        ...

    def price(self, kernel: KernelCandidate) -> ClassPrice:
        """What all iterations cost."""
        ...

    def parts(self, kernel: KernelCandidate) -> Sequence[tuple[float, float]]:
        """What the price is the sum of: how often each kernel inside runs, and what it takes; the driver's steps."""
        ...

    def notes(self, kernel: KernelCandidate) -> tuple[str, ...]:
        """What people should know of how the plans were found."""
        ...

    def joins(self, node: Node) -> bool:
        """Whether the iterations of a counted loop that have become one can share a kernel; then they do."""
        ...


class KernelPrices:
    """The model's prices, each asked for once."""

    def __init__(
        self, model: CostModel, compiler: Compiler = nothing_is_compiled, like: KernelPrices | None = None
    ) -> None:
        """`compiler`: see `autofuse.targets.base.Target.compiled`.

        `like`: prices by the same model for kernels of another graph; equal kernels cost the same.
        """
        self.model, self.compiler = model, compiler
        self._prices = dict[str, ClassPrice]() if like is None else like._prices
        self._compiled = dict[str, CompiledFacts | None]() if like is None else like._compiled
        self._saved: dict[str, float] = {}
        self.regions: Regions | None = None if like is None else like.regions
        """What plans and prices those of which `is_driven` is true; None: they are calls of the interpreter."""

    def of(self, candidates: Sequence[Candidate]) -> Mapping[str, ClassPrice]:
        """The price of every class of the candidates, and of those priced before."""
        fresh = [candidate for candidate in candidates if candidate.digest not in self._prices]
        driven = {candidate.digest: candidate for candidate in fresh if self.is_driven(candidate)}
        self._prices.update(class_prices(self.model, [c for c in fresh if c.digest not in driven]))
        if self.regions is not None:
            self._prices.update((digest, self.regions.price(c.kernel)) for digest, c in driven.items())
        return self._prices

    def facts(self, candidate: Candidate) -> KernelFacts:
        """What the model is told of a candidate."""
        return KernelFacts(candidate.program, self._compiled.get(candidate.digest))

    def is_driven(self, candidate: Candidate) -> bool:
        """Whether a candidate is a loop or a branch that is no kernel, and is planned."""
        is_call = isinstance(candidate.program, OpaqueProgram)
        return self.regions is not None and is_call and control_node(candidate.kernel) is not None

    def forget_driven(self, candidates: Iterable[Candidate]) -> None:
        """Price loops and branches that are no kernel anew when they are next asked for: their plans have changed."""
        for candidate in candidates:
            if self.is_driven(candidate):
                self._prices.pop(candidate.digest, None)

    def compile(self, candidates: Iterable[Candidate]) -> bool:
        """Have classes compiled that were not yet, and price them by what that told; whether a price changed."""
        fresh = {c.digest: c for c in candidates if c.digest not in self._compiled}
        if not fresh:
            return False
        told = self.compiler([candidate.program for candidate in fresh.values()])
        facts = dict(zip(fresh, told, strict=True))
        self._compiled.update(facts)
        known = [candidate for digest, candidate in fresh.items() if facts[digest] is not None]
        before = {candidate.digest: self._prices.get(candidate.digest) for candidate in known}
        self._prices.update(class_prices(self.model, known, self._compiled))
        changed = [digest for digest, price in before.items() if self._prices[digest] != price]
        for digest in changed:
            self._saved.pop(digest, None)
        return bool(changed)

    def saved(self, space: CandidateSpace) -> Mapping[str, float]:
        """The share of a class's price that leaving out all its optional outputs saves, where the model can tell."""
        prices = self.of(space.candidates)
        left_out: dict[str, tuple[Candidate, list[int]]] = {}
        for candidate in space.candidates:
            optional = optional_outputs(space.atom_graph, candidate)
            if optional and candidate.digest not in self._saved:
                left_out[candidate.digest] = candidate, [candidate.outputs.index(value) for value in optional]
        for digest, us in bare_prices(self.model, left_out, self._compiled).items():
            self._saved[digest] = max(0.0, 1.0 - us / max(prices[digest].predicted_us, 1e-9))
        return self._saved

    def keep_priced(self, space: CandidateSpace, is_late: Callable[[], bool]) -> int:
        """Price the space's candidates in turn until it is late, single atoms always; take the others out of it.

        Returns how many there were of these.
        """
        for start in range(0, len(space.candidates), _BATCH):
            batch = space.candidates[start : start + _BATCH]
            if start and is_late():
                batch = [candidate for candidate in batch if len(candidate.atoms) == 1]
            part = replace(space, candidates=batch)
            self.of(batch)
            if start and is_late():
                self._saved.update((c.digest, 1.0) for c in batch if c.digest not in self._saved)
            self.saved(part)
        kept = [candidate for candidate in space.candidates if candidate.digest in self._prices]
        left_out = len(space.candidates) - len(kept)
        space.candidates[:] = kept
        return left_out


def priced(
    space: CandidateSpace, us: Mapping[str, float], model: CostModel, saved: Mapping[str, float]
) -> list[Priced]:
    """The candidates at given prices per class, but for those priced infinite.

    Outputs that the kernel itself reads further get a price of their own, so that they may be left out. `saved`: see
    `KernelPrices.saved`; absent for a class: as if nothing hid the writing.
    """
    return [
        _priced(space.atom_graph, candidate, us[candidate.digest], model, saved.get(candidate.digest, 1.0))
        for candidate in space.candidates
        if us[candidate.digest] < math.inf
    ]


def _priced(atoms: AtomGraph, candidate: Candidate, us: float, model: CostModel, saved: float) -> Priced:
    optional = optional_outputs(atoms, candidate)
    if not optional:
        return Priced(candidate, us, {})
    share = min(0.8, 0.9 * len(optional) / max(len(candidate.outputs), 1))
    costs = [model.write_us(value.type) for value in optional]
    writes = {v: min(float(c), us * share / len(optional)) for v, c in zip(optional, costs, strict=True)}
    scale = min(1.0, us * saved / max(sum(writes.values()), 1e-9))
    writes = {value: cost * scale for value, cost in writes.items()}
    return Priced(candidate, us - sum(writes.values()), writes)


def optional_outputs(atoms: AtomGraph, candidate: Candidate) -> list[Value]:
    """What a candidate may leave out: it reads that itself, and the caller does not."""
    return [
        value
        for value in candidate.outputs
        if value not in atoms.returned and any(reader in candidate.atoms for reader in atoms.readers.get(value, ()))
    ]


def class_prices(
    model: CostModel, candidates: Sequence[Candidate], compiled: Facts = MappingProxyType({})
) -> dict[str, ClassPrice]:
    """Price the digest classes of `candidates`; classes that share a program share its price.

    `compiled`: by digest, what compilers said. Outputs are taken to be reused memory: fresh pages cost every partition
    the same, as all write the same outputs.
    """
    programs = {candidate.digest: candidate.program for candidate in candidates}
    distinct = {id(program): KernelFacts(program, compiled.get(digest)) for digest, program in programs.items()}
    prices = model.price(list(distinct.values()))
    rows, terms = ([None] * len(distinct) if said is None else said for said in (prices.features, prices.terms))
    found = {
        key: ClassPrice(float(us), bound, float(floor), float(sigma), prices.headroom, row, term)
        for key, us, bound, floor, sigma, row, term in zip(
            distinct, prices.us, prices.bound, prices.floor_us, prices.sigma, rows, terms, strict=True
        )
    }
    return {digest: found[id(program)] for digest, program in programs.items()}


def bare_prices(
    model: CostModel, left_out: Mapping[str, tuple[Candidate, Sequence[int]]], compiled: Facts = MappingProxyType({})
) -> dict[str, float]:
    """By digest, the price of a class whose outputs of these numbers are not written; absent where that is not known.

    It is taken to need the registers that `compiled` says, by digest, of the class that writes everything. What outputs
    cost is not what writing them takes: a kernel bound by its computations hides it.
    """
    keys = {digest: (id(candidate.program), tuple(numbers)) for digest, (candidate, numbers) in left_out.items()}
    distinct = {keys[digest]: entry for digest, entry in left_out.items()}
    bare = {key: _without(candidate, numbers) for key, (candidate, numbers) in distinct.items()}
    told = {keys[digest]: compiled.get(digest) for digest in left_out}
    known = {key: KernelFacts(program, told[key]) for key, program in bare.items() if program is not None}
    prices = model.price(list(known.values()))
    found = {key: float(us) for key, us in zip(known, prices.us, strict=True)}
    return {digest: found[key] for digest, key in keys.items() if key in found}


def _without(candidate: Candidate, numbers: Sequence[int]) -> TileProgram | None:
    """The program less some of its outputs; None if a product makes one of them."""
    program = candidate.program
    if not isinstance(program, TileProgram):
        return None
    outputs = [buffer.name for buffer in program.buffers if buffer.space is Space.OUTPUT]
    gone = {outputs[number] for number in numbers}
    if any(isinstance(step, Dot) and step.out.buffer in gone for phase in program.phases() for step in phase.steps):
        return None
    launches = tuple(
        tuple(replace(phase, steps=tuple(_step_without(step, gone) for step in phase.steps)) for phase in launch)
        for launch in program.launches
    )
    return replace(program, buffers=tuple(b for b in program.buffers if b.name not in gone), launches=launches)


def _step_without(step: Step, gone: set[str]) -> Step:
    if not isinstance(step, RowGroup):
        return step
    bodies = [tuple(s for s in stage.body if not (isinstance(s, Store) and s.buffer in gone)) for stage in step.stages]
    return RowGroup(tuple(replace(stage, body=body) for stage, body in zip(step.stages, bodies, strict=True)))
