"""From a partition to a plan document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import count

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.kind import kind_of, title_of
from autofuse.fusion.regionprograms import control_node
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.digest import digest, subgraph_digest
from autofuse.ir.graph import Graph
from autofuse.ir.tree import Tree
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.limits import Limits
from autofuse.lower.overwriting import overwritings
from autofuse.lower.schedule import ITERATIONS, Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.passes.pipeline import Numerics
from autofuse.plan.document import GraphVariant, Launch, PlanDocument, PlannedKernel, RegionPlan
from autofuse.plan.identity import Identity
from autofuse.search.plans.concurrent_groups import Work, list_schedule
from autofuse.search.solve.solver import Chosen


@dataclass(frozen=True, slots=True)
class Program:
    """A traced function, cleaned up: what every policy starts from."""

    name: str
    graph: Graph
    in_tree: Tree
    out_tree: Tree
    parameters: tuple[str, ...]
    writebacks: tuple[int, ...]
    notes: tuple[str, ...] = ()
    cleaned: Graph | None = None
    """What `graph` was before it was finished, to be cleaned up in other ways; None where that is unknown."""
    variant: GraphVariant | None = None
    """How `graph` was cleaned up, if not as usual."""
    contiguous: tuple[int, ...] = ()
    """Inputs that must be C-contiguous."""
    bounds: tuple[BoundsCheck, ...] = ()
    """What indices must keep to."""
    numerics: Numerics = "strict"
    """What `graph` was allowed to become when it was cleaned up."""
    complex_inputs: tuple[int, ...] = ()
    """Inputs that are complex numbers to callers: `graph` has their parts."""
    complex_outputs: tuple[int, ...] = ()

    def document(
        self,
        kernels: Sequence[PlannedKernel],
        order: Sequence[Launch],
        identity: Identity,
        notes: Sequence[str] = (),
    ) -> PlanDocument:
        """A plan of this program. `notes`: beside the program's own."""
        return PlanDocument(
            name=self.name,
            backend=identity.backend,
            numerics=self.numerics,
            graph=self.graph,
            graph_digest=digest(self.graph),
            in_tree=self.in_tree,
            out_tree=self.out_tree,
            parameters=self.parameters,
            writebacks=self.writebacks,
            kernels=tuple(kernels),
            order=tuple(order),
            identity=identity,
            notes=(*self.notes, *notes),
            variant=self.variant,
            contiguous=self.contiguous,
            bounds=self.bounds,
            complex_inputs=self.complex_inputs,
            complex_outputs=self.complex_outputs,
        )

    def renamed(self, document: PlanDocument) -> PlanDocument:
        """A plan of an equal graph, found by its digest, with this function's name and argument structure."""
        return replace(
            document,
            name=self.name,
            in_tree=self.in_tree,
            out_tree=self.out_tree,
            parameters=self.parameters,
            writebacks=self.writebacks,
            contiguous=self.contiguous,
            bounds=self.bounds,
            complex_inputs=self.complex_inputs,
            complex_outputs=self.complex_outputs,
        )

    @property
    def to_vary(self) -> Graph:
        """The graph that choices of the clean-up are made on."""
        return self.graph if self.cleaned is None else self.cleaned


@dataclass(frozen=True, slots=True)
class Tuned:
    """What is known of one digest class, or of one kernel."""

    schedule: Schedule = field(default_factory=Schedule)
    predicted_us: float | None = None
    measured_us: float | None = None
    bound: str | None = None
    regions: tuple[RegionPlan, ...] = ()
    """See `PlannedKernel.regions`."""


def planned_kernels(
    atoms: AtomGraph, kernels: Sequence[Chosen], known: Sequence[Tuned]
) -> list[tuple[KernelCandidate, PlannedKernel]]:
    """The kernels of a partition, written down. `known`: what is known of each; () if nothing is."""
    names: set[str] = set()
    found: list[tuple[KernelCandidate, PlannedKernel]] = []
    for chosen, tuned in zip(kernels, known or [Tuned()] * len(kernels), strict=True):
        kernel = atoms.candidate(chosen.candidate.atoms, chosen.outputs)
        kind = _kind(kernel, chosen.candidate.program, tuned)
        planned = PlannedKernel(
            name=_unique(f"{kind}_{title_of(kernel)}", names),
            kind=kind,
            nodes=tuple(node.name for node in kernel.nodes),
            outputs=tuple(value.name for value in kernel.outputs),
            schedule=tuned.schedule,
            digest=subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs),
            predicted_us=tuned.predicted_us,
            measured_us=tuned.measured_us,
            bound=tuned.bound,
            regions=tuple(_renamed(region, names) for region in tuned.regions),
        )
        found.append((kernel, planned))
    return found


