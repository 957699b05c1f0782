"""Plans in the making: partitions under the times and schedules that are known so far, and which of them will do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import Identity
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.solve.solver import Solution
from autofuse.search.tune.baselines import kernels_of
from autofuse.search.tune.finalists import OTHER_SCHEDULES
from autofuse.search.tune.kerneltimes import KernelTimes

Named = tuple[str, Partition]
"""A partition, and what plans of it are called."""


@dataclass(slots=True)
class Drafts:
    """Makes plans of partitions, and holds on to those that can be used if the run is interrupted."""

    context: Context
    bench: Bench
    identity: Identity
    times: KernelTimes
    schedules: ScheduleTuner
    kept: list[tuple[Partition, PlanDocument]] = field(default_factory=list[tuple[Partition, PlanDocument]], init=False)
    """Plans that can be used, the best last."""

    @property
    def best(self) -> PlanDocument | None:
        """The best plan kept of which no kernel is known to fail."""
        return next((plan for partition, plan in reversed(self.kept) if not self.has_failed(partition)), None)

    def keep(self, partition: Partition) -> None:
        """Hold on to a plan of a partition."""
        if self.fits(partition):
            self.kept.append((partition, self.document(partition)))

    def document(self, partition: Partition) -> PlanDocument:
        """The plan of a partition."""
        return document_of(self.context, partition, self.identity)

    def solved(self, solution: Solution) -> Partition:
        """A partition of the space, with its measured times."""
        known, atoms = predicted(solution.kernels, self.times.prices()), self.context.space.atom_graph
        return self.timed(Partition(atoms, solution.kernels, known, solution.price_us, solution))

    def timed(self, partition: Partition, scheduled: bool = False) -> Partition:
        """The partition with its measured times, under the default schedules or the best ones found."""
        known: dict[str, Tuned] = {}
        for digest in dict.fromkeys(chosen.candidate.digest for chosen in partition.kernels):
            tuned = partition.known.get(digest, Tuned())
            schedule, us = Schedule(), self.times.us.get(digest, math.inf)
            if scheduled:
                schedule, us = self.schedules.faster.get(digest, (schedule, us))
            known[digest] = replace(tuned, schedule=schedule, measured_us=us if us < math.inf else None)
        return replace(partition, known=known)

    def other_schedules(self, partitions: Iterable[Named]) -> list[Named]:
        """Partitions with schedules that alone are nearly as fast as their best ones, and may be faster as a whole."""
        found: list[Named] = []
        for name, partition in partitions:
            tuned = self.timed(partition, scheduled=True)
            for near in self.schedules.near_ties(partition.kernels):
                known = {d: replace(tuned.known[d], schedule=s, measured_us=us) for d, (s, us) in near.items()}
                found.append((name + OTHER_SCHEDULES, replace(tuned, known={**tuned.known, **known})))
        return found

    def fits(self, partition: Partition) -> bool:
        """Whether the memory is enough for a partition."""
        return self.context.memory is None or self.context.memory.fits(self.document(partition))

    def fitting(self, partitions: Sequence[Named]) -> list[Named]:
        """Those that the memory is enough for, with the default schedules where the tuned ones take more.

        Raises SearchError if there is none.
        """
        memory = self.context.memory
        if memory is None:
            return list(partitions)
        fitting: list[Named] = []
        for name, partition in partitions:
            spare = [] if name.endswith(OTHER_SCHEDULES) else [self.timed(partition)]
            fitting += [(name, form) for form in (partition, *spare) if self.fits(form)][:1]
        if not fitting:
            memory.check(self.document(partitions[-1][1]), partitions[-1][0])
        return fitting

    def has_failed(self, partition: Partition) -> bool:
        """Whether a kernel is known to fail, under the schedule that it has here or under its first one."""
        for candidate in (chosen.candidate for chosen in partition.kernels):
            schedule = self.context.pinned(candidate) or partition.known.get(candidate.digest, Tuned()).schedule
            if (candidate.digest, schedule) in self.bench.counts.failing:
                return True
        return self.times.any_fails(partition)

    @property
    def failure(self) -> str:
        """Why a kernel failed."""
        failed = self.bench.counts.failed
        return failed[0] if failed else "the database says so; give another db= to measure again"


def distinct(entries: Iterable[Named]) -> list[Named]:
    """Partitions into the same kernels once, under the first one's name."""
    found: dict[frozenset[object], Named] = {}
    for entry in entries:
        found.setdefault(kernels_of(entry[1]), entry)
    return list(found.values())
