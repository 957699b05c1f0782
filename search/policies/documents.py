"""Partitions written down as plans, with what is known of their kernels, and what was not searched or not proved."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.fusion.atoms import AtomGraph
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import Identity
from autofuse.runtime.planlowering import lower_kernel
from autofuse.search.plans.planning import Tuned, one_by_one, plan_document
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.prices.pricing import KernelPrices
from autofuse.search.solve.solver import Chosen, Solution
from autofuse.search.space.candidates import Candidate, Space
from autofuse.search.space.classes import class_digest
from autofuse.targets.base import Target


def document_of(context: Context, partition: Partition, identity: Identity) -> PlanDocument:
    """A plan document for a partition, with the schedules and times that it knows, and the rules it keeps as notes.

    Where memory is limited, kernels run one by one if they must.
    """
    known, problem = decided(context, partition), context.problem
    atoms, kernels = partition.atoms, partition.kernels
    document = plan_document(problem.program, atoms, kernels, known, identity, problem.grouping)
    if problem.memory is not None and not problem.memory.fits(document):
        document = one_by_one(document)  # kernels that run together keep more alive
    notes = [f"kept rule: {rule}" for rule in problem.control.rules]
    if context.kernels.known is not None and partition.atoms is context.space.atom_graph:
        notes += space_notes(context.space)
    if partition.solution is not None:
        notes += _certainty(partition.solution, partition.price_us, problem.memory is not None)
    notes += library_notes(document, problem.target, context.limits)
    notes += dict.fromkeys(_notes_of_regions(context.kernels.prices, kernels))
    notes += partition.notes
    return replace(document, notes=(*document.notes, *notes))


def _notes_of_regions(prices: KernelPrices, kernels: Iterable[Chosen]) -> Iterable[str]:
    """What is to be said of how loops and branches were planned."""
    for chosen in kernels:
        if prices.regions is not None and prices.is_driven(chosen.candidate):
            yield from prices.regions.notes(chosen.candidate.kernel)


def library_notes(document: PlanDocument, target: Target, limits: Limits) -> Iterable[str]:
    """What a target says of kernels that are no generated code, where the plan has any; of equal words once."""
    said: dict[str, list[str]] = {}
    for planned in document.kernels:
        if planned.kind in ("library", "interpreter"):
            note = target.library_note(lower_kernel(document.graph, planned, limits).program)
            if note is not None:
                said.setdefault(note, []).append(planned.name)
    for note, names in said.items():
        yield f"{', '.join(names)}: {note}"


def decided(context: Context, partition: Partition) -> list[Tuned]:
    """What is known of each kernel of a partition, as it is there; users' schedules before others."""
    known: list[Tuned] = []
    prices = context.kernels.prices
    for chosen in partition.kernels:
        tuned = partition.known.get(chosen.candidate.digest, Tuned())
        pinned = context.pinned(chosen.candidate)
        if pinned is not None:
            tuned = replace(tuned, schedule=pinned)
        if prices.regions is not None and prices.is_driven(chosen.candidate):
            kernel = partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs)
            schedule = prices.regions.schedule(kernel) if pinned is None else pinned
            tuned = replace(tuned, regions=prices.regions.plans(kernel), schedule=schedule)
        if chosen.outputs != chosen.candidate.outputs:
            tuned = _writing_less(context, partition.atoms, chosen, replace(tuned, measured_us=None))
        known.append(tuned)
    return known


def _writing_less(context: Context, atoms: AtomGraph, chosen: Chosen, tuned: Tuned) -> Tuned:
    """What is known of a kernel that does not write all that its candidate can."""
    kernel = atoms.candidate(chosen.candidate.atoms, chosen.outputs)
    digest, prices = class_digest(kernel), context.kernels.prices

    def written() -> Candidate:
        limits = replace(context.limits, scalars=max(context.limits.scalars, plain_scalars(kernel)))
        return Candidate(chosen.candidate.atoms, kernel, digest, lower(kernel, Schedule(), f"k_{digest[:12]}", limits))

    if tuned.schedule != Schedule():  # what is decided of an output goes with it
        tuned = replace(tuned, schedule=context.limits.decisions.choosable(tuned.schedule, written().program))
    if tuned.predicted_us is not None:
        if digest not in prices.of(()):
            kernels = [written()]
            prices.of(kernels)
            prices.compile(kernels)
        price = prices.of(())[digest]
        tuned = replace(tuned, predicted_us=price.predicted_us, bound=price.bound)
    return tuned


def space_notes(space: Space) -> Iterable[str]:
    """What was not searched."""
    if len(space.segments) > 1:
        yield (
            f"searched in {len(space.segments)} segments, as the program is large: no kernel crosses a cut between "
            "them, and bounds are those of such plans"
        )
    if space.weighed:
        yield (
            f"{space.weighed} more kernels were left out by an estimate of their price from those of their parts; "
            "deadline=None prices all"
        )
    if space.cut_off:
        late = f"; {space.late} of them for want of time" if space.late else ""
        yield (
            f"searched among {len(space.candidates)} kernels; {space.cut_off} sets of operations were not grown "
            f"further, for their size or their number{late}"
        )


def _certainty(solution: Solution, price_us: float, limited: bool) -> Iterable[str]:
    """What was not proved of the choice among all kernels of the space. `price_us`: of the plan."""
    if solution.segments > 1:
        proved = "" if solution.optimal else "it was not proved that "
        yield f"{proved}what was chosen in each segment is the cheapest there under these costs"
        return
    if solution.optimal:
        return
    why = "of those that keep the limit on memory" if limited else "the time was too short to prove it the cheapest"
    gap = f"under these costs no plan takes less than {solution.bound_us:.4g} us, this one {price_us:.4g}"
    yield f"the best partition found, {why}: {gap}"
