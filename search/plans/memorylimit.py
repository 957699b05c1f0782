"""Plans within a limit on memory.

What a call needs depends on which values pass through memory, on when each is alive, and on which results are written
straight into the argument that they replace. The solver knows the first only. So it solves, the memory of its kernels
is planned in their running order, and for each moment that needs too much rows are added: of the values and workspaces
alive then, no more than the limit leaves, and not all at once. Where a result does not go straight into its argument,
the kernels that read or write it are not to run all together. A selection with other values may be run in an order in
which fewer of them are alive together; then the rows ask for more than they must. So a plan keeps the limit, but it
need not be the cheapest that does; what the solver proves under such rows is no bound for plans in general.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Value
from autofuse.ir.optable import has_calls
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.limits import Limits
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.plan.document import Launch, PlanDocument, PlannedKernel
from autofuse.runtime.memory import MemoryPlan, Moment, plan_memory
from autofuse.runtime.planlowering import LoweredKernel, candidate_of, lower_kernel
from autofuse.search.plans.planning import Program, Tuned, planned_kernels
from autofuse.search.solve.coverprogram import MemoryConstraint
from autofuse.search.solve.solver import Chosen, Solution
from autofuse.search.space.candidates import Candidate


@dataclass(frozen=True, slots=True)
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
        lowered = [self._lower(kernels[launch.kernel], launch.group_place) for launch in order]
        return plan_memory(self.program.graph, self.program.writebacks, lowered)

    def fits(self, document: PlanDocument) -> bool:
        """Whether a plan keeps the limit."""
        return self.memory(document.kernels, document.order).peak_bytes <= self.nbytes

    def check(self, document: PlanDocument, policy: str) -> None:
        """Raise SearchError for a plan that takes more."""
        needed = self.memory(document.kernels, document.order).peak_bytes
        if needed > self.nbytes:
            raise SearchError(
                f"max_memory={self.nbytes}: the plan of policy={policy!r:.80} takes {needed} bytes; allow more, or let "
                'policy="analytical" or "measured" look for one that takes less'
            )

    def solve(
        self,
        atoms: AtomGraph,
        solve: Callable[[Sequence[MemoryConstraint], float], Solution],
        deadline_s: float,
        known: Callable[[Sequence[Chosen]], Sequence[Tuned]] = lambda kernels: (),  # noqa: ARG005
        clock: Callable[[], float] = time.monotonic,
    ) -> Solution:
        """The cheapest solution found that keeps the limit, its kernels running one by one.

        `solve`: the cheapest one with the given rows, in the given seconds; each gets half of what is left, so that
        there is time for another. `known`: the schedules that kernels have if not the default ones. The solution's
        bound is one without rows. Raises SearchError if there is none.
        """
        start = clock()
        constraints: list[MemoryConstraint] = []
        least = bound = math.inf
        while True:
            left = deadline_s - (clock() - start)
            try:
                solution = solve(constraints, max(left / 2, 0.0))
            except SearchError as error:
                if not constraints:
                    raise
                raise SearchError(self._too_little(least, None if left > 0 else deadline_s)) from error
            if not constraints:
                bound = solution.bound_us
            memory = self._one_by_one(atoms, solution.kernels, known(solution.kernels))
            least = min(least, memory.peak_bytes)
            if memory.peak_bytes <= self.nbytes:
                return replace(
                    solution, bound_us=min(bound, solution.price_us), optimal=solution.optimal and not constraints
                )
            fixed = self._always(memory)
            if fixed > self.nbytes:
                raise SearchError(
                    f"max_memory={self.nbytes}: arguments, constants and results alone take {fixed} bytes"
                )
            if left <= 0:
                raise SearchError(self._too_little(least, deadline_s))
            constraints += self._constraints(memory, solution.kernels, fixed)

    def _one_by_one(self, atoms: AtomGraph, kernels: Sequence[Chosen], known: Sequence[Tuned]) -> MemoryPlan:
        planned = [kernel for _, kernel in planned_kernels(atoms, kernels, known)]
        return self.memory(planned, [Launch(number) for number in range(len(planned))])

    def _always(self, memory: MemoryPlan) -> int:
        """Bytes that every plan takes, even one that writes straight into all arguments that it may."""
        graph = self.program.graph
        if has_calls(graph):
            return memory.fixed_bytes
        results = graph.outputs[: len(graph.outputs) - len(self.program.writebacks)]
        return memory.argument_bytes + memory.constant_bytes + sum(value.type.nbytes for value in results)

    def _constraints(self, memory: MemoryPlan, kernels: Sequence[Chosen], fixed: int) -> list[MemoryConstraint]:
        """Rows that forbid what needs too much; the fullest moment, where what lies between is too much."""
        hopeless = memory.fixed_bytes > self.nbytes
        free = self.nbytes - (fixed if hopeless else memory.fixed_bytes)
        steps = [step for step, nbytes in enumerate(memory.used) if nbytes > free]
        constraints: list[MemoryConstraint] = []
        if hopeless or (memory.fixed_bytes > fixed and not steps):
            constraints.append(self._in_place(memory, kernels))
        if not steps and not constraints:
            steps = [max(range(len(memory.used)), key=lambda step: memory.used[step])]
        for step in steps:
            constraints += _moment_constraints(memory.moment(step), kernels, self.nbytes - fixed)
        return constraints

    def _in_place(self, memory: MemoryPlan, kernels: Sequence[Chosen]) -> MemoryConstraint:
        """Not all kernels together that keep the largest result from going straight into the argument it replaces."""
        graph, written = self.program.graph, {output for output, _ in memory.aliases}
        returned = len(graph.outputs) - len(self.program.writebacks)
        apart = [
            (graph.inputs[source], graph.outputs[returned + number])
            for number, source in enumerate(self.program.writebacks)
            if returned + number not in written
        ]
        source, target = max(apart, key=lambda pair: pair[1].type.nbytes)
        return _not_all([k.candidate for k in kernels if target in k.outputs or source in k.candidate.kernel.inputs])

    def _lower(self, planned: PlannedKernel, group_place: int) -> LoweredKernel:
        graph = self.program.graph
        if planned.regions:  # they are of its own values
            return replace(lower_kernel(graph, planned, self.limits), group_place=group_place)
        key = planned.digest, planned.schedule
        if key not in self._lowered:
            self._lowered[key] = lower_kernel(graph, planned, self.limits).program
        kernel = candidate_of(graph, planned.nodes, planned.outputs)
        return LoweredKernel(planned, self._lowered[key], kernel.inputs, kernel.outputs, group_place)

    def _too_little(self, least: float, seconds: float | None) -> str:
        words = (
            f"max_memory={self.nbytes}: no plan was found that takes so little; the smallest takes {least:.0f} bytes"
        )
        return (
            words if seconds is None else f"{words}. The search ended after {seconds:g} s; a larger budget gives more"
        )


def _moment_constraints(moment: Moment, kernels: Sequence[Chosen], free: int) -> list[MemoryConstraint]:
    """What may be alive of that moment: `free` bytes, and in any case not all of it."""
    values: dict[Value, int] = dict(moment.values)
    spaces = {kernels[number].candidate: nbytes for number, nbytes in moment.workspaces.items()}
    whole = MemoryConstraint(dict.fromkeys(values, 1), dict.fromkeys(spaces, 1), len(values) + len(spaces) - 1)
    return [MemoryConstraint(values, spaces, free), whole]


def _not_all(candidates: Sequence[Candidate]) -> MemoryConstraint:
    """Not all of these kernels together."""
    return MemoryConstraint({}, dict.fromkeys(candidates, 1), len(candidates) - 1)
