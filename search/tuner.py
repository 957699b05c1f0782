"""The measuring loop: solve, measure what matters, solve again, until the best measured plan is close to the bound.

Each round solves the program twice: at optimistic prices (measured where known, else exp(mu - k sigma) of the model's
price) and at expected prices (exp(mu)). The unmeasured kernels of both optima are measured, the residual is refitted.
The optimistic optimum is a statistical lower bound: when the best fully measured partition is within epsilon of it,
more measuring is not worth its time. Then the chosen kernels' schedules are tuned, and the few best plans are run end
to end against the unfused plan.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.errors import SearchError
from autofuse.ir.digest import subgraph_digest
from autofuse.lower.schedule import Schedule
from autofuse.measure.client import Bench
from autofuse.measure.timer import mad, median
from autofuse.plan.document import Certificate, PlanDocument
from autofuse.plan.identity import Identity
from autofuse.search.planning import Tuned, plan_document
from autofuse.search.policy import Analytical, Context, Partition, SearchPolicy, Unfused, solve_at
from autofuse.search.residual import ClassPrice, Residual, optimistic
from autofuse.search.schedules import choices_for, tune_schedule
from autofuse.search.solver import Chosen, Solution
from autofuse.search.space import Candidate, Space

K_SIGMA = 1.0
EPSILON = 0.05

Report = Callable[[str, float, float], None]
"""Told (what is being done, how much is done, how much there is)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tuning run may use."""

    seconds: float = 60.0
    max_trials: int | None = None
    """Most kernel measurements; None = as many as fit in the time."""


@dataclass(slots=True)
class _Clock:
    """What is left of a budget."""

    budget: Budget
    bench: Bench
    start: float = field(default_factory=time.monotonic)

    def share_left(self, share: float) -> bool:
        """Whether the first `share` of the time, and any trial, is left."""
        if time.monotonic() - self.start > self.budget.seconds * share:
            return False
        trials = self.budget.max_trials
        return trials is None or self.bench.counts.measured + self.bench.counts.replayed < trials * share

    def elapsed(self) -> float:
        return time.monotonic() - self.start


class Tuner:
    """Finds and measures a plan for one program."""

    def __init__(
        self, context: Context, bench: Bench, identity: Identity, budget: Budget, seed: int, report: Report
    ) -> None:
        self.context, self.bench, self.identity = context, bench, identity
        self.budget, self.seed, self.report = budget, seed, report
        self.best: PlanDocument | None = None
        """The best plan so far; kept when the run is interrupted."""
        self._measured: dict[str, float] = {}
        self._tuned: dict[str, Tuned] = {}
        self._residual = Residual()
        self._rounds = 0
        self._schedules = 0
        self._bound_us: float | None = None
        self._clock = _Clock(budget, bench)

    def measured_plan(self) -> PlanDocument:
        """Search the whole space, measuring. Raises SearchError or MeasureError."""
        unfused = Unfused().partition(self.context)
        self.best = self._document(unfused)
        analytical = Analytical().partition(self.context)
        self.best = self._document(analytical)
        chosen = self._measure_until_certain(analytical)
        self._tune_schedules(chosen.kernels)
        tuned = replace(chosen, known=self._known_for(chosen.kernels))
        self.best = self._document(tuned)
        return self._accept([("unfused", unfused), ("analytical", analytical), ("measured", tuned)], "measured")

    def fixed_plan(self, policy: SearchPolicy) -> PlanDocument:
        """Tune only the schedules of a policy's own partition, with the same budget."""
        partition = policy.partition(self.context)
        self.best = self._document(partition)
        for chosen in partition.kernels:
            if self._clock.share_left(0.6):
                self._measure_kernel(chosen)
        self._tune_schedules(partition.kernels)
        tuned = replace(partition, known=self._known_for(partition.kernels))
        self.best = self._document(tuned)
        return self._accept([(f"{policy.name}, default schedules", partition), (policy.name, tuned)], policy.name)

    # ---- the loop ------------------------------------------------------------------------------------------------

    def _measure_until_certain(self, first: Partition) -> Partition:
        space = self.context.space
        prices = self.context.prices(space)
        representatives = {digest: members[0] for digest, members in space.classes.items()}
        best, best_us = first, math.inf
        todo = [chosen.candidate.digest for chosen in first.kernels]
        while True:
            self._rounds += 1
            self._measure_classes(todo, representatives, prices)
            low = self._solve(space, prices, K_SIGMA)
            expected = self._solve(space, prices, 0.0)
            self._bound_us = min(low.bound_us, low.price_us)
            for solution in (low, expected):
                if self._is_measured(solution) and solution.price_us < best_us:
                    best_us = solution.price_us
                    best = self._partition(space, solution)
            self.report("measuring kernels", min(self._clock.elapsed(), self.budget.seconds), self.budget.seconds)
            if best_us <= (1 + EPSILON) * self._bound_us:
                return best
            todo = self._unmeasured(low, expected)
            if not todo or not self._clock.share_left(0.6):
                return best if best_us < math.inf else self._partition(space, expected)

    def _solve(self, space: Space, prices: Mapping[str, ClassPrice], k: float) -> Solution:
        return solve_at(self.context, space, optimistic(prices, self._measured, self._residual, k))

    def _measure_classes(
        self, digests: Sequence[str], representatives: Mapping[str, Candidate], prices: Mapping[str, ClassPrice]
    ) -> None:
        for digest in dict.fromkeys(digests):
            if digest in self._measured or not self._clock.share_left(0.65):
                continue
            candidate = representatives[digest]
            found = self.bench.kernel(digest, candidate.kernel, Schedule())
            self._measured[digest] = found.median_us
            price = prices[digest]
            self._residual.observe(price.bound, price.predicted_us, found.median_us)
            self._tuned[digest] = Tuned(Schedule(), price.predicted_us, _finite(found.median_us), price.bound)

    def _unmeasured(self, *solutions: Solution) -> list[str]:
        return [
            chosen.candidate.digest
            for solution in solutions
            for chosen in solution.kernels
            if chosen.candidate.digest not in self._measured
        ]

    def _is_measured(self, solution: Solution) -> bool:
        return all(chosen.candidate.digest in self._measured for chosen in solution.kernels)

    def _partition(self, space: Space, solution: Solution) -> Partition:
        known = self._known_for(solution.kernels)
        return Partition(space.atom_graph, solution.kernels, known, solution.price_us, solution)

    # ---- schedules -----------------------------------------------------------------------------------------------

    def _measure_kernel(self, chosen: Chosen) -> None:
        digest = chosen.candidate.digest
        if digest not in self._measured:
            self._measured[digest] = self.bench.kernel(digest, chosen.candidate.kernel, Schedule()).median_us

    def _tune_schedules(self, kernels: Sequence[Chosen]) -> None:
        """Tune the kernels that take the most time first; each gets trials in proportion."""
        count: dict[str, int] = {}
        for chosen in kernels:
            count[chosen.candidate.digest] = count.get(chosen.candidate.digest, 0) + 1
        one = {chosen.candidate.digest: chosen for chosen in kernels}
        cost = {digest: self._measured.get(digest, 0.0) * number for digest, number in count.items()}
        total = sum(us for us in cost.values() if us < math.inf) or 1.0
        ordered = sorted((d for d in cost if 0 < cost[d] < math.inf), key=lambda d: (-cost[d], d))
        for done, digest in enumerate(ordered):
            if not self._clock.share_left(0.9):
                return
            self.report("tuning schedules", done, len(ordered))
            self._tune_one(one[digest], 4 + round(28 * cost[digest] / total))
        self.report("tuning schedules", len(ordered), len(ordered))

    def _tune_one(self, chosen: Chosen, trials: int) -> None:
        candidate = chosen.candidate
        choices = choices_for(candidate.program)
        if not choices:
            return

        def measure(schedule: Schedule) -> float:
            if not self._clock.share_left(0.9):
                return math.inf
            return self.bench.kernel(candidate.digest, candidate.kernel, schedule).median_us

        best, us, tried = tune_schedule(choices, measure, trials, self.seed)
        self._schedules += tried
        default = self._measured[candidate.digest]
        if us < 0.98 * default:
            before = self._tuned.get(candidate.digest, Tuned())
            self._tuned[candidate.digest] = replace(before, schedule=best, measured_us=_finite(us))

    def _known_for(self, kernels: Sequence[Chosen]) -> dict[str, Tuned]:
        prices = self.context.prices(self.context.space)
        found: dict[str, Tuned] = {}
        for chosen in kernels:
            digest = chosen.candidate.digest
            price = prices.get(digest)
            plain = Tuned(predicted_us=price.predicted_us, bound=price.bound) if price is not None else Tuned()
            found[digest] = self._tuned.get(digest, plain)
        return found

    # ---- the end -------------------------------------------------------------------------------------------------

    def _accept(self, partitions: Sequence[tuple[str, Partition]], policy: str) -> PlanDocument:
        """Run the plans end to end, keep the fastest; ties go to the later one. Certify it."""
        plans = [self._document(partition) for _, partition in partitions]
        distinct = list(dict.fromkeys(range(len(plans))))
        self.report("comparing plans end to end", 0, 1)
        samples = self.bench.plans(plans, blocks=15, seed=self.seed, sample_us=4000.0)
        times = {number: median(samples[number]) for number in distinct}
        noise = max(2.0 * mad(samples[number]) for number in distinct)
        winner = max(distinct)
        for number in reversed(distinct):
            if times[number] < times[winner] - noise:
                winner = number
        holdout = self.bench.plans([plans[winner]], blocks=9, seed=self.seed + 1, sample_us=4000.0)
        self.report("comparing plans end to end", 1, 1)
        partition = self._with_times(partitions[winner][1])
        certificate = self._certificate(
            partition, policy, times[winner], median(holdout[0]), times[0] if policy == "measured" else None, noise
        )
        note = f"accepted partition: {partitions[winner][0]}"
        document = self._document(partition)
        self.best = replace(document, certificate=certificate, notes=(*document.notes, note))
        return self.best

    def _with_times(self, partition: Partition) -> Partition:
        """The partition with the measured times of kernels that run under the default schedule."""
        known = {
            digest: replace(tuned, measured_us=_finite(self._measured[digest]))
            if tuned.schedule == Schedule() and digest in self._measured
            else tuned
            for digest, tuned in partition.known.items()
        }
        return replace(partition, known=known)

    def _certificate(
        self,
        partition: Partition,
        policy: str,
        e2e: float,
        holdout: float,
        unfused: float | None,
        noise: float,
    ) -> Certificate:
        space = self.context.space
        prices = self.context.prices(space)
        times = [partition.known[chosen.candidate.digest].measured_us for chosen in partition.kernels]
        floors = {digest: price.floor_us for digest, price in prices.items()}
        physical = solve_at(self.context, space, floors)
        return Certificate(
            policy=policy,
            seed=self.seed,
            budget=_budget_words(self.budget),
            candidates=len(space.candidates),
            classes=len(space.classes),
            measured=len(self._measured),
            schedules_tried=self._schedules,
            rounds=self._rounds,
            space_digest=hashlib.sha256("".join(sorted(space.classes)).encode()).hexdigest()[:16],
            k=K_SIGMA,
            epsilon=EPSILON,
            physical_bound_us=min(physical.bound_us, physical.price_us),
            statistical_bound_us=self._bound_us,
            sum_us=sum(t for t in times if t is not None) if all(t is not None for t in times) else None,
            e2e_us=e2e,
            holdout_us=holdout,
            unfused_us=unfused,
            noise_floor_us=noise,
        )

    def _document(self, partition: Partition) -> PlanDocument:
        return document_of(self.context, partition, self.identity)


def document_of(context: Context, partition: Partition, identity: Identity) -> PlanDocument:
    """A plan document for a partition that was not measured."""
    known: dict[str, Tuned] = {}
    for chosen in partition.kernels:
        kernel = partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs)
        mark = subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs)
        known[mark] = partition.known.get(chosen.candidate.digest, Tuned())
    return plan_document(context.program, partition.atoms, partition.kernels, known, identity)


def _finite(us: float) -> float | None:
    return us if us < math.inf else None


def _budget_words(budget: Budget) -> str:
    words = f"{budget.seconds:g} s"
    return words if budget.max_trials is None else f"{words}, at most {budget.max_trials} measurements"


def require_positive(name: str, value: float) -> None:
    """Raise SearchError unless an amount of a budget is positive and finite."""
    if not 0 < value < math.inf:
        raise SearchError(f"{name}={value!r} must be a positive number")
