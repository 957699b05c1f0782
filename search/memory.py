"""Plans within a limit on memory.

What a call needs depends on which values pass through memory, and on when each is alive. The solver knows the first
only. So it solves, the memory of its kernels is planned in their running order, and for each moment that needs too much
a row is added: of the values and workspaces alive then, not all at once. A selection with other values may be run in an
order in which fewer of them are alive together; then the row asks for more than it must. So a plan keeps the limit, but
it need not be the cheapest that does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Value
from autofuse.lower.lowering import Limits
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.plan.document import Launch, PlanDocument, PlannedKernel
from autofuse.runtime.kernels import LoweredKernel, candidate_of, lower_kernel
from autofuse.runtime.memory import MemoryPlan, Moment, plan_memory
from autofuse.search.coverprogram import Room
from autofuse.search.planning import Program, planned_kernels
from autofuse.search.solver import Chosen, Solution


@dataclass(slots=True)
class MemoryLimit:
    """How much memory plans of a program may take. Kernels of equal structure and schedule are lowered once."""

    nbytes: int
    """For arguments, constants, results, temporaries and workspaces together."""
    program: Program
    limits: Limits
    _lowered: dict[tuple[str, Schedule], TileProgram | OpaqueProgram] = field(
        default_factory=dict[tuple[str, Schedule], TileProgram | OpaqueProgram]
    )

    def memory(self, kernels: Sequence[PlannedKernel], order: Sequence[Launch]) -> MemoryPlan:
        """The memory of a plan. Raises PlanError for kernels that are not legal."""
        lowered = [self._lower(kernels[launch.kernel], launch.lane) for launch in order]
        return plan_memory(self.program.graph, self.program.writebacks, lowered)

    def fits(self, document: PlanDocument) -> bool:
        """Whether a plan keeps the limit."""
        return self.memory(document.kernels, document.order).peak_bytes <= self.nbytes

    def check(self, document: PlanDocument, policy: str) -> None:
        """Raise SearchError for a plan that takes more."""
        needed = self.memory(document.kernels, document.order).peak_bytes
        if needed > self.nbytes:
            raise SearchError(
                f"max_memory={self.nbytes}: the plan of policy={policy!r} takes {needed} bytes; allow more, or let "
                'policy="analytical" or "measured" look for one that takes less'
            )

    def solve(
        self, atoms: AtomGraph, solve: Callable[[Sequence[Room], float], Solution], deadline_s: float
    ) -> Solution:
        """The cheapest solution found that keeps the limit, its kernels running one by one.

        `solve`: the cheapest one with the given rows, in the given seconds. Raises SearchError if there is none.
        """
        start = time.monotonic()
        rooms: list[Room] = []
        least = float("inf")
        while True:
            try:
                solution = solve(rooms, max(deadline_s - (time.monotonic() - start), 0.0))
            except SearchError as error:
                if not rooms:
                    raise
                raise SearchError(self._too_little(least)) from error
            memory = self._one_by_one(atoms, solution.kernels)
            least = min(least, memory.peak_bytes)
            if memory.peak_bytes <= self.nbytes:
                return solution
            if memory.fixed_bytes > self.nbytes or time.monotonic() - start > deadline_s:
                raise SearchError(self._too_little(least, memory.fixed_bytes))
            rooms += self._rooms(memory, solution.kernels)

    def _one_by_one(self, atoms: AtomGraph, kernels: Sequence[Chosen]) -> MemoryPlan:
        planned = [kernel for _, kernel in planned_kernels(atoms, kernels, {})]
        return self.memory(planned, [Launch(number) for number in range(len(planned))])

    def _rooms(self, memory: MemoryPlan, kernels: Sequence[Chosen]) -> list[Room]:
        """Rows that forbid the moments that need too much; the fullest one, where what lies between is too much."""
        free = self.nbytes - memory.fixed_bytes
        steps = [step for step, nbytes in enumerate(memory.used) if nbytes > free]
        steps = steps or [max(range(len(memory.used)), key=lambda step: memory.used[step])]
        return [_room(memory.moment(step), kernels, free) for step in steps]

    def _lower(self, planned: PlannedKernel, lane: int) -> LoweredKernel:
        graph = self.program.graph
        key = planned.digest, planned.schedule
        if key not in self._lowered:
            self._lowered[key] = lower_kernel(graph, planned, self.limits).program
        kernel = candidate_of(graph, planned.nodes, planned.outputs)
        return LoweredKernel(planned, self._lowered[key], kernel.inputs, kernel.outputs, lane)

    def _too_little(self, least: float, fixed: int | None = None) -> str:
        if fixed is not None and fixed > self.nbytes:
            return f"max_memory={self.nbytes}: arguments, constants and results alone take {fixed} bytes"
        return f"max_memory={self.nbytes}: no plan was found that takes so little; the smallest takes {least:.0f} bytes"


def _room(moment: Moment, kernels: Sequence[Chosen], free: int) -> Room:
    """What may be alive of that moment: `free` bytes, and in any case not all of it."""
    values: dict[Value, int] = dict(moment.values)
    spaces = {kernels[number].candidate: nbytes for number, nbytes in moment.workspaces.items()}
    smallest = min((*values.values(), *spaces.values()))
    return Room(values, spaces, min(free, moment.nbytes - smallest))