def _kind(kernel: KernelCandidate, program: TileProgram | OpaqueProgram, tuned: Tuned) -> str:
    """`driver` or `interpreter` for loops and branches that are no generated code: what runs them.

    `rows` for those that are, for blocks of rows.
    """
    if isinstance(program, OpaqueProgram) and control_node(kernel) is not None:
        if tuned.schedule[ITERATIONS] == "rows":
            return "rows"
        return "driver" if tuned.regions else "interpreter"
    return kind_of(kernel)


def plan_document(
    program: Program,
    atoms: AtomGraph,
    kernels: Sequence[Chosen],
    known: Sequence[Tuned],
    identity: Identity,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> PlanDocument:
    """Write down a partition. `kernels` in running order; `known`: what is known of each, () if nothing is.

    `limits`: which independent kernels are small enough to run at the same time.
    """
    planned = planned_kernels(atoms, kernels, known)
    timed = [(kernel, plan.measured_us or plan.predicted_us or math.inf) for kernel, plan in planned]
    return program.document([kernel for _, kernel in planned], launches_of(timed, limits), identity)


def launches_of(kernels: Sequence[tuple[KernelCandidate, float]], limits: Limits) -> list[Launch]:
    """The running order of kernels, in concurrent groups.

    `kernels`: in an order in which each can run, with its expected time; infinite for one that is to run alone.
    """
    works = [
        Work(kernel.inputs, kernel.outputs, us, [block.source for block in overwritings(kernel)])
        for kernel, us in kernels
    ]
    return [Launch(number, place) for number, place in list_schedule(works, limits)]


def run_otherwise(document: PlanDocument, number: int, kernel: KernelCandidate, tuned: Tuned) -> PlanDocument:
    """The plan with a loop run in another way. `number`, `kernel`: which it is. `tuned`: what is known of it then."""
    names = {name for other in document.kernels for name in _names(other)} - set(_names(document.kernels[number]))
    kind = "rows" if tuned.schedule[ITERATIONS] == "rows" else "driver"
    changed = replace(
        document.kernels[number],
        name=_unique(f"{kind}_{title_of(kernel)}", names),
        kind=kind,
        schedule=tuned.schedule,
        predicted_us=tuned.predicted_us,
        measured_us=None,
        bound=tuned.bound,
        regions=tuple(_renamed(region, names) for region in tuned.regions),
    )
    return replace(document, kernels=(*document.kernels[:number], changed, *document.kernels[number + 1 :]))


def _names(kernel: PlannedKernel) -> Iterator[str]:
    """The names of a kernel, and of those inside."""
    yield kernel.name
    for region in kernel.regions:
        for inner in region.kernels:
            yield from _names(inner)


def one_by_one(document: PlanDocument) -> PlanDocument:
    """The plan without concurrent groups: no two kernels run at the same time."""
    return replace(document, order=tuple(Launch(number) for number in range(len(document.kernels))))


def in_groups_apart(document: PlanDocument) -> PlanDocument:
    """The plan with the kernels of its concurrent groups started by themselves, not at once."""
    return replace(document, order=tuple(replace(launch, apart=True) for launch in document.order))


def started_each(document: PlanDocument) -> PlanDocument:
    """The plan with each kernel started in every call, where the target would replay those that follow each other."""
    return replace(document, replayed=False)


def _renamed(region: RegionPlan, taken: set[str]) -> RegionPlan:
    """The same plan with names that no other kernel has."""
    kernels = [
        replace(
            kernel,
            name=_unique(kernel.name, taken),
            regions=tuple(_renamed(inner, taken) for inner in kernel.regions),
        )
        for kernel in region.kernels
    ]
    return replace(region, kernels=tuple(kernels))


def _unique(name: str, taken: set[str]) -> str:
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)[:80]
    names = (clean if number == 0 else f"{clean}_{number}" for number in count())
    found = next(name for name in names if name not in taken)
    taken.add(found)
    return found
