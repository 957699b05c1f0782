"""The measuring loop: solve, measure what matters, solve again, until the best measured plan is close to the bound.

First the kernels of the baselines are measured, among them those of other compilers' rules, then the single atoms, as
far as the budget allows. Each round then solves the program at optimistic prices (measured where known, else
exp(mu - k sigma) of the model's price), at expected prices (exp(mu)), and with the measured kernels alone. The first
optimum is a statistical lower bound, the last one is the best plan so far; when the two are within epsilon, more
measuring is not worth its time. Until then the unmeasured kernels of the first two are measured and the residual is
refitted. Then the chosen kernels' schedules are tuned. The partitions of rules, the model's choice and runners-up run
end to end under default schedules; those that are the fastest so get their schedules tuned too, and the tuned plan is
run against all of these.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.device.describe import vector_bits
from autofuse.errors import MeasureError, SearchError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench, PlanTime, Trial
from autofuse.measurement.racing import MOST_BLOCKS, SAME_BLOCKS, TURN_US, fastest, noise_floor, ratios
from autofuse.plan.document import NOT_PROVED, OPTIMAL, Certificate, PlanDocument, PlannedKernel
from autofuse.plan.identity import CpuIdentity, Identity
from autofuse.runtime.kernels import candidate_of
from autofuse.search.baselines import BASELINES, decide_by_rules
from autofuse.search.planning import Tuned, one_by_one
from autofuse.search.policy import Context, Partition, SearchPolicy, bound_at, document_of, predicted, solve_at
from autofuse.search.residual import ClassPrice, Residual, optimistic
from autofuse.search.schedules import choices_for
from autofuse.search.schedulesearch import tune_schedule
from autofuse.search.solver import Chosen, Solution
from autofuse.search.space import Candidate, Space
from autofuse.search.warmstart import WarmStart

K_SIGMA = 1.0
EPSILON = 0.05

_RULES_SHARE, _FIRST_SHARE, _LOOP_SHARE, _CHOSEN_SHARE, _SCHEDULE_SHARE = 0.15, 0.25, 0.6, 0.75, 0.9
"""Of the budget: when the rules have decided, and the single atoms, the loop, the schedules of the chosen kernels and
those of all others must be done."""
_SOLVE_SHARE, _HEATS_SHARE, _RACE_SHARE, _AGAIN_SHARE = 0.1, 0.05, 0.1, 0.05
"""Of the budget: for solving once; and most time for running whole plans, to see which are worth tuning, in the end,
and the winner once more."""
_CHOICES, _CLOSE = 4, 1.1
"""Partitions among the cheapest by sum, and how much dearer than the best sum they may be."""
_BETWEEN_SHARE = 0.3
"""Of an average kernel's time: what a kernel may cost the others."""
_RIVALS = 2
"""Partitions of rules, the fastest end to end, whose schedules are tuned too; and as many of the others."""
_ON_LANES = ", on lanes"
_WORTH_A_SCHEDULE = 0.98
"""A schedule other than the default must be this much faster alone."""

Report = Callable[[str, float, float], None]
"""Told (what is being done, how much is done, how much there is)."""

DEFAULT_S = 60.0
"""Seconds of tuning where nothing is said about a budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tuning run may use."""

    seconds: float = DEFAULT_S
    """Infinite where only measurements are limited."""
    max_trials: int | None = None
    """Most kernel measurements; None = as many as fit in the time."""

    def race_s(self, share: float) -> float:
        """Seconds for running whole plans: that share of the time, or of the default time if that is not limited."""
        return max(1.0, share * (self.seconds if math.isfinite(self.seconds) else DEFAULT_S))

    def solve_s(self, most: float) -> float:
        """Seconds that solving once may take, which are never more than `most`."""
        return min(most, max(1.0, _SOLVE_SHARE * self.seconds))


