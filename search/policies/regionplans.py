"""Plans of what is inside loops and branches that are no kernel: each program there is a problem of its own.

It is solved as the whole program is, by the same policy at the same prices. A loop costs its iterations times what one
costs, and what the target's driver takes for each; or less, where one kernel does all iterations of a block of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import LegalityError, SearchError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.loops import refusal
from autofuse.fusion.regionprograms import RegionProgram, control_node, region_program, region_programs
from autofuse.fusion.userrules import Control, Together, is_real
from autofuse.ir.graph import Graph, Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.tree import Branch, Leaf
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.looptree import GUESSED_TRIPS
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import ITERATIONS, Schedule
from autofuse.plan.document import PlanDocument, RegionPlan
from autofuse.search.plans.planning import Program
from autofuse.search.policies.context import Context
from autofuse.search.policies.deadline import BUDGETED, DECIDED, Deadline, choose
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.policies.workclock import WorkClock
from autofuse.search.prices.pricing import OtherWay, class_prices
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.space.candidates import Candidate

_SHARE = 0.5
"""Of the time for the whole program: for all programs inside it."""
_NOTHING = ClassPrice(0.0, "overhead", 0.0, 0.0)
BY_ROWS = Schedule.of({ITERATIONS: "rows"})
"""Of a loop that is one kernel of blocks of rows."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """One of the programs."""

    plan: RegionPlan
    price: ClassPrice
    """Of running it once."""
    notes: tuple[str, ...] = ()


class RegionPlans:
    """Plans of the loops and branches of one program, each made when it is first asked for.

    See `autofuse.search.prices.pricing.Regions`.
    """

    def __init__(self, policy: SearchPolicy, context: Context, seconds: float | None) -> None:
        """`context`: of the whole program. `seconds`: its deadline; the programs inside get a share, in work."""
        loops = max(1, _count_control(context.program.graph))
        self._policy, self._seconds = policy, None if seconds is None else _SHARE * seconds / loops
        self._context = replace(context, problem=replace(context.problem, memory=None))
        self._before: dict[KernelCandidate, _Planned] = {}
        self._regions: dict[tuple[Node, int], _Planned] = {}
        """By the number of the region: they are the same, whatever the kernel reads and writes beside its loop."""
        self._joined: set[tuple[Node, int]] = set()
        """Regions that are one kernel by a rule."""
        self._rows: dict[KernelCandidate, ClassPrice | str] = {}
        """See `_by_rows`."""

    def plans(self, kernel: KernelCandidate) -> tuple[RegionPlan, ...]:
        return () if self._is_by_rows(kernel) else tuple(planned.plan for planned in self._of(kernel))

    def schedule(self, kernel: KernelCandidate) -> Schedule:
        return BY_ROWS if self._is_by_rows(kernel) else Schedule()

    def price(self, kernel: KernelCandidate) -> ClassPrice:
        driven, rows = self._driven(kernel), self._by_rows(kernel)
        return rows if isinstance(rows, ClassPrice) and self._is_by_rows(kernel) else driven

    def parts(self, kernel: KernelCandidate) -> Sequence[tuple[float, float]]:
        if self._is_by_rows(kernel):
            return [(1.0, self.price(kernel).predicted_us)]
        node = _node(kernel)
        before, *regions = self._of(kernel)
        weighted = [(1.0, before), *((_times(node), region) for region in regions)]
        inside = [
            (times, each.measured_us or each.predicted_us or 0.0)
            for times, planned in weighted
            for each in planned.plan.kernels
        ]
        return [*inside, (1.0, self.price(kernel).predicted_us - sum(times * us for times, us in inside))]

    def other_way(self, kernel: KernelCandidate) -> OtherWay | None:
        """The kernel as it is not planned, where a driver and blocks of rows could both run it, and no rule decides."""
        rows = self._by_rows(kernel)
        if not isinstance(rows, ClassPrice) or self._context.control.schedule_of(kernel.nodes) is not None:
            return None
        if not self._is_by_rows(kernel):
            return OtherWay(BY_ROWS, rows, ())
        return OtherWay(Schedule(), self._driven(kernel), tuple(planned.plan for planned in self._of(kernel)))

    def notes(self, kernel: KernelCandidate) -> tuple[str, ...]:
        node, rows = _node(kernel), self._by_rows(kernel)
        driven_us = self._driven(kernel).predicted_us
        found: list[str] = []
        if self._is_by_rows(kernel):
            found.append(f"blocks of rows do all iterations in one kernel: a driver would take {driven_us:.4g} us")
        elif isinstance(rows, ClassPrice):
            found.append(f"a driver runs it: one kernel of blocks of rows would take {rows.predicted_us:.4g} us")
        elif rows:
            found.append(f"a driver runs it, and no kernel of blocks of rows: {rows}")
        if not self._is_by_rows(kernel):
            found += [note for planned in self._of(kernel) for note in planned.notes]
        return tuple(f"in {node.op} %{node.name}: {note}" for note in found)

    def _driven(self, kernel: KernelCandidate) -> ClassPrice:
        """What it costs where a driver runs it."""
        prices = [planned.price for planned in self._of(kernel)]
        return _total(_node(kernel), prices, self._context.limits.iteration_us or 0.0)

    def _is_by_rows(self, kernel: KernelCandidate) -> bool:
        """Whether one kernel does all iterations of a block of rows: where a rule says so, or that costs less."""
        rows, wanted = self._by_rows(kernel), self._context.control.schedule_of(kernel.nodes)
        if wanted is not None:
            if wanted.get(ITERATIONS.name) == "rows" and not isinstance(rows, ClassPrice):
                raise LegalityError(f"rules: Pin: {_node(kernel).op} %{_node(kernel).name}: {rows}")
            return wanted.get(ITERATIONS.name) == "rows"
        return isinstance(rows, ClassPrice) and rows.predicted_us < self._driven(kernel).predicted_us

    def _by_rows(self, kernel: KernelCandidate) -> ClassPrice | str:
        """What that costs; or why it cannot be, empty where the target has no such kernels."""
        if kernel not in self._rows:
            self._rows[kernel] = self._priced_by_rows(kernel)
        return self._rows[kernel]

    def _priced_by_rows(self, kernel: KernelCandidate) -> ClassPrice | str:
        limits = self._context.limits
        if ITERATIONS.name not in limits.decisions.by_name or role_of(_node(kernel)) is not Role.COUNTED_LOOP:
            return ""
        try:
            scalars = max(limits.scalars, plain_scalars(kernel))
            program = lower(kernel, BY_ROWS, "rows", replace(limits, scalars=scalars))
        except LegalityError as refused:
            return str(refused)
        candidate = Candidate(frozenset(), kernel, "rows", program)
        return class_prices(self._context.model, [candidate])["rows"]

    def shares(self, kernel: KernelCandidate) -> list[float]:
        """What each region of a loop or branch costs in all iterations, in microseconds; nothing where none is run."""
        node = _node(kernel)
        if self._is_by_rows(kernel):
            return [0.0] * len(node.regions)
        _, *regions = self._of(kernel)
        times = _times(node)
        return [times * region.price.predicted_us for region in regions]

    def context(self, node: Node, number: int) -> Context:
        """A region of a loop or branch as a program by itself; under a rule where it is to be one kernel."""
        context = self._about(node.name, region_program(node, number))
        return _as_one_kernel(context) if (node, number) in self._joined else context

    def joins(self, node: Node) -> bool:
        """Whether the iterations of a counted loop that have become one can share a kernel; then they do."""
        if (node, 0) in self._joined:
            return True
        context = self._about(node.name, region_program(node, 0))
        try:
            self._regions[node, 0] = self._chosen(_as_one_kernel(context))
        except (LegalityError, SearchError):
            return False
        self._joined.add((node, 0))
        return True

    def keep(self, node: Node, number: int, document: PlanDocument) -> None:
        """Plan a region as a plan of its `context` says."""
        known = self._regions[node, number]
        us = sum(kernel.measured_us or kernel.predicted_us or 0.0 for kernel in document.kernels)
        plan, made = RegionPlan(document.kernels, document.order), document.certificate
        notes = list(_hurried(document))
        if made is not None:
            notes.append(f"region {number} was tuned by itself: {made.measured} kernels measured, budget {made.budget}")
        price = replace(known.price, predicted_us=us)
        self._regions[node, number] = _Planned(plan, price, tuple(notes))

    def _about(self, name: str, region: RegionProgram) -> Context:
        bounds = replace(self._context.kernels.bounds, estimated=False)  # what runs many times is worth all prices
        return self._context.about(_program(name, region, self._context), bounds)

    def _of(self, kernel: KernelCandidate) -> list[_Planned]:
        node = _node(kernel)
        before, *regions = region_programs(kernel)
        if kernel not in self._before:
            self._before[kernel] = self._planned(node.name, before)
        for number, region in enumerate(regions):
            if (node, number) not in self._regions and not ("unrolled" in node.attrs and self.joins(node)):
                self._regions[node, number] = self._planned(node.name, region)
        return [self._before[kernel], *(self._regions[node, number] for number in range(len(regions)))]

    def _planned(self, name: str, region: RegionProgram) -> _Planned:
        if not region.graph.outputs:
            return _Planned(RegionPlan((), ()), _NOTHING)
        return self._chosen(self._about(name, region))

    def _chosen(self, context: Context) -> _Planned:
        identity = context.problem.target.identity
        if self._seconds is None:
            partition = self._policy.partition(context)
        else:
            context, partition = choose(self._policy, context, Deadline(self._seconds, WorkClock()), identity)
        document = document_of(context, partition, identity)
        notes = _hurried(document)
        return _Planned(RegionPlan(document.kernels, document.order), _sum(context, partition), notes)


def _as_one_kernel(context: Context) -> Context:
    """The same question, where all that is computed shares a kernel."""
    graph = context.program.graph
    nodes = frozenset(node for node in graph.nodes if is_real(node, graph))
    return context.ruled(Control((Together(nodes, alone=False, rules=("iterations that are one",)),)))


def _hurried(document: PlanDocument) -> tuple[str, ...]:
    """What deadlines decided."""
    return tuple(note for note in document.notes if DECIDED in note or BUDGETED in note)


def _program(name: str, region: RegionProgram, context: Context) -> Program:
    """A program inside as one by itself. `context`: of the whole one."""
    graph = region.graph
    arguments, results = (
        Branch("tuple", tuple(range(len(values))), tuple(Leaf() for _ in values))
        for values in (graph.inputs, graph.outputs[: len(graph.outputs) - len(region.writebacks)])
    )
    parameters = tuple(value.name for value in graph.inputs)
    numerics = context.program.numerics
    return Program(name, graph, arguments, results, parameters, region.writebacks, numerics=numerics)


def _node(kernel: KernelCandidate) -> Node:
    node = control_node(kernel)
    assert node is not None
    return node


def _count_control(graph: Graph) -> int:
    """Loops and branches, those inside others too."""
    regions = [region for node in graph.nodes for region in node.regions]
    return sum(role_of(node).is_control for node in graph.nodes) + sum(map(_count_control, regions))


def _sum(context: Context, partition: Partition) -> ClassPrice:
    """What the kernels of a partition cost together."""
    known = context.kernels.prices.of([chosen.candidate for chosen in partition.kernels])
    return _weighted([(1.0, known[chosen.candidate.digest]) for chosen in partition.kernels])


def _total(node: Node, prices: Sequence[ClassPrice], iteration_us: float) -> ClassPrice:
    """The price of a loop or branch: `prices` are of what stands before it and of its regions."""
    before, *regions = prices
    step = replace(_NOTHING, predicted_us=iteration_us)
    steps = 1.0 if role_of(node) is Role.BRANCH else _times(node)
    return _weighted([(1.0, before), (steps, step), *((_times(node), region) for region in regions)])


def driven_steps(node: Node) -> float:
    """Iterations of counted loops that a driver runs: of a node that is one, and of those inside."""
    if role_of(node) in (Role.COUNTED_LOOP, Role.LOOP) and refusal(node) is None:
        return 0.0
    inside = sum(driven_steps(inner) for region in node.regions for inner in region.nodes)
    return _times(node) * (inside + 1 if role_of(node) is Role.COUNTED_LOOP else inside) if node.regions else 0.0


def _times(node: Node) -> float:
    """How often each region of a node is run; each side of a branch half of the time."""
    match role_of(node):
        case Role.BRANCH:
            return 1 / len(node.regions)
        case Role.COUNTED_LOOP:
            return float(node.attrs["length"])
        case _:
            return float(GUESSED_TRIPS)


def _weighted(parts: Sequence[tuple[float, ClassPrice]]) -> ClassPrice:
    """The sum of prices, each so many times; bound by what bounds the dearest of them."""
    dearest = max((times * price.predicted_us, number) for number, (times, price) in enumerate(parts))[1]
    return ClassPrice(
        predicted_us=sum(times * price.predicted_us for times, price in parts),
        bound=parts[dearest][1].bound,
        floor_us=sum(times * price.floor_us for times, price in parts),
        sigma=max(price.sigma for _, price in parts),
        headroom=parts[dearest][1].headroom,
    )
