"""The schedules of chosen kernels: which are tuned, in which order, and with how many trials each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from autofuse.lower.decisions import Choices
from autofuse.lower.schedule import Schedule, Value
from autofuse.measurement.client import Bench
from autofuse.measurement.kernelrecords import Trial
from autofuse.search.budget.budget import Clock, Report
from autofuse.search.policies.context import Context
from autofuse.search.schedules.schedulesearch import tune_schedule
from autofuse.search.schedules.warmstart import WarmStart
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidates import Candidate

_WORTH_A_SCHEDULE = 0.98
"""A schedule other than the default must be this much faster alone."""
_NEAR, _MATTERS, _MOST_WAYS = 1.15, 0.1, 2
"""How much slower alone a kernel may be that walks memory in another way, what share of the whole time it must take,
and how many such ways are tried in whole plans."""

_Way = tuple[Value, ...]
"""How a kernel walks and writes memory: what was decided of that."""


class ScheduleTuner:
    """Finds faster schedules for kernels whose times under the default one are known."""

    def __init__(
        self,
        context: Context,
        bench: Bench,
        clock: Clock,
        seed: int,
        report: Report,
        measured: Mapping[str, float],
    ) -> None:
        """`measured`: times by class under the default schedule, in us; it may grow later."""
        self._context, self._bench, self._clock = context, bench, clock
        self._seed, self._report, self._measured = seed, report, measured
        self._warm_start = WarmStart(context, bench)
        self.faster: dict[str, tuple[Schedule, float]] = {}
        """By class a schedule that is faster than the default, and its time."""
        self.times: dict[str, dict[Schedule, float]] = {}
        """Times of all schedules that were tried, by class."""
        self.tried = 0
        """How many schedules were tried."""
        self._wanted: dict[str, int] = {}
        """Most schedules that were to be tried, by class."""
        self._searched: set[str] = set()
        """Classes whose schedules have been searched."""

    def tune(self, kernels: Sequence[Chosen], share: float) -> None:
        """Tune the kernels that take the most time first, until that share of the budget is used.

        Each gets trials in proportion to the time that it takes.
        """
        count: dict[str, int] = {}
        for chosen in kernels:
            count[chosen.candidate.digest] = count.get(chosen.candidate.digest, 0) + 1
        one = {chosen.candidate.digest: chosen.candidate for chosen in kernels}
        cost = {digest: self._measured.get(digest, 0.0) * number for digest, number in count.items()}
        total = sum(us for us in cost.values() if us < math.inf) or 1.0
        fresh = [d for d in cost if 0 < cost[d] < math.inf and d not in self._searched]
        free = [d for d in fresh if self._context.pinned(one[d]) is None]
        ordered = sorted(free, key=lambda d: (-cost[d], d))
        for done, digest in enumerate(ordered):
            if not self._clock.share_left(share):
                return
            self._report("tuning schedules", done, len(ordered))
            trials = self._wanted[digest] = max(self._wanted.get(digest, 0), 4 + round(28 * cost[digest] / total))
            if self._tune_one(one[digest], trials, share):
                self._searched.add(digest)
        self._report("tuning schedules", len(ordered), len(ordered))

    def is_done(self, kernels: Sequence[Chosen]) -> bool:
        """Whether the schedules of all kernels were searched that have any to search."""
        return all(
            candidate.digest in self._searched
            or self._context.pinned(candidate) is not None
            or not self._choices(candidate)
            for candidate in (chosen.candidate for chosen in kernels)
        )

    def near_ties(self, kernels: Sequence[Chosen]) -> list[dict[str, tuple[Schedule, float]]]:
        """Schedules to try in whole plans, by class, in place of the best ones: each walks or writes memory otherwise.

        Timed alone, a kernel finds in the caches what in a plan it need not, which one way to walk memory minds more
        than another. The cheapest ways by the kernels' times alone, a few of them. A kernel that is much slower so, or
        was not tried so, keeps its best schedule.
        """
        count = Counter(chosen.candidate.digest for chosen in kernels)
        total = sum(self._best(digest)[1] * number for digest, number in count.items())
        near: dict[_Way, dict[str, tuple[Schedule, float]]] = {}
        loss: dict[_Way, float] = {}
        for digest, number in count.items():
            best, best_us = self._best(digest)
            if not _MATTERS * total <= number * best_us < math.inf:
                continue
            for schedule, us in sorted(self.times.get(digest, {}).items(), key=lambda item: item[1]):
                way = self._way(schedule)
                if way == self._way(best) or us > _NEAR * best_us or digest in near.get(way, {}):
                    continue
                near.setdefault(way, {})[digest] = schedule, us
                loss[way] = loss.get(way, 0.0) + number * (us - best_us)
        return [near[way] for way in sorted(near, key=lambda way: loss[way])[:_MOST_WAYS]]

    def _best(self, digest: str) -> tuple[Schedule, float]:
        return self.faster.get(digest, (Schedule(), self._measured.get(digest, math.inf)))

    def _choices(self, candidate: Candidate) -> Choices:
        """What there is to decide in a kernel on this machine."""
        return self._context.limits.decisions.choices(candidate.program)

    def _way(self, schedule: Schedule) -> _Way:
        return tuple(schedule[decision] for decision in self._context.limits.decisions.contextual)

    def _tune_one(self, candidate: Candidate, trials: int, share: float) -> bool:
        """Try schedules of a kernel, until that share of the budget is used. Returns whether all trials were made.

        What was tried before is known.
        """
        choices = self._choices(candidate)
        digest, kernel = candidate.digest, candidate.kernel
        known = self.times.setdefault(digest, {Schedule(): self._measured[digest]})
        asked = answered = 0

        def measure(schedules: Sequence[Schedule], worth_us: float) -> list[float]:
            nonlocal asked, answered
            if self._clock.kernel_left(share, self._bench.compile_s):
                self._bench.compile(digest, kernel, schedules, worth_us)
            trials = [Trial(digest, kernel, schedule, worth_us, self._measured[digest]) for schedule in schedules]
            found = [time.us for time in self._bench.kernels(trials, lambda: self._clock.kernel_left(share))]
            known.update(zip(schedules, found, strict=False))
            asked, answered = asked + len(schedules), answered + len(found)
            return found

        first = self._warm_start.guesses(candidate, choices, trials)
        best, us, tried = tune_schedule(choices, measure, trials, self._seed, dict(known), first)
        self.tried += tried
        if us < _WORTH_A_SCHEDULE * self._measured[digest]:
            self.faster[digest] = best, us
        if answered == asked:
            self._warm_start.learn(candidate, best)
        return answered == asked
