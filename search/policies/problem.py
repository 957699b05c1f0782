"""What is to be planned: a program, the limits of its device, and what a user wants of the plan."""

from __future__ import annotations

from autofuse.errors import ArgumentError, PlanError
from autofuse.fusion.userrules import NO_RULES, Control
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.limits import Limits
from autofuse.lower.schedule import Schedule
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.plans.planning import Program
from autofuse.search.space.candidatebuilder import Steering, unsteered
from autofuse.search.space.candidates import Candidate
from autofuse.targets.base import Target


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, stated. Deciding about it changes nothing in it."""

    program: Program
    target: Target
    """The device that the plan is for."""
    control: Control = NO_RULES
    """The user's rules."""
    memory: MemoryLimit | None = None
    """How much memory a plan may take."""
    steering: Steering = unsteered
    """What tells kernels apart that do the same work: the values at hand, where kernels are measured."""
    small_us: float | None = None
    """Independent kernels shorter than this run at the same time. None: as the target says."""

    def of(self, program: Program) -> Problem:
        """The same question about another graph, without the rules, which name nodes."""
        memory = None if self.memory is None else MemoryLimit(self.memory.nbytes, program, self.limits)
        return replace(self, program=program, control=NO_RULES, memory=memory, steering=unsteered)

    @property
    def limits(self) -> Limits:
        """Of kernels, on the device."""
        return self.target.limits

    @property
    def grouping(self) -> Limits:
        """The same, with what the problem says of small kernels."""
        return self.limits if self.small_us is None else replace(self.limits, small_us=self.small_us)

    def pinned(self, candidate: Candidate) -> Schedule | None:
        """The schedule that a rule of the user gives a kernel.

        Raises ArgumentError for one that is none, and for decisions that the kernel does not have.
        """
        nodes = [node for atom in candidate.atoms for node in atom.nodes]
        wanted = self.control.schedule_of(nodes)
        if wanted is None:
            return None
        try:
            schedule = self.limits.decisions.read(wanted)
        except PlanError as error:
            raise ArgumentError(f"rules: Pin: {error}") from None
        idle = [key for key in wanted if key in self.limits.decisions.idle(candidate.program)]
        if idle:
            names = ", ".join(sorted(node.name for node in nodes))
            raise ArgumentError(f"rules: Pin: schedule: there is no {idle[0]} to decide in the kernel of {names}")
        reason = self.limits.decisions.refusal(schedule, candidate.program)
        if reason is not None:
            raise ArgumentError(f"rules: Pin: schedule: {reason}")
        return schedule
