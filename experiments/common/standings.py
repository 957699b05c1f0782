"""How one way to compute something stands to another, over processes and over programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interleaved import Ratio

OURS, NEITHER, THEIRS = "ours", "neither", "theirs"
"""Who is ahead."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How something else stands to what a study is about."""

    name: str
    """Of the other."""
    over: Ratio
    """Its time over ours: above 1 we are faster."""
    noise: float
    """Share below which the two are not told apart: ours against itself; 0 where that was not measured."""

    @property
    def ahead(self) -> str:
        """`OURS`, `THEIRS`, or `NEITHER` where the interval does not leave the noise."""
        if not self.over.beyond(self.noise):
            return NEITHER
        return OURS if self.over.value > 1.0 else THEIRS

    @property
    def text(self) -> str:
        """The ratio with its interval, for a table."""
        return str(self.over) if self.ahead != NEITHER else f"{self.over} (noise)"


def geometric_mean(values: Iterable[float]) -> float:
    """The mean for ratios; NaN for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
