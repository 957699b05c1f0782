"""The end of tuning: finalists run against one another, and the plan that is kept gets its certificate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence

from autofuse.errors import MeasureError
from autofuse.fusion.candidate import work_of
from autofuse.lazydataclass import dataclass, replace
from autofuse.measurement.kernelrecords import Trial
from autofuse.plan.document import NOT_PROVED, OPTIMAL, Certificate, PlanDocument
from autofuse.runtime.planlowering import candidate_of
from autofuse.search.budget.budget import Budget, Clock, Report, Spent
from autofuse.search.budget.ending import Ending
from autofuse.search.plans.planning import started_each
from autofuse.search.policies.analytical import bound_at, dominated_at
from autofuse.search.solve.solver import Solution
from autofuse.search.space.classes import class_digest
from autofuse.search.tune.bothways import best_ways
from autofuse.search.tune.finalists import Finalist, NoPlanRunsError, Races, Standings, with_and_without_groups
from autofuse.search.tune.measuringloop import EPSILON, K_SIGMA
from autofuse.search.tune.plandrafts import Drafts, Named


@dataclass(frozen=True, slots=True)
class Found:
    """What the search knows when it ends, for the certificate."""

    policy: str
    rounds: int = 0
    """Of the measuring loop."""
    bound_us: float | None = None
    """Statistical."""
    proved: Solution | None = None
    """What was shown to be optimal under the costs that were measured, or close to it."""
    rules: Collection[str] = ()
    """Names of those finalists that are rules of other compilers."""
    notes: Sequence[str] = ()
    """For the plan."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Keeps one of the finalists."""

    drafts: Drafts
    races: Races
    ending: Ending
    clock: Clock
    budget: Budget
    """All of it."""
    seed: int
    spent: Spent
    report: Report
    unpriced: int
    """Kernels that were left out as there was no time to price them."""

    def accepted(self, partitions: Sequence[Named], found: Found) -> PlanDocument:
        """Run the plans end to end, keep the fastest; ties go to the last one. Certify it.

        Raises MeasureError if none can be run, SearchError if the memory is enough for none.
        """
        sound = [named for named in partitions if not self.drafts.has_failed(named[1])]
        if not sound and self.drafts.times.excuse():
            sound = [named for named in partitions if not self.drafts.has_failed(named[1])]
        if not sound:
            raise MeasureError(f"every plan has a kernel that fails: {self.drafts.failure}")
        joins = self.drafts.context.problem.target.joined_us(()) is not None
        finalists = [
            form
            for name, partition in self.drafts.fitting(sound)
            for form in with_and_without_groups(
                Finalist(name, partition, self.drafts.document(partition)), self.drafts.context.memory, joins
            )
        ]
        self.report("comparing plans end to end", 0, 1)
        try:
            self.clock.be_ready()
            ended = self.races.decide(finalists, *self.ending.race())
            ended = best_ways(ended, self.drafts.context, self.races, lambda: self.ending.starts(self.races.each_s))
            ended = self._best_started(ended)
        except NoPlanRunsError:
            self.drafts.kept.clear()
            raise
        self.report("comparing plans end to end", 1, 1)
        document = self.with_times(ended.winner.plan)
        notes = [note for note in found.notes if note not in document.notes]
        told = [f"accepted partition: {ended.winner.name}"]
        if ended.problem:
            told.append(f"no plan's answer is within tolerance of the interpreter's: {ended.problem}")
        told += self._too_late(ended, len(finalists))
        certificate = self._certificate(ended, found, document)
        plan = replace(document, certificate=certificate, notes=(*document.notes, *told, *notes))
        self.drafts.kept.append((ended.winner.partition, plan))
        return plan

    def _best_started(self, ended: Standings) -> Standings:
        """The winner with its kernels replayed, or started each in every call if that is faster."""
        terms = self.ending.starts(self.races.each_s)
        winner = ended.winner
        if not self.drafts.context.limits.replays or len(winner.plan.order) < 2 or terms is None or ended.problem:
            return ended
        each = replace(winner, plan=started_each(winner.plan))
        try:
            again = self.races.decide([each, winner], *terms)
        except NoPlanRunsError:  # it ran before
            return ended
        if again.winner is not each or again.problem:
            return ended
        said = "in each call every kernel is started by itself: replaying them took longer"
        plan = replace(each.plan, notes=(*each.plan.notes, said))
        return replace(ended, winner=replace(each, plan=plan), us=min(ended.us, again.us))

    def with_times(self, document: PlanDocument) -> PlanDocument:
        """The plan with its kernels timed as they are in it: some write less than the candidates that were measured."""
        kernels, bench = list(document.kernels), self.drafts.bench
        for number, kernel in enumerate(kernels):
            if kernel.measured_us is not None or kernel.regions:
                continue
            candidate = candidate_of(document.graph, kernel.nodes, kernel.outputs)
            digest = class_digest(candidate, self.drafts.context.control.schedule_of(candidate.nodes))
            time = bench.recorded(digest, candidate, kernel.schedule)
            if time is None and self.clock.kernel_left(1.0):
                time = bench.kernel(digest, candidate, kernel.schedule)
                if time.status == "ok":  # at a second moment too, as in the loop
                    (again,) = bench.kernels([Trial(digest, candidate, kernel.schedule, again=True)])
                    time = min(time, again, key=lambda one: one.us)
            if time is not None and time.us < math.inf:
                kernels[number] = replace(kernel, measured_us=time.us)
        return replace(document, kernels=tuple(kernels))

    def _certificate(self, ended: Standings, found: Found, document: PlanDocument) -> Certificate:
        """What is known of the winner of the last race; `document`: its plan."""
        context, times = self.drafts.context, self.drafts.times
        space = context.space
        rule = min((name for name in ended.times if name in found.rules), key=ended.times.__getitem__, default=None)
        measured = [kernel.measured_us for kernel in document.kernels]
        prices = times.prices()
        works = sorted({work_of(digest) for digest in space.classes})
        floors = {digest: price.floor_us for digest, price in prices.items()}
        terms = self.ending.holdout(self.races.each_s)
        holdout_us, noise_us = (None, None) if terms is None else self.races.again(document, *terms)
        over = self.ending.is_over()
        self.spent.mark("comparing whole plans")
        return Certificate(
            policy=found.policy,
            seed=self.seed,
            budget=self.budget.label,
            candidates=len(space.candidates),
            classes=len(space.classes),
            measured=len(times.us.keys() & space.classes.keys()),
            schedules_tried=self.drafts.schedules.tried,
            rounds=found.rounds,
            space_digest=hashlib.sha256("".join(works).encode()).hexdigest()[:16],
            k=K_SIGMA,
            epsilon=EPSILON,
            floor_bound_us=None if over else bound_at(context, space, floors),
            headroom=None if over else max(filter(None, (p.headroom for p in prices.values())), default=None),
            statistical_bound_us=found.bound_us,
            sum_us=sum(us for us in measured if us is not None) if None not in measured else None,
            e2e_us=ended.us,
            holdout_us=holdout_us,
            unfused_us=ended.times.get("unfused"),
            rule=rule,
            rule_us=None if rule is None else ended.times[rule],
            noise_floor_us=noise_us,
            refused=len(space.refused),
            dominated=None if over else dominated_at(context, space, times.optimistic(0.0)),
            cut_off=space.cut_off,
            timing=self.drafts.bench.policy,
            spent=self.spent.label if self.budget.max_trials is None else None,
            optimality=OPTIMAL if found.proved and ended.winner.partition.solution is found.proved else NOT_PROVED,
        )

    def _too_late(self, ended: Standings, finalists: int) -> Iterator[str]:
        """What the budget was too small for, in words."""
        if self.unpriced:
            yield f"{self.unpriced} kernels were left out as there was no time to price them"
        if not self.drafts.times.has_measured and not self.drafts.times.all_driven(ended.winner.partition):
            yield "no kernel was measured before the last race: the budget is too small for this program"
        if ended.unrun:
            run = finalists - len(ended.unrun)
            yield f"of {finalists} plans, there was time to run {run} end to end; not run: {', '.join(ended.unrun)}"
