"""Finds and measures a plan for one program: what is measured, screened, tuned and compared, in this order.

The measuring loop chooses a partition (`measuringloop.py`). It, those of rules, the model's choice and runners-up are
screened: they run end to end under default schedules. Those that are the fastest so get their schedules tuned, the
fastest first (`screening.py`), and run against one another (`closing.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from autofuse.lazydataclass import replace
from autofuse.measurement.client import Bench
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import Identity
from autofuse.search.budget.budget import Budget, Clock, Report, Spent
from autofuse.search.budget.ending import SCHEDULE_SHARE, Ending
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import space_notes
from autofuse.search.policies.fewerlaunches import with_fewer_launches
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.tune.baselines import BASELINES, decide_by_rules
from autofuse.search.tune.closing import Closing, Found
from autofuse.search.tune.finalists import Races
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.measuringloop import LOOP_SHARE, MeasuringLoop
from autofuse.search.tune.plandrafts import Drafts, Named
from autofuse.search.tune.runnersup import RunnersUp
from autofuse.search.tune.screening import Screening

_RULES_SHARE = 0.15
"""Of the budget: when the rules must have decided."""


class Tuner:
    """Tunes one program."""

    def __init__(
        self,
        context: Context,
        bench: Bench,
        identity: Identity,
        budget: Budget,
        seed: int,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
        schedules: type[ScheduleTuner] = ScheduleTuner,
    ) -> None:
        """`schedules`: what tunes them."""
        start = clock()
        self._spent = Spent(clock, budget.spent_s)
        context = context.steered(bench.values)
        _ = context.space  # enumerated before its time is taken
        priced_by = clock() + budget.pricing_s
        unpriced = context.kernels.keep_priced(lambda: clock() > priced_by)
        self._spent.mark("finding kernels")
        self._clock = Clock(budget.without(clock() - start), bench, clock)
        self._ending = Ending(budget, start + budget.seconds, self._clock)
        races = Races(bench, seed, clock)
        self.context = replace(context, deadline_s=budget.solve_s(context.deadline_s))
        self._times = KernelTimes(self.context, bench, self._clock)
        self._schedules = schedules(self.context, bench, self._clock, seed, report, self._times.us)
        self._drafts = Drafts(self.context, bench, identity, self._times, self._schedules)
        self._loop = MeasuringLoop(self.context, self._drafts, self._times, self._clock, report)
        self._screening = Screening(self._drafts, self._times, races, self._ending, self._clock)
        self._closing = Closing(
            self._drafts, races, self._ending, self._clock, budget, seed, self._spent, report, unpriced
        )

    @property
    def best(self) -> PlanDocument | None:
        """The best plan so far of which no kernel is known to fail; for a run that is interrupted."""
        return self._drafts.best

    @property
    def has_measured(self) -> bool:
        """Whether any kernel's time is known."""
        return self._times.has_measured

    def measured_plan(self, rules: Sequence[SearchPolicy] = ()) -> PlanDocument:
        """Search the whole space, measuring. Raises SearchError or MeasureError.

        The plan does not lose to a baseline's, nor to the best one of `rules`, which has its schedules tuned too as far
        as the budget allows.
        """
        found: list[Named] = []
        for policy in BASELINES:
            found.append((policy.name, policy.partition(self.context)))
            self._drafts.keep(found[-1][1])
        ruled = decide_by_rules(self.context, rules, lambda: self._clock.share_left(_RULES_SHARE))
        self._spent.mark("deciding by models and rules")
        chosen = "measured", self._loop.run([partition for _, partition in (*ruled.partitions, *found)])
        self._drafts.keep(chosen[1])
        self._spent.mark("measuring kernels")
        near = [*self._runners_up(chosen[1]), *self._fewer_launches(chosen[1])]
        others = [*near, (f"{found[-1][0]}, schedules tuned", found[-1][1])]
        notes = [*space_notes(self.context.space), *(f"not compared with {reason}" for reason in ruled.left_out)]
        if self._times.timed_once:
            notes.append(f"kernels that were timed once, not twice, as the budget is small: {self._times.timed_once}")
        kept = self._screening.screened(chosen, ruled.partitions, others)
        self._spent.mark("tuning schedules")
        plain = [*found, ("measured, default schedules", chosen[1])]
        finalists = [(name, self._drafts.timed(partition)) for name, partition in plain]
        contenders = [*kept.others, *kept.ruled, chosen]
        finalists += self._drafts.other_schedules(contenders)
        finalists += [(name, self._drafts.timed(partition, scheduled=True)) for name, partition in contenders]
        rules_kept = [name for name, _ in kept.ruled]
        loop = self._loop
        facts = Found(chosen[0], loop.rounds, loop.bound_us, loop.proved, rules_kept, [*notes, *kept.notes])
        return self._closing.accepted(finalists, facts)

    def fixed_plan(self, policy: SearchPolicy) -> PlanDocument:
        """Tune only the schedules of a policy's own partition, with the same budget."""
        partition = policy.partition(self.context)
        if self.context.memory is not None:
            self.context.memory.check(self._drafts.document(partition), policy.name)
        self._drafts.keep(partition)
        self._spent.mark("deciding")
        self._times.measure((chosen.candidate for chosen in partition.kernels), LOOP_SHARE)
        self._spent.mark("measuring kernels")
        self._schedules.tune(partition.kernels, SCHEDULE_SHARE)
        self._spent.mark("tuning schedules")
        tuned = self._drafts.timed(partition, scheduled=True)
        self._drafts.keep(tuned)
        plain = f"{policy.name}, default schedules", self._drafts.timed(partition)
        others = self._drafts.other_schedules([(policy.name, partition)])
        solution = partition.solution
        is_optimal = solution is not None and solution.optimal and solution.kernels == partition.kernels
        facts = Found(policy.name, proved=solution if is_optimal else None)
        return self._closing.accepted([plain, *others, (policy.name, tuned)], facts)

    def _runners_up(self, chosen: Partition) -> list[Named]:
        """Partitions that may be faster as a whole than the chosen one; none where there is no time to see that."""
        if chosen.solution is None or self._ending.screening() is None:
            return []
        expected = self._times.optimistic(0.0)
        near = RunnersUp(self.context, self._clock, expected, SCHEDULE_SHARE).beside(chosen.solution)
        return [(f"measured, {label}", replace(self._drafts.solved(found), solution=None)) for label, found in near]

    def _fewer_launches(self, chosen: Partition) -> list[Named]:
        """The chosen partition with kernels that wait less, if the target says that they are started in less time."""
        found = with_fewer_launches(self.context, chosen, lambda: not self._clock.share_left(SCHEDULE_SHARE))
        return [] if found is chosen else [("measured, fewer launches", replace(found, solution=None))]
