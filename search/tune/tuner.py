"""The measuring loop: solve, measure what matters, solve again, until the best measured plan is close to the bound.

First the kernels of the baselines are measured, among them those of other compilers' rules, then the single atoms, as
far as the budget allows. Each round then solves the program at optimistic prices (measured where known, else exp(mu - k
sigma) of the model's price), at expected prices (exp(mu)), and with the measured kernels alone. The first optimum is a
statistical lower bound, the last one is the best plan so far; when the two are within epsilon, more measuring is not
worth its time. Until then the unmeasured kernels of the first two are measured and the residual is refitted. Before the
loop ends, kernels are timed a second time. Then the chosen partition, those of rules, the model's choice and runners-up
run end to end under default schedules. Those that are the fastest so get their schedules tuned, the fastest first, and
run against one another.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from autofuse.errors import MeasureError, SearchError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.plan.document import NOT_PROVED, OPTIMAL, Certificate, PlanDocument
from autofuse.plan.identity import Identity
from autofuse.runtime.kernels import candidate_of
from autofuse.search.budget.budget import Budget, Clock, Report, Spent
from autofuse.search.budget.ending import SCHEDULE_SHARE, Ending
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.analytical import bound_at, dominated_at, solve_at
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of, space_notes
from autofuse.search.policies.policy import Partition, SearchPolicy, predicted
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.solve.solver import Chosen, Solution
from autofuse.search.space.candidates import Candidate, Space
from autofuse.search.space.classes import class_digest
from autofuse.search.tune.baselines import BASELINES, decide_by_rules, kernels_of
from autofuse.search.tune.finalists import (
    OTHER_SCHEDULES,
    Entrant,
    NoPlanRunsError,
    Races,
    Standings,
    with_and_without_lanes,
)
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.runnersup import RunnersUp

K_SIGMA = 1.0
EPSILON = 0.05

_RULES_SHARE, _FIRST_SHARE, _LOOP_SHARE, _AGAIN_SHARE = 0.15, 0.25, 0.5, 0.6
"""Of the budget: when the rules have decided, and the baselines' kernels and single atoms, the loop, and its second
times and last solves must be done; all schedules at `SCHEDULE_SHARE`."""
_LOOP_SOLVE = 0.15
"""Of the time that is left for the loop: most for solving once."""
_RIVALS = 2
"""Partitions of rules, the fastest end to end, whose schedules are tuned too; and as many of the others."""
_OUTRUN = 1.5
"""A plan that takes so many times as long as the fastest, all under default schedules, gets none of its own."""

_Named = tuple[str, Partition]
"""A partition, and what plans of it are called."""


class Schedules(Protocol):
    """What finds faster schedules for kernels whose times under the default one are known: see `ScheduleTuner`."""

    faster: dict[str, tuple[Schedule, float]]
    tried: int

    def tune(self, kernels: Sequence[Chosen], share: float) -> None:
        """Tune kernels until that share of the budget is used."""

    def is_done(self, kernels: Sequence[Chosen]) -> bool:
        """Whether nothing is left to be tried of any."""
        ...

    def near_ties(self, kernels: Sequence[Chosen]) -> list[dict[str, tuple[Schedule, float]]]:
        """Schedules that are nearly the fastest alone, by class, to be tried in whole plans."""
        ...


class Tuner:
    """Finds and measures a plan for one program."""

    def __init__(
        self,
        context: Context,
        bench: Bench,
        identity: Identity,
        budget: Budget,
        seed: int,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
        schedules: Schedules | None = None,
    ) -> None:
        """`schedules`: what tunes them; by default a `ScheduleTuner`."""
        start = clock()
        self._spent = Spent(clock, budget.spent_s)
        _ = context.space  # enumerated once, for both contexts
        priced_by = clock() + budget.pricing_s
        self._unpriced = context.kernels.keep_priced(lambda: clock() > priced_by)
        """Kernels that were left out as there was no time to price them."""
        self._spent.mark("finding kernels")
        self._clock = Clock(budget.without(clock() - start), bench, clock)
        self._ending = Ending(budget, start + budget.seconds, self._clock)
        self.context = replace(context, deadline_s=budget.solve_s(context.deadline_s))
        self.bench, self.identity = bench, identity
        self.budget, self.seed, self.report = budget, seed, report
        self._races = Races(bench, seed, clock)
        self._kept: list[tuple[Partition, PlanDocument]] = []
        """Plans that can be used, the best last."""
        self._times = KernelTimes(self.context, bench, self._clock)
        self._schedules = schedules or ScheduleTuner(
            self.context, bench, identity, self._clock, seed, report, self._times.us
        )
        self._rounds = 0
        self._bound_us: float | None = None
        self._proved: Solution | None = None
        """What was shown to be optimal under the costs that were measured, or close to it."""

    @property
    def best(self) -> PlanDocument | None:
        """The best plan so far of which no kernel is known to fail; for a run that is interrupted."""
        return next((plan for partition, plan in reversed(self._kept) if not self._has_failed(partition)), None)

    @property
    def has_measured(self) -> bool:
        """Whether any kernel's time is known."""
        return any(us < math.inf for us in self._times.us.values())

    def measured_plan(
        self, baselines: Sequence[SearchPolicy] = BASELINES, rules: Sequence[SearchPolicy] = ()
    ) -> PlanDocument:
        """Search the whole space, measuring. Raises SearchError or MeasureError.

        The plan does not lose to a baseline's, nor to the best one of `rules`, which has its schedules tuned too as far
        as the budget allows.
        """
        found: list[tuple[str, Partition]] = []
        for policy in baselines:
            found.append((policy.name, policy.partition(self.context)))
            self._keep(found[-1][1])
        ruled = decide_by_rules(self.context, rules, lambda: self._clock.share_left(_RULES_SHARE))
        self._spent.mark("deciding by models and rules")
        chosen = "measured", self._measure_until_certain([partition for _, partition in (*ruled.partitions, *found)])
        self._keep(chosen[1])
        self._spent.mark("measuring kernels")
        others = self._runners_up(chosen[1])
        others.append((f"{found[-1][0]}, schedules tuned", found[-1][1]))
        left_out = [*space_notes(self.context.space), *(f"not compared with {words}" for words in ruled.left_out)]
        if self._times.timed_once:
            left_out.append(
                f"kernels that were timed once, not twice, as the budget is small: {self._times.timed_once}"
            )
        rivals, others = self._fastest_of(chosen, ruled.partitions, others, left_out)
        self._spent.mark("tuning schedules")
        entrants = [(name, self._timed(partition)) for name, partition in found]
        entrants.append(("measured, default schedules", self._timed(chosen[1])))
        contenders = [*others, *rivals, chosen]
        entrants += self._other_schedules(contenders)
        entrants += [(name, self._timed(partition, scheduled=True)) for name, partition in contenders]
        return self._accept(entrants, chosen[0], [name for name, _ in rivals], left_out)

    def fixed_plan(self, policy: SearchPolicy) -> PlanDocument:
        """Tune only the schedules of a policy's own partition, with the same budget."""
        partition = policy.partition(self.context)
        if self.context.memory is not None:
            self.context.memory.check(self._document(partition), policy.name)
        self._keep(partition)
        self._spent.mark("deciding")
        self._times.measure((chosen.candidate for chosen in partition.kernels), _LOOP_SHARE)
        self._spent.mark("measuring kernels")
        self._schedules.tune(partition.kernels, SCHEDULE_SHARE)
        self._spent.mark("tuning schedules")
        tuned = self._timed(partition, scheduled=True)
        if partition.solution is not None and partition.solution.optimal:
            self._proved = partition.solution
        self._keep(tuned)
        plain = f"{policy.name}, default schedules", self._timed(partition)
        others = self._other_schedules([(policy.name, partition)])
        return self._accept([plain, *others, (policy.name, tuned)], policy.name)

    # ---- the loop ------------------------------------------------------------------------------------------------

    def _measure_until_certain(self, baselines: Sequence[Partition]) -> Partition:
        space = self.context.space
        self._times.measure((chosen.candidate for chosen in baselines[-1].kernels), _LOOP_SHARE)
        self._times.measure(self._worth_knowing(space, baselines), _FIRST_SHARE)
        best: Solution | None = None
        while True:
            self._rounds += 1
            began = self._clock.elapsed()
            if best is not None and self._times.any_fails(best):
                best = None  # the second time
            try:
                low, expected = self._solve(space, K_SIGMA), self._solve(space, 0.0)
            except (MeasureError, SearchError):
                # too many kernels of the space fail, or solving found nothing that takes so little memory in its time
                if best is not None:
                    break
                other = self._one_that_runs(baselines)
                if other is None:
                    raise
                return other
            self._bound_us = min(low.bound_us, low.price_us)
            best = self._cheapest_measured(space, best)
            self.report("measuring kernels", *self._clock.progress())
            solved_s = self._clock.elapsed() - began
            certain = best is not None and best.price_us <= (1 + EPSILON) * self._bound_us
            # a solve that ran out of time may have found nothing that is cheaper than what is known
            better = [found for found in (low, expected) if best is None or found.price_us < best.price_us]
            chosen = [kernel.candidate for found in better for kernel in found.kernels]
            todo = [candidate for candidate in chosen if candidate.digest not in self._times.us]
            if todo and not certain and self._clock.kernel_left(_LOOP_SHARE):
                self._times.measure(todo, _LOOP_SHARE)
            elif not self._times.measure_again(space, _AGAIN_SHARE, solved_s):
                self._proved = best if certain and best is not None and best.optimal else None
                break
        return baselines[-1] if best is None else self._partition(space, best)

    def _one_that_runs(self, baselines: Sequence[Partition]) -> Partition | None:
        """A baseline that may do where the space has no plan: the last one whose kernels are known to run, or may."""
        running = [p for p in reversed(baselines) if not self._has_failed(p) and self._fits(p)]
        sound = [partition for partition in running if self._times.all_run(partition)]
        return next(iter((*sound, *running)), None)

    def _worth_knowing(self, space: Space, baselines: Sequence[Partition]) -> list[Candidate]:
        """The kernels of the baselines, the cheapest ones' first, then the single atoms."""
        cheapest = sorted(baselines, key=lambda partition: partition.price_us)
        groups = [[chosen.candidate for chosen in partition.kernels] for partition in cheapest]
        groups.append([candidate for candidate in space.candidates if len(candidate.atoms) == 1])
        return [candidate for group in groups for candidate in self._dearest_first(group)]

    def _dearest_first(self, kernels: Sequence[Candidate]) -> list[Candidate]:
        """Kernels of a program, those first of which all equal ones take the most time together."""
        prices = self._times.prices()
        total: dict[str, float] = {}
        for digest in (candidate.digest for candidate in kernels):
            us = prices[digest].predicted_us if digest in prices else 0.0
            total[digest] = total.get(digest, 0.0) + us
        return sorted(kernels, key=lambda candidate: (-total[candidate.digest], candidate.digest))

    def _solve(self, space: Space, k: float) -> Solution:
        """The cheapest partition at prices exp(mu - k sigma). Raises MeasureError if failed kernels leave none."""
        try:
            return solve_at(self.context, space, self._times.optimistic(k), self._loop_solve_s())
        except SearchError as error:
            if math.inf not in self._times.us.values():
                raise
            words = "what is left without the kernels that failed is no plan"
            if self.context.memory is not None:
                words = f"{error}; kernels that failed are left out"
            raise MeasureError(f"{words}: {self._failure()}") from error

    def _cheapest_measured(self, space: Space, best: Solution | None) -> Solution | None:
        """The cheapest partition of measured kernels; None if they cannot compute the program.

        `best`: what it was before, which stays where solving runs out of time and finds a dearer one.
        """
        try:
            found = solve_at(self.context, space, self._times.measured_only(), self._loop_solve_s())
        except SearchError:
            return best
        if best is not None and best.price_us < found.price_us:
            return best
        self._keep(self._partition(space, found))
        return found

    def _loop_solve_s(self) -> float:
        return self._clock.solve_s(self.context.deadline_s, _LOOP_SHARE, _LOOP_SOLVE)

    def _runners_up(self, chosen: Partition) -> list[_Named]:
        """Partitions that may be faster as a whole than the chosen one."""
        if chosen.solution is None:
            return []
        expected = self._times.optimistic(0.0)
        near = RunnersUp(self.context, self._clock, expected, SCHEDULE_SHARE).beside(chosen.solution)
        space = self.context.space
        return [(f"measured, {words}", replace(self._partition(space, s), solution=None)) for words, s in near]

    def _fastest_of(
        self, chosen: _Named, ruled: Sequence[_Named], others: Sequence[_Named], notes: list[str]
    ) -> tuple[list[_Named], list[_Named]]:
        """Of the partitions of rules, and of others, those that are the fastest end to end under default schedules.

        They and the chosen one get their schedules tuned, the fastest first. `notes`: gets those that did not.
        """
        entries: list[_Named] = []
        plans: list[PlanDocument] = []
        own, *rest = _distinct((chosen, *others))
        for entry in (*_distinct(ruled), *rest, own):  # a race that has no time for all of them runs the last ones
            document = self._document(self._timed(entry[1]))
            fits = self.context.memory is None or self.context.memory.fits(document)
            if fits and not self._has_failed(entry[1]):
                entries.append(entry)
                plans.append(document)
        self._be_ready()
        has_time = self._clock.share_left(SCHEDULE_SHARE)  # else no schedules are tuned, in whatever order
        order = self._races.in_order(plans, *self._ending.preliminary()) if len(plans) > 1 and has_time else []
        self._ending.reserve(self._races.each_s)
        ranked = [(slow, entries[number]) for slow, number in order] or [(1.0, entry) for entry in entries]
        rules = {name for name, _ in ruled}
        rivals = [(slow, entry) for slow, entry in ranked if entry[0] in rules][:_RIVALS]
        nearest = [(slow, e) for slow, e in ranked if e[0] not in rules and e[0] != chosen[0]][:_RIVALS]
        first = [(slow, entry) for slow, entry in ranked if entry[0] == chosen[0]]
        in_turn = sorted([*first, *rivals, *nearest], key=lambda pair: pair[0])
        self._tune_in_turn([entry[1] for entry in _distinct(entry for slow, entry in in_turn if slow < _OUTRUN)])
        for slow, (name, partition) in in_turn:
            if slow >= _OUTRUN:
                notes.append(f"no schedules were tuned for {name}, which took {slow:.1f} times as long without")
            elif name != chosen[0] and not (self._schedules.is_done(partition.kernels) or self._has_failed(partition)):
                notes.append(f"compared with {name} before all of its schedules were tuned: the budget was used")
        return [entry for _, entry in rivals], [entry for _, entry in nearest]

    def _tune_in_turn(self, partitions: Sequence[Partition]) -> None:
        """Tune the schedules of partitions, each with half of what is left for that, then all with the rest.

        The first one is kept.
        """
        halves = [0.5] * len(partitions) + [0.0] * len(partitions)
        for partition, part in zip((*partitions, *partitions), halves, strict=True):
            left = max(0.0, SCHEDULE_SHARE - self._clock.used())
            share = SCHEDULE_SHARE - part * left
            self._times.measure((kernel.candidate for kernel in partition.kernels), share)
            self._schedules.tune(partition.kernels, share)
            if partition is partitions[0]:
                self._keep(self._timed(partition, scheduled=True))

    def _partition(self, space: Space, solution: Solution) -> Partition:
        known = predicted(solution.kernels, self._times.prices())
        return self._timed(Partition(space.atom_graph, solution.kernels, known, solution.price_us, solution))

    def _timed(self, partition: Partition, scheduled: bool = False) -> Partition:
        """The partition with its measured times, under the default schedules or the best ones found."""
        known: dict[str, Tuned] = {}
        for digest in dict.fromkeys(chosen.candidate.digest for chosen in partition.kernels):
            tuned = partition.known.get(digest, Tuned())
            schedule, us = Schedule(), self._times.us.get(digest, math.inf)
            if scheduled:
                schedule, us = self._schedules.faster.get(digest, (schedule, us))
            known[digest] = replace(tuned, schedule=schedule, measured_us=us if us < math.inf else None)
        return replace(partition, known=known)

    def _other_schedules(self, partitions: Iterable[_Named]) -> list[_Named]:
        """Partitions with schedules that alone are nearly as fast as their best ones, and may be faster as a whole."""
        found: list[_Named] = []
        for name, partition in partitions:
            tuned = self._timed(partition, scheduled=True)
            for near in self._schedules.near_ties(partition.kernels):
                known = {d: replace(tuned.known[d], schedule=s, measured_us=us) for d, (s, us) in near.items()}
                found.append((name + OTHER_SCHEDULES, replace(tuned, known={**tuned.known, **known})))
        return found

    # ---- the end -------------------------------------------------------------------------------------------------

    def _accept(
        self,
        partitions: Sequence[tuple[str, Partition]],
        policy: str,
        rules: Collection[str] = (),
        notes: Sequence[str] = (),
    ) -> PlanDocument:
        """Run the plans end to end, keep the fastest; ties go to the last one. Certify it.

        `rules`: which of them are rules of other compilers. `notes`: for the plan, beside those on this.
        """
        sound = [(name, partition) for name, partition in partitions if not self._has_failed(partition)]
        if not sound:
            raise MeasureError(f"every plan has a kernel that fails: {self._failure()}")
        entrants = [
            form
            for name, partition in self._fitting(sound)
            for form in with_and_without_lanes(Entrant(name, partition, self._document(partition)), self.context.memory)
        ]
        self.report("comparing plans end to end", 0, 1)
        try:
            self._be_ready()
            ended = self._races.decide(entrants, *self._ending.race())
        except NoPlanRunsError:
            self._kept.clear()
            raise
        self.report("comparing plans end to end", 1, 1)
        document = self._with_times(ended.winner.plan)
        notes = [note for note in notes if note not in document.notes]
        told = [f"accepted partition: {ended.winner.name}"]
        if ended.problem:
            told.append(f"no plan's answer is within tolerance of the interpreter's: {ended.problem}")
        told += self._too_late(ended, len(entrants))
        certificate = self._certificate(ended, policy, rules, document)
        plan = replace(document, certificate=certificate, notes=(*document.notes, *told, *notes))
        self._kept.append((ended.winner.partition, plan))
        return plan

    def _with_times(self, document: PlanDocument) -> PlanDocument:
        """The plan with its kernels timed as they are in it: some write less than the candidates that were measured."""
        kernels = list(document.kernels)
        for number, kernel in enumerate(kernels):
            if kernel.measured_us is not None:
                continue
            candidate = candidate_of(document.graph, kernel.nodes, kernel.outputs)
            digest = class_digest(candidate, self.context.control.schedule_of(candidate.nodes))
            time = self.bench.recorded(digest, kernel.schedule)
            if time is None and self._clock.kernel_left(1.0):
                time = self.bench.kernel(digest, candidate, kernel.schedule)
            if time is not None and time.us < math.inf:
                kernels[number] = replace(kernel, measured_us=time.us)
        return replace(document, kernels=tuple(kernels))

    def _keep(self, partition: Partition) -> None:
        """Hold on to a plan, in case the run is interrupted."""
        if self._fits(partition):
            self._kept.append((partition, self._document(partition)))

    def _fits(self, partition: Partition) -> bool:
        """Whether the memory is enough for a partition."""
        return self.context.memory is None or self.context.memory.fits(self._document(partition))

    def _fitting(self, partitions: Sequence[tuple[str, Partition]]) -> list[tuple[str, Partition]]:
        """Those that the memory is enough for, with the default schedules where the tuned ones take more.

        Raises SearchError if there is none.
        """
        memory = self.context.memory
        if memory is None:
            return list(partitions)
        fitting: list[_Named] = []
        for name, partition in partitions:
            spare = [] if name.endswith(OTHER_SCHEDULES) else [self._timed(partition)]
            fitting += [(name, form) for form in (partition, *spare) if memory.fits(self._document(form))][:1]
        if not fitting:
            memory.check(self._document(partitions[-1][1]), partitions[-1][0])
        return fitting

    def _has_failed(self, partition: Partition) -> bool:
        """Whether a kernel is known to fail, under the schedule that it has here or under its first one."""
        for candidate in (chosen.candidate for chosen in partition.kernels):
            schedule = self.context.pinned(candidate) or partition.known.get(candidate.digest, Tuned()).schedule
            if (candidate.digest, schedule) in self.bench.counts.failing:
                return True
        return self._times.any_fails(partition)

    def _failure(self) -> str:
        failed = self.bench.counts.failed
        return failed[0] if failed else "the database says so; give another db= to measure again"

    def _certificate(
        self, ended: Standings, policy: str, rules: Collection[str], document: PlanDocument
    ) -> Certificate:
        """What is known of the winner of the last race; `document`: its plan."""
        space = self.context.space
        rule = min((name for name in ended.times if name in rules), key=lambda name: ended.times[name], default=None)
        times = [kernel.measured_us for kernel in document.kernels]
        floors = {digest: price.floor_us for digest, price in self._times.prices().items()}
        terms = self._ending.holdout(self._races.each_s)
        holdout_us, noise_us = (None, None) if terms is None else self._races.again(document, *terms)
        over = self._ending.is_over()
        self._spent.mark("comparing whole plans")
        return Certificate(
            policy=policy,
            seed=self.seed,
            budget=self.budget.words,
            candidates=len(space.candidates),
            classes=len(space.classes),
            measured=len(self._times.us.keys() & space.classes.keys()),
            schedules_tried=self._schedules.tried,
            rounds=self._rounds,
            space_digest=hashlib.sha256("".join(sorted(space.classes)).encode()).hexdigest()[:16],
            k=K_SIGMA,
            epsilon=EPSILON,
            physical_bound_us=None if over else bound_at(self.context, space, floors),
            statistical_bound_us=self._bound_us,
            sum_us=sum(t for t in times if t is not None) if all(t is not None for t in times) else None,
            e2e_us=ended.us,
            holdout_us=holdout_us,
            unfused_us=ended.times.get("unfused"),
            rule=rule,
            rule_us=None if rule is None else ended.times[rule],
            noise_floor_us=noise_us,
            refused=len(space.refused),
            dominated=None if over else dominated_at(self.context, space, self._times.optimistic(0.0)),
            cut_off=space.cut_off,
            spent=self._spent.words if self.budget.max_trials is None else None,
            words=OPTIMAL if self._proved and ended.winner.partition.solution is self._proved else NOT_PROVED,
        )

    def _be_ready(self) -> None:
        """Start the measuring process, so that what is left of the time can be given to plans."""
        if math.isfinite(self.budget.seconds):
            self.bench.ready()

    def _too_late(self, ended: Standings, entrants: int) -> Iterator[str]:
        """What the budget was too small for, in words."""
        if self._unpriced:
            yield f"{self._unpriced} kernels were left out as there was no time to price them"
        if not self.has_measured:
            yield "no kernel was measured before the last race: the budget is too small for this program"
        if ended.unrun:
            run = entrants - len(ended.unrun)
            yield f"of {entrants} plans, there was time to run {run} end to end; not run: {', '.join(ended.unrun)}"

    def _document(self, partition: Partition) -> PlanDocument:
        return document_of(self.context, partition, self.identity)


def _distinct(entries: Iterable[_Named]) -> list[_Named]:
    """Partitions into the same kernels once, under the first one's name."""
    found: dict[frozenset[object], _Named] = {}
    for entry in entries:
        found.setdefault(kernels_of(entry[1]), entry)
    return list(found.values())
