"""What a tuning run may use, and how much of it is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autofuse.measurement.client import Bench

Report = Callable[[str, float, float], None]
"""Told (what is being done, how much is done, how much there is)."""

DEFAULT_S = 60.0
"""Seconds of tuning where nothing is said about a budget."""

_SOLVE_SHARE, _ENUMERATION_SHARE = 0.1, 0.25
"""Of the budget: most time for solving once, and for enumerating kernels."""
_LEAST_STEP_S, _LEAST_STEP_SHARE = 1.0, 0.1
"""Least seconds of one step, which may be so much of a small budget."""
_LEAST_ENUMERATION_S, _MOST_OF_IT = 5.0, 0.5
"""A small program's kernels are all found in that time, which may be so much of a small budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tuning run may use."""

    seconds: float = DEFAULT_S
    """Infinite where only measurements are limited."""
    max_trials: int | None = None
    """Most kernel measurements; None = as many as fit in the time."""
    spent_s: float = 0.0
    """What was spent before of what the user gave."""

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
    def enumeration_s(self) -> float:
        """Seconds for enumerating the kernels that there could be: a quarter, more of less than 20 seconds."""
        return max(_ENUMERATION_SHARE * self.seconds, min(_LEAST_ENUMERATION_S, _MOST_OF_IT * self.seconds))

    def without(self, seconds: float) -> Budget:
        """What is left after so long."""
        return replace(self, seconds=max(self.seconds - seconds, 1e-3), spent_s=self.spent_s + seconds)

    @property
    def words(self) -> str:
        """For people."""
        words = [f"{round(self.seconds + self.spent_s, 2):g} s"] if math.isfinite(self.seconds) else []
        if self.max_trials is not None:
            words.append(f"at most {self.max_trials} measurements")
        return ", ".join(words)


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

    def share_left(self, share: float) -> bool:
        """Whether the first `share` of the time, and any trial, is left."""
        if self.elapsed() > self.budget.seconds * share:
            return False
        trials = self.budget.max_trials
        return trials is None or self.bench.counts.measured + self.bench.counts.replayed < trials * share

    def used(self) -> float:
        """The share that is used, of the time or of the measurements, whichever is more."""
        trials = self.budget.max_trials
        measured = 0.0 if trials is None else (self.bench.counts.measured + self.bench.counts.replayed) / trials
        return max(self.elapsed() / self.budget.seconds, measured)

    def elapsed(self) -> float:
        return self.now() - self.start

    def progress(self) -> tuple[float, float]:
        """How much is used, and how much there is: of the time, or of the measurements where time is not limited."""
        if math.isfinite(self.budget.seconds) or self.budget.max_trials is None:
            return min(self.elapsed(), self.budget.seconds), self.budget.seconds
        counts = self.bench.counts
        return min(counts.measured + counts.replayed, self.budget.max_trials), self.budget.max_trials
