"""From a plan document to lowered kernels: which buffers each reads and writes, and in which order they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.errors import LegalityError, PlanError
from autofuse.fusion.candidate import KernelCandidate, candidate_of
from autofuse.fusion.regionprograms import RegionProgram, region_programs
from autofuse.ir.graph import Graph, Value
from autofuse.ir.optable import has_calls
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.limits import Limits
from autofuse.lower.rewrite import renamed_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import (
    Buffer,
    OpaqueProgram,
    Space,
    TileProgram,
)
from autofuse.plan.document import Launch, PlanDocument, PlannedKernel
from autofuse.runtime.likekernels import LikeKernels


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One kernel of a plan, lowered."""

    planned: PlannedKernel
    program: TileProgram | OpaqueProgram
    reads: tuple[Value, ...]
    """Values behind the program's INPUT buffers, in order."""
    writes: tuple[Value, ...]
    """Values behind its OUTPUT buffers, in order."""
    group_place: int = 0
    apart: bool = False
    """See `Launch.apart`."""
    regions: tuple[LoweredRegion, ...] = ()
    """See `PlannedKernel.regions`."""

    @property
    def workspaces(self) -> tuple[Buffer, ...]:
        """Global memory private to the kernel."""
        return tuple(b for b in self.program.buffers if b.space is Space.WORKSPACE)


@dataclass(frozen=True, slots=True)
class LoweredRegion:
    """A program inside a loop or a branch, lowered."""

    program: RegionProgram
    kernels: tuple[LoweredKernel, ...]
    """In running order."""


def lower_plan(document: PlanDocument, limits: Limits) -> tuple[LoweredKernel, ...]:
    """Lower every kernel, in running order. Raises PlanError if one is not legal: the plan is not ours.

    Each decision of a schedule is compared with those that a search could have made for the kernel.
    """
    _require_choosable(document.graph, document.kernels, limits)
    return lower_as_scheduled(document, limits)


def lower_as_scheduled(document: PlanDocument, limits: Limits) -> tuple[LoweredKernel, ...]:
    """Lower every kernel, in running order, under any schedule that code can be generated for.

    For plans that this process made to try decisions out; `lower_plan` is for those that may come from a file. Raises
    PlanError if a kernel is not a legal fusion.
    """
    return _in_order(document.graph, document.kernels, document.order, limits)


def _in_order(
    graph: Graph, kernels: Sequence[PlannedKernel], order: Sequence[Launch], limits: Limits
) -> tuple[LoweredKernel, ...]:
    alike = LikeKernels(limits)
    return tuple(
        replace(_lowered(graph, kernels[launch.kernel], alike), group_place=launch.group_place, apart=launch.apart)
        for launch in order
    )


def _require_choosable(graph: Graph, kernels: Sequence[PlannedKernel], limits: Limits, where: str = "") -> None:
    for number, planned in enumerate(kernels):
        path = f"{where}kernels[{number}]"
        if planned.schedule != Schedule():
            plain = lower_kernel(graph, replace(planned, schedule=Schedule()), limits)
            reason = limits.decisions.refusal(planned.schedule, plain.program)
            if reason is not None:
                raise PlanError(f"plan: {path}.schedule.{reason}")
        if planned.regions:
            programs = region_programs(candidate_of(graph, planned.nodes, planned.outputs))
            for place, (program, region) in enumerate(zip(programs, planned.regions, strict=True)):
                _require_choosable(program.graph, region.kernels, limits, f"{path}.regions[{place}].")


def programs_of(kernels: Iterable[LoweredKernel]) -> list[TileProgram | OpaqueProgram]:
    """What kernels run, those inside of loops and branches that a driver runs in place of these."""
    found: list[TileProgram | OpaqueProgram] = []
    for kernel in kernels:
        inside = [inner for region in kernel.regions for inner in region.kernels]
        found += programs_of(inside) if kernel.regions else [kernel.program]
    return found


def groups_of(kernels: Sequence[LoweredKernel]) -> list[int]:
    """The number of the group each kernel runs in: those of one group run at the same time, groups one by one.

    Kernels at increasing places form a group. One that needs what another of its group makes waits for the next group;
    so does a library call, whose errors must arise on the calling thread.
    """
    groups: list[int] = []
    made: set[Value] = set()
    before: LoweredKernel | None = None
    for kernel in kernels:
        if before is None or not _runs_beside(kernel, before, made):
            groups.append(groups[-1] + 1 if groups else 0)
            made.clear()
        else:
            groups.append(groups[-1])
        made.update(kernel.writes)
        before = kernel
    return groups


def is_generated(program: TileProgram | OpaqueProgram) -> bool:
    """Whether a kernel is generated code; else it is a call of the interpreter."""
    return isinstance(program, TileProgram) or program.is_coded


def _runs_beside(kernel: LoweredKernel, before: LoweredKernel, made: set[Value]) -> bool:
    """Whether a kernel can join the group that `before` is the last of and that makes `made`."""
    if not (is_generated(kernel.program) and is_generated(before.program)):
        return False
    return kernel.group_place > before.group_place and made.isdisjoint((*kernel.reads, *kernel.writes))


def lower_kernel(graph: Graph, planned: PlannedKernel, limits: Limits) -> LoweredKernel:
    """Lower one kernel of a plan. Raises PlanError if it is not legal."""
    return _lowered(graph, planned, LikeKernels(limits))


def _lowered(graph: Graph, planned: PlannedKernel, alike: LikeKernels) -> LoweredKernel:
    candidate, limits = candidate_of(graph, planned.nodes, planned.outputs), alike.limits
    try:
        program = limits.workspaces(alike.lowered(candidate, planned.schedule, planned.name))
    except LegalityError as error:
        raise PlanError(f"kernel {planned.name} of the plan is not a legal fusion: {error}") from error
    regions = _lowered_regions(candidate, program, planned, limits) if planned.regions else ()
    return LoweredKernel(planned, program, candidate.inputs, candidate.outputs, regions=regions)


def _lowered_regions(
    candidate: KernelCandidate, program: TileProgram | OpaqueProgram, planned: PlannedKernel, limits: Limits
) -> tuple[LoweredRegion, ...]:
    if limits.iteration_us is None:
        raise PlanError(f"kernel {planned.name} of the plan has regions: the target has no driver that runs them")
    if isinstance(program, TileProgram):
        raise PlanError(f"kernel {planned.name} of the plan has regions, but is one kernel")
    return tuple(
        LoweredRegion(inner, _in_order(inner.graph, region.kernels, region.order, limits))
        for inner, region in zip(region_programs(candidate), planned.regions, strict=True)
    )


def canonical(program: TileProgram) -> TileProgram:
    """The program with its buffers renamed by position and no name: equal for kernels that can share code."""
    names = {buffer.name: f"b{number}" for number, buffer in enumerate(program.buffers)}
    return renamed_program(program, names, name="")


def may_fail(program: TileProgram | OpaqueProgram) -> bool:
    """Whether a kernel can raise an error: it calls a function of a library; sorting and its like always succeed."""
    return isinstance(program, OpaqueProgram) and has_calls(program.graph)
