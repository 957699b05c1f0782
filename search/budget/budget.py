"""What a tuning run may use, and how much of it is left."""

from __future__ import annotations

import math
from collections.abc import Callable

from autofuse.lazydataclass import dataclass, field, replace
from autofuse.measurement.client import Bench

Report = Callable[[str, float, float], None]
"""Told (what is being done, how much is done, how much there is)."""

DEFAULT_S = 60.0
"""Seconds of tuning where nothing is said about a budget."""

_SOLVE_SHARE, _ENUMERATION_SHARE = 0.1, 0.25
"""Of the budget: most time for solving once, and for enumerating kernels."""
_LEAST_STEP_S, _LEAST_STEP_SHARE = 1.0, 0.1
"""Least seconds of one step, which may be so much of a small budget."""
_LEAST_ENUMERATION_S, _MOST_OF_IT = 5.0, 0.35
"""A small program's kernels are all found in that time, which may be so much of a small budget."""
_HANG_SHARE, _LEAST_HANG_S, _MOST_HANG_S = 0.25, 5.0, 60.0
"""Of the budget: how long to wait for a kernel that should take no time; at least, and at most."""
_PRICING_PART = 0.3
"""Of the time for enumerating kernels: as much again, at most, for pricing them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tuning run may use."""

    seconds: float = DEFAULT_S
    """Infinite where only measurements are limited."""
    max_trials: int | None = None
    """Most kernel measurements; None = as many as fit in the time."""
    spent_s: float = 0.0
    """What was spent before of what the user gave."""
    kept_s: float = 0.0
    """What is kept of it for what comes after."""
    spent_trials: int = 0
    """Measurements that were spent, or given away, before."""

    def race_s(self, share: float) -> float:
        """Seconds for running whole plans: that share of the time, or of the default time if that is not limited."""
        return max(self._least_s, share * (self.seconds if math.isfinite(self.seconds) else DEFAULT_S))

    @property
    def _least_s(self) -> float:
        """For one step that little time says nothing about: a second, less of a small budget."""
        return min(_LEAST_STEP_S, _LEAST_STEP_SHARE * self.seconds)

    def before_the_end(self, ending_s: float, share: float) -> Budget:
        """The budget of which `share` is over when `ending_s` of this one are left; as it is if it has no limit."""
        return replace(self, seconds=max(min(self.seconds, (self.seconds - ending_s) / share), 1e-3))

    def solve_s(self, most: float) -> float:
        """Seconds that solving once may take, which are never more than `most`."""
        return min(most, max(self._least_s, _SOLVE_SHARE * self.seconds))

    @property
    def hang_s(self) -> float:
        """Seconds without an answer after which a kernel hangs that nothing says takes long."""
        return min(_MOST_HANG_S, max(_LEAST_HANG_S, _HANG_SHARE * self.seconds))

    @property
    def pricing_s(self) -> float:
        """Seconds for pricing these, after they were enumerated."""
        return _PRICING_PART * self.enumeration_s

    @property
    def enumeration_s(self) -> float:
        """Seconds for enumerating the kernels that there could be: a quarter, more of less than 20 seconds."""
        return max(_ENUMERATION_SHARE * self.seconds, min(_LEAST_ENUMERATION_S, _MOST_OF_IT * self.seconds))

    def without(self, seconds: float, *, begun: bool = True) -> Budget:
        """What is left without so much of it. `begun`: whether it was spent before, else it is kept for later."""
        spent_s, kept_s = (seconds, 0.0) if begun else (0.0, seconds)
        return replace(
            self,
            seconds=max(self.seconds - seconds, 1e-3),
            spent_s=self.spent_s + spent_s,
            kept_s=self.kept_s + kept_s,
        )

    @property
    def label(self) -> str:
        """For people."""
        parts = [f"{round(self.seconds + self.spent_s + self.kept_s, 2):g} s"] if math.isfinite(self.seconds) else []
        if self.max_trials is not None:
            parts.append(f"at most {self.max_trials + self.spent_trials} measurements")
        return ", ".join(parts)


@dataclass(slots=True)
class Spent:
    """Where the time went: what was done from one mark to the next."""

    now: Callable[[], float]
    before_s: float
    """Seconds that were spent before this was made."""
    _last: float = field(init=False)
    _done: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def __post_init__(self) -> None:
        self._last = self.now()

    def mark(self, what: str) -> None:
        """What was done since the last mark."""
        last, self._last = self._last, self.now()
        self._done[what] = self._done.get(what, 0.0) + self._last - last

    @property
    def label(self) -> str:
        """For people, in the order in which it was done."""
        done = {"imports and tracing": self.before_s, **self._done} if self.before_s else self._done
        return ", ".join(f"{seconds:.1f} s {what}" for what, seconds in done.items())


@dataclass(slots=True)
class Clock:
    """What is left of a budget, from now on."""

    budget: Budget
    bench: Bench
    now: Callable[[], float]
    start: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.now()

    def solve_s(self, most: float, share: float, part: float) -> float:
        """Seconds that solving once may take, which are never more than `most`.

        `part` of what is left of the first `share` of the time, so that many solves may follow.
        """
        least = min(_LEAST_STEP_S, _LEAST_STEP_SHARE * self.budget.seconds)
        return min(most, max(least, part * (share * self.budget.seconds - self.elapsed())))

    def kernel_left(self, share: float, also_s: float = 0.0) -> bool:
        """Whether another kernel can be timed, as long as that last took, and `also_s`, in the first `share`."""
        return self.share_left(share, self.bench.ahead_s + also_s)

    def share_left(self, share: float, ahead_s: float = 0.0) -> bool:
        """Whether the first `share` of the time, what takes `ahead_s` seconds done, and any trial, is left."""
        if not self.time_left(share, ahead_s):
            return False
        trials = self.budget.max_trials
        return trials is None or self.bench.counts.measured + self.bench.counts.replayed < trials * share

    def used(self) -> float:
        """The share that is used, of the time or of the measurements, whichever is more."""
        trials = self.budget.max_trials
        measured = 0.0 if trials is None else (self.bench.counts.measured + self.bench.counts.replayed) / trials
        return max(self.elapsed() / self.budget.seconds, measured)

    def time_left(self, share: float, ahead_s: float) -> bool:
        """Whether what takes `ahead_s` seconds is done in the first `share` of the time."""
        return self.elapsed() + ahead_s <= self.budget.seconds * share

    def left_s(self, share: float) -> float:
        """Seconds until the first `share` of the time is over; 0 if it is."""
        return max(0.0, share * self.budget.seconds - self.elapsed())

    def elapsed(self) -> float:
        return self.now() - self.start

    def be_ready(self) -> None:
        """Start the measuring process, so that what is left of the time can be given to plans."""
        if math.isfinite(self.budget.seconds):
            self.bench.ready()

    def progress(self) -> tuple[float, float]:
        """How much is used, and how much there is: of the time, or of the measurements where time is not limited."""
        if math.isfinite(self.budget.seconds) or self.budget.max_trials is None:
            return min(self.elapsed(), self.budget.seconds), self.budget.seconds
        counts = self.bench.counts
        return min(counts.measured + counts.replayed, self.budget.max_trials), self.budget.max_trials
