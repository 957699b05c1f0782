"""What is known of kernels' times under the schedule that they are first measured under: measured, or expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench, Trial
from autofuse.search.budget.budget import Clock
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.prices.residual import ClassPrice, Residual, optimistic
from autofuse.search.solve.solver import Solution
from autofuse.search.space.candidates import Candidate, Space

_AGAIN_SHARE = 0.05
"""Of the budget: most time for the second times of kernels."""


class KernelTimes:
    """Measures kernels within a budget, and corrects the model's prices of the others by what it sees."""

    def __init__(self, context: Context, bench: Bench, clock: Clock) -> None:
        self._context, self._bench, self._clock = context, bench, clock
        self.us: dict[str, float] = {}
        """What was measured, by class; infinite for a kernel that failed."""
        self._again: set[str] = set()
        """Classes that were timed a second time."""
        self._again_s = _AGAIN_SHARE * clock.budget.seconds
        self.timed_once = 0
        """Classes that were to be timed a second time when the time for that was over."""
        self._residual = Residual()

    def measure(self, candidates: Iterable[Candidate], share: float) -> None:
        """Time candidates that were not yet, until that share of the budget is used."""
        fresh = {candidate.digest: candidate for candidate in candidates if candidate.digest not in self.us}
        trials = [Trial(c.digest, c.kernel, self._schedule(c)) for c in fresh.values()]
        times = self._bench.kernels(trials, lambda: self._clock.kernel_left(share))
        self.us.update((digest, found.us) for digest, found in zip(fresh, times, strict=False))
        self._observe()

    def measure_again(self, space: Space, share: float = 1.0, after_s: float = 0.0) -> bool:
        """Time the measured kernels a second time; the lesser time counts. Returns whether any time changed.

        Something that slows the machine down for a second may spoil all samples of a kernel, and with it the choice.
        Those that are slow for what the model says come first, as far as the time for this goes. `after_s`: what comes
        of changed times, and is to be done in that share of the budget too.
        """
        prices = self.prices()
        measured = {c.digest: c for c in space.candidates if self.us.get(c.digest, math.inf) < math.inf}
        todo = sorted(
            measured.keys() - self._again,
            key=lambda digest: (-self.us[digest] / (prices[digest].predicted_us or 1.0), digest),
        )
        start = self._clock.elapsed()
        trials = [Trial(d, measured[d].kernel, self._schedule(measured[d]), again=True) for d in todo]

        def goes_on() -> bool:
            done = self._clock.elapsed() + self._bench.ahead_s
            return done < start + self._again_s and self._clock.time_left(share, self._bench.ahead_s + after_s)

        times = self._bench.kernels(trials, goes_on)
        self._again_s -= self._clock.elapsed() - start
        self.timed_once = len(todo) - len(times)
        before = dict(self.us)
        for digest, found in zip(todo, times, strict=False):
            self._again.add(digest)
            self.us[digest] = min(found.us, before[digest]) if found.status == "ok" else math.inf
        self._observe()
        return self.us != before

    def prices(self) -> Mapping[str, ClassPrice]:
        """What the model says of every class."""
        return self._context.prices(self._context.space)

    def optimistic(self, k: float) -> dict[str, float]:
        """As measured, else exp(mu - k sigma) of the corrected model; by class. At k = 0, what is expected."""
        return optimistic(self.prices(), self.us, self._residual, k)

    def measured_only(self) -> dict[str, float]:
        """As measured, by class; infinite where nothing is known."""
        return {digest: self.us.get(digest, math.inf) for digest in self.prices()}

    @property
    def has_measured(self) -> bool:
        """Whether any kernel's time is known."""
        return any(us < math.inf for us in self.us.values())

    def all_run(self, kernels: Partition | Solution) -> bool:
        """Whether every kernel was measured, and none failed."""
        return all(self.us.get(chosen.candidate.digest, math.inf) < math.inf for chosen in kernels.kernels)

    def any_fails(self, kernels: Partition | Solution) -> bool:
        """Whether a kernel was measured, and failed."""
        return any(self.us.get(chosen.candidate.digest) == math.inf for chosen in kernels.kernels)

    def _observe(self) -> None:
        """Fit the correction to all times anew."""
        self._residual = Residual()
        for digest, price in self.prices().items():
            self._residual.observe(price.bound, price.predicted_us, self.us.get(digest, math.inf))

    def _schedule(self, candidate: Candidate) -> Schedule:
        """The schedule a kernel is measured under before schedules are searched: the user's, or the default."""
        return self._context.pinned(candidate) or Schedule()
