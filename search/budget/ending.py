"""What is kept of a budget for the end of tuning: the last race, the winner once more, and the certificate."""

from __future__ import annotations

import math

from autofuse.lazydataclass import dataclass, field
from autofuse.search.budget.budget import Budget, Clock

SCHEDULE_SHARE = 0.9
"""Of the search's time: when all schedules must be done, and the end begins."""
_SCREENING_SHARE, _RACE_SHARE, _HOLDOUT_SHARE = 0.05, 0.1, 0.05
"""Of the budget: most time for running whole plans, to see which are worth tuning, in the end, and the winner once
more; building them not counted."""
_STARTS_SHARE, _STARTS_OF_REST = 0.02, 0.25
"""Of the budget, and of what is left until then: most for how the winner's kernels are started."""
_CLOSING_SHARE = 0.03
"""Of the budget: for the certificate, and for ending the measuring process."""
_LEAST_FINALISTS, _MOST_OF_REST = 4, 0.5
"""Plans that the last race is to have time for, and of what is left the most that is kept for that."""
_SCREENING_WORTH = 0.25
"""Of what is left until then: more for running whole plans than this, and they are not screened."""
_SCREENING_OF_REST, _HOLDOUT_OF_REST = 0.5, 1 / 3
"""Of what is left until then: most for seeing which plans are worth tuning, and for the winner once more."""
_LEAST_RACE_S = 0.1
"""For a race where the time is over."""

Terms = tuple[float, float | None]
"""Of a race: seconds for the blocks, and for all of it (None: no limit)."""


@dataclass(slots=True)
class Ending:
    """Shares out what is left. With a budget that has no end, every race has its share of the default time."""

    budget: Budget
    """All of it."""
    end: float
    """When it is over, on the clock's clock."""
    clock: Clock
    """Of the search. Its budget is what search and end have together; here it is cut, so that the end has its time."""
    together: Budget = field(init=False)
    """What search and end have together."""

    def __post_init__(self) -> None:
        self.together = self.clock.budget
        self.reserve()

    def reserve(self, each_s: float = 0.0) -> None:
        """Keep the time that the end needs. `each_s`: what a plan of a race takes, as far as that is known."""
        if self._is_endless:
            return
        usual = self.budget.race_s(_RACE_SHARE) + self.budget.race_s(_HOLDOUT_SHARE) + self._closing_s
        needed = min(_LEAST_FINALISTS * each_s + self._closing_s, _MOST_OF_REST * (self.end - self.clock.now()))
        self.clock.budget = self.together.before_the_end(max(usual, needed), SCHEDULE_SHARE)

    def screening(self) -> Terms | None:
        """For seeing which plans are worth tuning; None if what would be left is better spent on tuning the best."""
        seconds, left = self.budget.race_s(_SCREENING_SHARE), self.clock.left_s(SCHEDULE_SHARE)
        if self._is_endless:
            return seconds, None
        return (seconds, _SCREENING_OF_REST * left) if seconds <= _SCREENING_WORTH * left else None

    def race(self) -> Terms:
        """For the last race."""
        seconds, left = self.budget.race_s(_RACE_SHARE), self.left_s()
        if self._is_endless:
            return seconds, None
        limit = max(_LEAST_RACE_S, left - min(self.budget.race_s(_HOLDOUT_SHARE), _HOLDOUT_OF_REST * left))
        return min(seconds, limit), limit

    def starts(self, each_s: float) -> Terms | None:
        """For two ways to run the winner's loops, or to start its kernels; None if there is no time for that.

        `each_s`: as for `reserve`.
        """
        seconds, left = self.budget.race_s(_STARTS_SHARE), _STARTS_OF_REST * self.left_s()
        if self._is_endless:
            return seconds, None
        return (min(seconds, left), left) if left > 2 * each_s else None

    def holdout(self, each_s: float) -> Terms | None:
        """For the winner once more; None if there is no time for that. `each_s`: as for `reserve`."""
        seconds, left = self.budget.race_s(_HOLDOUT_SHARE), self.left_s()
        if self._is_endless:
            return seconds, None
        return (min(seconds, left), left) if left > 2 * each_s else None

    def left_s(self) -> float:
        """Seconds for running plans."""
        return self.end - self.clock.now() - self._closing_s

    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self.clock.now() > self.end

    @property
    def _is_endless(self) -> bool:
        return math.isinf(self.budget.seconds)

    @property
    def _closing_s(self) -> float:
        return _CLOSING_SHARE * self.budget.seconds