@dataclass(slots=True)
class _Clock:
    """What is left of a budget."""

    budget: Budget
    bench: Bench
    now: Callable[[], float]
    start: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.now()

    def share_left(self, share: float) -> bool:
        """Whether the first `share` of the time, and any trial, is left."""
        if self.elapsed() > self.budget.seconds * share:
            return False
        trials = self.budget.max_trials
        return trials is None or self.bench.counts.measured + self.bench.counts.replayed < trials * share

    def elapsed(self) -> float:
        return self.now() - self.start

    def progress(self) -> tuple[float, float]:
        """How much is used, and how much there is: of the time, or of the measurements where time is not limited."""
        if math.isfinite(self.budget.seconds) or self.budget.max_trials is None:
            return min(self.elapsed(), self.budget.seconds), self.budget.seconds
        counts = self.bench.counts
        return min(counts.measured + counts.replayed, self.budget.max_trials), self.budget.max_trials


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A plan that is run end to end."""

    name: str
    partition: Partition
    plan: PlanDocument


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
    ) -> None:
        self._clock = _Clock(budget, bench, clock)
        assert context.space is not None, "enumerated once, for both contexts"
        self.context = replace(context, deadline_s=budget.solve_s(context.deadline_s))
        self.bench, self.identity = bench, identity
        self.budget, self.seed, self.report = budget, seed, report
        self._kept: list[tuple[Partition, PlanDocument]] = []
        """Plans that can be used, the best last."""
        self._measured: dict[str, float] = {}
        """Time by digest under the default schedule; infinite for a kernel that failed."""
        self._scheduled: dict[str, tuple[Schedule, float]] = {}
        """Schedules that are faster than the default, and their time."""
        self._searched: set[str] = set()
        """Classes whose schedules have been searched."""
        self._warm_start = WarmStart(context, bench)
        self._residual = Residual()
        self._rounds = 0
        self._tried = 0
        self._bound_us: float | None = None
        self._proved: Solution | None = None
        """What was shown to be optimal under the costs that were measured, or close to it."""

    @property
    def best(self) -> PlanDocument | None:
        """The best plan so far of which no kernel is known to fail; for a run that is interrupted."""
        return next((plan for partition, plan in reversed(self._kept) if not self._has_failed(partition)), None)

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
        chosen = self._measure_until_certain([partition for _, partition in (*ruled.partitions, *found)])
        self._tune_schedules(chosen.kernels, _CHOSEN_SHARE)
        self._keep(self._timed(chosen, scheduled=True))
        others = self._near(chosen)
        others.append((f"{found[-1][0]}, schedules tuned", found[-1][1]))
        rivals, others = self._fastest_of(ruled.partitions, others)
        left_out = [f"not compared with {words}" for words in ruled.left_out]
        for name, partition in (*rivals, *others):
            self._measure((kernel.candidate for kernel in partition.kernels), _SCHEDULE_SHARE)
            if not self._tune_schedules(partition.kernels, _SCHEDULE_SHARE):
                left_out.append(f"compared with {name} before all of its schedules were tuned: the budget was used")
        self._tune_schedules(chosen.kernels, _SCHEDULE_SHARE)
        entrants = [(name, self._timed(partition)) for name, partition in found]
        entrants.append(("measured, default schedules", self._timed(chosen)))
        entrants += [(name, self._timed(p, scheduled=True)) for name, p in (*others, *rivals, ("measured", chosen))]
        return self._accept(entrants, "measured", [name for name, _ in rivals], left_out)

    def fixed_plan(self, policy: SearchPolicy) -> PlanDocument:
        """Tune only the schedules of a policy's own partition, with the same budget."""
        partition = policy.partition(self.context)
        if self.context.memory is not None:
            self.context.memory.check(self._document(partition), policy.name)
        self._keep(partition)
        self._measure((chosen.candidate for chosen in partition.kernels), _LOOP_SHARE)
        self._tune_schedules(partition.kernels, _SCHEDULE_SHARE)
        tuned = self._timed(partition, scheduled=True)
        if partition.solution is not None and partition.solution.optimal:
            self._proved = partition.solution
        self._keep(tuned)
        plain = f"{policy.name}, default schedules", self._timed(partition)
        return self._accept([plain, (policy.name, tuned)], policy.name)

    # ---- the loop ------------------------------------------------------------------------------------------------

    def _measure_until_certain(self, baselines: Sequence[Partition]) -> Partition:
        space = self.context.space
        self._measure((chosen.candidate for chosen in baselines[-1].kernels), _LOOP_SHARE)
        self._measure(self._worth_knowing(space, baselines), _FIRST_SHARE)
        best: Solution | None = None
        while True:
            self._rounds += 1
            try:
                low, expected = self._solve(space, K_SIGMA), self._solve(space, 0.0)
            except MeasureError:  # too many kernels of the space fail; those of a baseline may be others
                sound = [partition for partition in reversed(baselines) if self._is_sound(partition)]
                if not sound:
                    raise
                return sound[0]
            self._bound_us = min(low.bound_us, low.price_us)
            best = self._best_measured(space) or best
            self.report("measuring kernels", *self._clock.progress())
            if best is not None and best.price_us <= (1 + EPSILON) * self._bound_us:
                self._proved = best
                break
            todo = [c.candidate for c in (*low.kernels, *expected.kernels) if c.candidate.digest not in self._measured]
            if not todo or not self._clock.share_left(_LOOP_SHARE):
                break
            self._measure(todo, _LOOP_SHARE)
        return baselines[-1] if best is None else self._partition(space, best)

    def _worth_knowing(self, space: Space, baselines: Sequence[Partition]) -> list[Candidate]:
        """The baselines' kernels and the single atoms, those that may take the most time in the program first."""
        kernels = [chosen.candidate for partition in baselines for chosen in partition.kernels]
        kernels += [candidate for candidate in space.candidates if len(candidate.atoms) == 1]
        prices = self._prices()
        total: dict[str, float] = {}
        for digest in (candidate.digest for candidate in kernels):
            us = prices[digest].predicted_us if digest in prices else 0.0
            total[digest] = total.get(digest, 0.0) + us
        return sorted(kernels, key=lambda candidate: (-total[candidate.digest], candidate.digest))

    def _measure(self, candidates: Iterable[Candidate], share: float) -> None:
        """Time candidates that were not yet, under the default schedule, until that share of the budget is used."""
        prices = self._prices()
        fresh = {candidate.digest: candidate for candidate in candidates if candidate.digest not in self._measured}
        trials = [Trial(c.digest, c.kernel, self._first_schedule(c)) for c in fresh.values()]
        times = self.bench.kernels(trials, lambda: self._clock.share_left(share))
        for digest, found in zip(fresh, times, strict=False):
            self._measured[digest] = found.us
            if digest in prices:
                self._residual.observe(prices[digest].bound, prices[digest].predicted_us, found.us)

    def _first_schedule(self, candidate: Candidate) -> Schedule:
        """The schedule a kernel is measured under before schedules are searched: the user's, or the default."""
        return self.context.pinned(candidate) or Schedule()

    def _solve(self, space: Space, k: float) -> Solution:
        """The cheapest partition at prices exp(mu - k sigma). Raises MeasureError if failed kernels leave none."""
        prices = optimistic(self._prices(), self._measured, self._residual, k)
        try:
            return solve_at(self.context, space, prices, self.context.deadline_s)
        except SearchError as error:
            if math.inf not in self._measured.values():
                raise
            raise MeasureError(f"what is left without the kernels that failed is no plan: {self._failure()}") from error

    def _best_measured(self, space: Space) -> Solution | None:
        """The cheapest partition of measured kernels; None if they cannot compute the program."""
        known = {digest: self._measured.get(digest, math.inf) for digest in self._prices()}
        try:
            best = solve_at(self.context, space, known, self.context.deadline_s)
        except SearchError:
            return None
        self._keep(self._partition(space, best))
        return best

    def _near(self, chosen: Partition) -> list[tuple[str, Partition]]:
        """Partitions that may be faster as a whole than the one that was chosen for the sum of its kernels."""
        if chosen.solution is None or not self._clock.share_left(_SCHEDULE_SHARE):
            return []
        prices = optimistic(self._prices(), self._measured, self._residual, 0.0)
        try:
            best_us = solve_at(self.context, self.context.space, prices, self.context.deadline_s).price_us
        except SearchError:
            return []
        found = [(f"measured, choice {n}", p) for n, p in enumerate(self._runners_up(chosen, prices, best_us), 2)]
        fewer = self._fewer_kernels(chosen, prices, best_us)
        return found if fewer is None else [*found, ("measured, fewer kernels", fewer)]

    def _runners_up(self, chosen: Partition, prices: Mapping[str, float], best_us: float) -> list[Partition]:
        """The next best partitions by expected prices, each without some class of every better one.

        Kernels leave data in caches to one another, and on different lanes they overlap, so that the cheapest sum need
        not be the fastest plan; and who is the fastest as a whole can be seen without a measurement of every kernel.
        """
        space = self.context.space
        found = [chosen]
        while len(found) < _CHOICES and self._clock.share_left(_SCHEDULE_SHARE):
            used = [{kernel.candidate.digest for kernel in partition.kernels} for partition in found]
            try:
                solution = solve_at(self.context, space, prices, self.context.deadline_s, unlike=used)
            except SearchError:
                break
            if solution.price_us > _CLOSE * best_us:
                break
            found.append(replace(self._partition(space, solution), solution=None))
        return found[1:]

    def _fewer_kernels(self, chosen: Partition, prices: Mapping[str, float], best_us: float) -> Partition | None:
        """The best partition by expected prices where every kernel costs a share of an average one more.

        Kernels that are timed alone find their data in the caches; in a plan they push out one another's.
        """
        between_us = _BETWEEN_SHARE * best_us / max(len(chosen.kernels), 1)
        dearer = {digest: us + between_us for digest, us in prices.items()}
        try:
            solution = solve_at(self.context, self.context.space, dearer, self.context.deadline_s)
        except SearchError:
            return None
        if len(solution.kernels) >= len(chosen.kernels):
            return None
        return replace(self._partition(self.context.space, solution), solution=None)

    def _fastest_of(
        self, ruled: Sequence[tuple[str, Partition]], others: Sequence[tuple[str, Partition]]
    ) -> tuple[list[tuple[str, Partition]], list[tuple[str, Partition]]]:
        """Of the partitions of rules, and of others, those that are the fastest end to end under default schedules."""
        both: list[tuple[str, Partition]] = []
        plans: list[PlanDocument] = []
        for name, partition in (*ruled, *others):
            document = self._document(self._timed(partition))
            fits = self.context.memory is None or self.context.memory.fits(document)
            if fits and not self._has_failed(partition):
                both.append((name, partition))
                plans.append(document)
        names = {name for name, _ in ruled}
        if max(sum(name in names for name, _ in both), sum(name not in names for name, _ in both)) > _RIVALS:
            times = self._race(plans, _HEATS_SHARE)
            right = [number for number, time in enumerate(times) if time.samples_us and not time.problem]
            samples = [times[number].samples_us for number in right]
            slowness = ratios(samples, fastest(samples)) if samples else []
            both = [both[number] for _, number in sorted(zip(slowness, right, strict=True))]
        rivals = [entry for entry in both if entry[0] in names]
        return rivals[:_RIVALS], [entry for entry in both if entry[0] not in names][:_RIVALS]

    def _partition(self, space: Space, solution: Solution) -> Partition:
        known = predicted(solution.kernels, self._prices())
        return self._timed(Partition(space.atom_graph, solution.kernels, known, solution.price_us, solution))

    def _prices(self) -> Mapping[str, ClassPrice]:
        return self.context.prices(self.context.space)

    # ---- schedules -----------------------------------------------------------------------------------------------

    def _tune_schedules(self, kernels: Sequence[Chosen], share: float) -> bool:
        """Tune the kernels that take the most time first; each gets trials in proportion.

        Returns whether that was done for all of them before that share of the budget was used.
        """
        if not self.context.restriction.schedules:
            return True
        count: dict[str, int] = {}
        for chosen in kernels:
            count[chosen.candidate.digest] = count.get(chosen.candidate.digest, 0) + 1
        one = {chosen.candidate.digest: chosen.candidate for chosen in kernels}
        cost = {digest: self._measured.get(digest, 0.0) * number for digest, number in count.items()}
        total = sum(us for us in cost.values() if us < math.inf) or 1.0
        fresh = [d for d in cost if 0 < cost[d] < math.inf and d not in self._searched]
        free = [d for d in fresh if self.context.pinned(one[d]) is None]
        ordered = sorted(free, key=lambda d: (-cost[d], d))
        for done, digest in enumerate(ordered):
            if not self._clock.share_left(share):
                return False
            self.report("tuning schedules", done, len(ordered))
            self._searched.add(digest)
            self._tune_one(one[digest], 4 + round(28 * cost[digest] / total))
        self.report("tuning schedules", len(ordered), len(ordered))
        return all(d in self._searched or self.context.pinned(one[d]) is not None for d in one)

    def _tune_one(self, candidate: Candidate, trials: int) -> None:
        widest = vector_bits(self.identity.isa) if isinstance(self.identity, CpuIdentity) else None
        choices = choices_for(candidate.program, widest)
        digest, kernel = candidate.digest, candidate.kernel
        default = self._measured[digest]

        def time_left() -> bool:
            return self._clock.share_left(_SCHEDULE_SHARE)

        def measure(schedules: Sequence[Schedule], worth_us: float) -> list[float]:
            if time_left():
                self.bench.compile(digest, kernel, schedules, worth_us)
            trials = [Trial(digest, kernel, schedule, worth_us) for schedule in schedules]
            return [found.us for found in self.bench.kernels(trials, time_left)]

        first = self._warm_start.guesses(candidate, choices, trials)
        best, us, tried = tune_schedule(choices, measure, trials, self.seed, {Schedule(): default}, first)
        self._warm_start.learn(candidate, best)
        self._tried += tried
        if us < _WORTH_A_SCHEDULE * default:
            self._scheduled[digest] = best, us

    def _timed(self, partition: Partition, scheduled: bool = False) -> Partition:
        """The partition with its measured times, under the default schedules or the best ones found."""
        known: dict[str, Tuned] = {}
        for digest in dict.fromkeys(chosen.candidate.digest for chosen in partition.kernels):
            tuned = partition.known.get(digest, Tuned())
            schedule, us = Schedule(), self._measured.get(digest, math.inf)
            if scheduled:
                schedule, us = self._scheduled.get(digest, (schedule, us))
            known[digest] = replace(tuned, schedule=schedule, measured_us=us if us < math.inf else None)
        return replace(partition, known=known)

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
            for form in self._with_and_without_lanes(_Entrant(name, partition, self._document(partition)))
        ]
        self.report("comparing plans end to end", 0, 1)
        race = self._race([entrant.plan for entrant in entrants], _RACE_SHARE)
        right = [number for number, time in enumerate(race) if time.samples_us and not time.problem]
        if not right:  # rounding alone takes a program this far from the interpreter, or all plans share a defect
            right = [number for number, time in enumerate(race) if time.samples_us]
        if not right:
            raise MeasureError(f"no plan can be run end to end: {race[-1].problem}")
        samples = [race[number].samples_us for number in right]
        first = fastest(samples)
        winner = right[first]
        self.report("comparing plans end to end", 1, 1)
        times: dict[str, float] = {}
        """By name of the plan, with lanes or without: as many times the winner's as in the blocks that both were in."""
        for number, ratio in zip(right, ratios(samples, first), strict=True):
            plain = entrants[number].name.removesuffix(_ON_LANES)
            times[plain] = min(ratio * race[winner].us, times.get(plain, math.inf))
        name, partition = entrants[winner].name, entrants[winner].partition
        document = self._with_times(entrants[winner].plan)
        told = [f"accepted partition: {name}"]
        if race[winner].problem:
            told.append(f"no plan's answer is within tolerance of the interpreter's: {race[winner].problem}")
        certificate = self._certificate(partition, policy, race[winner].us, times.get("unfused"), document)
        rule = min((other for other in times if other in rules), key=lambda other: times[other], default=None)
        certificate = replace(certificate, rule=rule, rule_us=None if rule is None else times[rule])
        plan = replace(document, certificate=certificate, notes=(*document.notes, *told, *notes))
        self._kept.append((partition, plan))
        return plan

    def _with_and_without_lanes(self, entrant: _Entrant) -> list[_Entrant]:
        """A plan as it is and with its kernels one by one, which is preferred where it is as fast."""
        if not any(launch.lane for launch in entrant.plan.order):
            return [entrant]
        alone = replace(entrant, plan=one_by_one(entrant.plan))
        if self.context.memory is not None and not self.context.memory.fits(alone.plan):
            return [entrant]  # in another order, other values are alive together
        return [replace(entrant, name=f"{entrant.name}{_ON_LANES}"), alone]

    def _with_times(self, document: PlanDocument) -> PlanDocument:
        """The plan with its kernels timed as they are in it: some write less than the candidates that were measured."""
        known = {digest for digest, us in self._measured.items() if us < math.inf}
        kernels = list(document.kernels)
        for number, kernel in enumerate(kernels):
            if kernel.digest not in known:
                us = self._time_of(document, kernel) if self._clock.share_left(1.0) else math.inf
                kernels[number] = replace(kernel, measured_us=us if us < math.inf else None)
        return replace(document, kernels=tuple(kernels))

    def _time_of(self, document: PlanDocument, kernel: PlannedKernel) -> float:
        candidate = candidate_of(document.graph, kernel.nodes, kernel.outputs)
        return self.bench.kernel(kernel.digest, candidate, kernel.schedule).us

    def _race(self, plans: Sequence[PlanDocument], share: float) -> list[PlanTime]:
        """Samples per plan; plans that do the same work share them."""
        works = [(plan.order, *((k.nodes, k.outputs, k.schedule) for k in plan.kernels)) for plan in plans]
        distinct = dict(zip(works, plans, strict=True))
        seconds = self.budget.race_s(share)
        timed = self.bench.plans(list(distinct.values()), MOST_BLOCKS, self.seed, TURN_US, seconds)
        found = dict(zip(distinct, timed, strict=True))
        return [found[work] for work in works]

    def _keep(self, partition: Partition) -> None:
        """Hold on to a plan, in case the run is interrupted."""
        document = self._document(partition)
        if self.context.memory is None or self.context.memory.fits(document):
            self._kept.append((partition, document))

    def _fitting(self, partitions: Sequence[tuple[str, Partition]]) -> list[tuple[str, Partition]]:
        """Those that the memory is enough for, with the default schedules where the tuned ones take more.

        Raises SearchError if there is none.
        """
        memory = self.context.memory
        if memory is None:
            return list(partitions)
        both = [(name, form) for name, p in partitions for form in (p, self._timed(p))]
        fitting = {name: form for name, form in reversed(both) if memory.fits(self._document(form))}
        if not fitting:
            memory.check(self._document(partitions[-1][1]), partitions[-1][0])
        return [(name, fitting[name]) for name, _ in partitions if name in fitting]

    def _is_sound(self, partition: Partition) -> bool:
        """Whether every kernel was measured, and none failed."""
        return all(self._measured.get(c.candidate.digest, math.inf) < math.inf for c in partition.kernels)

    def _has_failed(self, partition: Partition) -> bool:
        """Whether a kernel is known to fail, under the schedule that it has here or under its first one."""
        for candidate in (chosen.candidate for chosen in partition.kernels):
            schedule = self.context.pinned(candidate) or partition.known.get(candidate.digest, Tuned()).schedule
            if (candidate.digest, schedule) in self.bench.counts.failing:
                return True
        return any(self._measured.get(chosen.candidate.digest) == math.inf for chosen in partition.kernels)

    def _failure(self) -> str:
        failed = self.bench.counts.failed
        return failed[0] if failed else "the database says so; give another db= to measure again"

    def _certificate(
        self, partition: Partition, policy: str, e2e: float, unfused: float | None, document: PlanDocument
    ) -> Certificate:
        space = self.context.space
        times = [kernel.measured_us for kernel in document.kernels]
        floors = {digest: price.floor_us for digest, price in self._prices().items()}
        seconds = self.budget.race_s(_AGAIN_SHARE)
        first, second = self.bench.plans(
            [document, document], SAME_BLOCKS, self.seed + 1, TURN_US, seconds, decides=False
        )
        ran = bool(first.samples_us and second.samples_us)
        return Certificate(
            policy=policy,
            seed=self.seed,
            budget=_budget_words(self.budget),
            candidates=len(space.candidates),
            classes=len(space.classes),
            measured=len(self._measured.keys() & space.classes.keys()),
            schedules_tried=self._tried,
            rounds=self._rounds,
            space_digest=hashlib.sha256("".join(sorted(space.classes)).encode()).hexdigest()[:16],
            k=K_SIGMA,
            epsilon=EPSILON,
            physical_bound_us=bound_at(self.context, space, floors),
            statistical_bound_us=self._bound_us,
            sum_us=sum(t for t in times if t is not None) if all(t is not None for t in times) else None,
            e2e_us=e2e,
            holdout_us=first.us if first.samples_us else None,
            unfused_us=unfused,
            noise_floor_us=noise_floor(first.samples_us, second.samples_us) if ran else None,
            words=OPTIMAL if self._proved is not None and partition.solution is self._proved else NOT_PROVED,
        )

    def _document(self, partition: Partition) -> PlanDocument:
        return document_of(self.context, partition, self.identity)


def _budget_words(budget: Budget) -> str:
    words = [f"{budget.seconds:g} s"] if math.isfinite(budget.seconds) else []
    if budget.max_trials is not None:
        words.append(f"at most {budget.max_trials} measurements")
    return ", ".join(words)


def require_positive(name: str, value: object) -> None:
    """Raise SearchError unless an amount of a budget is positive and finite."""
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SearchError(f"{name}={value!r} must be a positive number")
