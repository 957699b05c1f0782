"""What is known of kernels' times under the schedule that they are first measured under: measured, or expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.measurement.kernelrecords import Trial
from autofuse.search.budget.budget import Clock
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.prices.residual import ClassPrice, Residual, optimistic
from autofuse.search.solve.solver import Solution
from autofuse.search.space.candidates import Candidate, Space

_AGAIN_SHARE = 0.05
"""Of the budget: most time for the second times of kernels."""

_NINETY = 1.645
"""Nine in ten values of a normal lie within so many standard deviations."""
_FORESEEN = 0.9
"""Of the times taken, the share in their intervals from which on the others are believed too."""


@dataclass(frozen=True, slots=True)
class _Expectation:
    """What is believed of a kernel that is about to be timed."""

    us: float
    sigma: float
    """Standard deviation of log(measured / us)."""

    def holds(self, us: float) -> bool:
        """Whether a time lies in the interval of 90 %."""
        return 0 < us < math.inf and abs(math.log(us / self.us)) <= _NINETY * self.sigma


class KernelTimes:
    """Measures kernels within a budget, and corrects the model's prices of the others by what it sees."""

    def __init__(self, context: Context, bench: Bench, clock: Clock) -> None:
        self._context, self._bench, self._clock = context, bench, clock
        self.us: dict[str, float] = {}
        """What was measured, by class; infinite for a kernel that failed."""
        self._in_a_bad_moment: set[str] = set()
        """Classes that failed in a way that may pass."""
        self._excused: dict[str, float] = {}
        """Such classes without which there is no plan, and those that are not timed by themselves: what the model says
        they take."""
        self._again: set[str] = set()
        """Classes that were timed a second time."""
        self._again_s = _AGAIN_SHARE * clock.budget.seconds
        self._foreseen: list[bool] = []
        """Of each time that was taken, whether it was one that was expected."""
        self.timed_once = 0
        """Classes that were to be timed a second time when the time for that was over."""
        self._residual = Residual({}, {})

    def measure(self, candidates: Iterable[Candidate], share: float) -> None:
        """Time candidates that were not yet, until that share of the budget is used."""
        fresh = {candidate.digest: candidate for candidate in self.unknown(candidates)}
        prices = self.prices()
        trials = [
            Trial(c.digest, c.kernel, self._schedule(c), expected_us=self._expected_us(prices, c.digest))
            for c in fresh.values()
        ]
        expected = self._expectations(prices, list(fresh))
        times = self._bench.kernels(trials, lambda: self._clock.kernel_left(share))
        for digest, found in zip(fresh, times, strict=False):
            self.us[digest] = found.us
            if found.may_pass:
                self._in_a_bad_moment.add(digest)
            if digest in expected:
                self._foreseen.append(expected[digest].holds(found.us))
        self._observe()

    def unknown(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those of which no time is known, and one can be."""
        open_ones = [c for c in candidates if c.digest not in self.us and c.digest not in self._excused]
        driven = {c.digest for c in open_ones if self._context.kernels.prices.is_driven(c)}
        if driven:  # loops and branches are timed as a part of whole plans only
            prices = self.prices()
            self._excused |= {digest: self._expected_us(prices, digest) for digest in driven}
        return [c for c in open_ones if c.digest not in driven]

    def excuse(self) -> bool:
        """Expect kernels that failed in a way that may pass to take what the model says. Returns whether there are any.

        Where no plan does without them, that is better than none: whole plans show whether they run. They are not
        measured again.
        """
        prices = self.prices()
        fresh = {digest for digest in self._in_a_bad_moment if self.us.pop(digest, None) is not None}
        self._in_a_bad_moment.clear()
        self._excused |= {digest: self._expected_us(prices, digest) for digest in fresh}
        failing = self._bench.counts.failing
        for digest, schedule in [key for key, time in failing.items() if key[0] in fresh and time.may_pass]:
            del failing[digest, schedule]
        return bool(fresh)

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
        trials = [
            Trial(d, measured[d].kernel, self._schedule(measured[d]), expected_us=self.us[d], again=True) for d in todo
        ]

        def goes_on() -> bool:
            done = self._clock.elapsed() + self._bench.ahead_s
            return done < start + self._again_s and self._clock.time_left(share, self._bench.ahead_s + after_s)

        times = self._bench.kernels(trials, goes_on)
        self._again_s -= self._clock.elapsed() - start
        self.timed_once = len(todo) - len(times)
        before = dict(self.us)
        for digest, found in zip(todo, times, strict=False):
            self._again.add(digest)
            fails = found.status != "ok" and not found.may_pass
            self.us[digest] = math.inf if fails else min(found.us, before[digest])
        self._observe()
        return self.us != before

    def prices(self) -> Mapping[str, ClassPrice]:
        """What the model says of every class."""
        return self._context.prices(self._context.space)

    def optimistic(self, k: float) -> dict[str, float]:
        """As measured, else exp(mu - k sigma) of the corrected model; by class. At k = 0, what is expected."""
        return optimistic(self.prices(), self.us, self._residual, k)

    def measured_only(self) -> dict[str, float]:
        """As measured, by class; infinite where nothing is known, as the model says for what is excused."""
        return {digest: self.us.get(digest, self._excused.get(digest, math.inf)) for digest in self.prices()}

    @property
    def are_as_expected(self) -> bool:
        """Whether intervals have held so far, and no kernel failed: whether what is not measured is known too."""
        return math.inf not in self.us.values() and sum(self._foreseen) >= _FORESEEN * len(self._foreseen)

    @property
    def has_measured(self) -> bool:
        """Whether any kernel's time is known."""
        return any(us < math.inf for us in self.us.values())

    def all_run(self, kernels: Partition | Solution) -> bool:
        """Whether every kernel was measured, and none failed."""
        return all(self.us.get(chosen.candidate.digest, math.inf) < math.inf for chosen in kernels.kernels)

    def all_driven(self, partition: Partition) -> bool:
        """Whether all kernels are loops or branches that are timed as a part of whole plans only."""
        return all(self._context.kernels.prices.is_driven(chosen.candidate) for chosen in partition.kernels)

    def any_fails(self, kernels: Partition | Solution) -> bool:
        """Whether a kernel was measured, and failed."""
        return any(self.us.get(chosen.candidate.digest) == math.inf for chosen in kernels.kernels)

    def _expectations(self, prices: Mapping[str, ClassPrice], digests: Sequence[str]) -> dict[str, _Expectation]:
        """What is believed of kernels before they are timed, by class, where the model prices them."""
        known = [digest for digest in digests if digest in prices and prices[digest].predicted_us > 0]
        mean, sigma = self._residual.predict([prices[digest] for digest in known])
        return {
            digest: _Expectation(prices[digest].predicted_us * math.exp(log), float(spread))
            for digest, log, spread in zip(known, mean, sigma, strict=True)
        }

    def _expected_us(self, prices: Mapping[str, ClassPrice], digest: str) -> float:
        return prices[digest].predicted_us if digest in prices else 0.0

    def _observe(self) -> None:
        """Fit the correction to all times anew."""
        self._residual = Residual(self.prices(), self.us)

    def _schedule(self, candidate: Candidate) -> Schedule:
        """The schedule a kernel is measured under before schedules are searched: the user's, or the default."""
        return self._context.pinned(candidate) or Schedule()
