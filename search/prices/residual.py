"""What measurements say about the model: the log of measured over predicted, per bottleneck, with its spread."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.lazydataclass import dataclass, field

_DOUBT = 2.0
"""A model's spread is that of the kernels it was made from; of a program that it has not seen it is taken to be so many
times larger until measurements say otherwise."""
_PRIOR_WEIGHT = 2.0
"""Measurements that the prior is worth."""
_LEAST_SIGMA = 0.05


@dataclass(slots=True)
class Residual:
    """Normal residuals of the log price, one group per bottleneck, shrunk towards the mean of all groups."""

    _logs: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def observe(self, group: str, predicted_us: float, measured_us: float) -> None:
        """Add one measurement."""
        if predicted_us > 0 and 0 < measured_us < math.inf:
            self._logs.setdefault(group, []).append(math.log(measured_us / predicted_us))

    def predict(self, group: str, spread: float) -> tuple[float, float]:
        """Mean and standard deviation of log(measured / predicted) for a kernel of a group.

        `spread`: the standard deviation that the model itself gives. Conjugate normal updating with a prior worth two
        measurements (Gelman et al., Bayesian Data Analysis, 3.3).
        """
        everything = [value for logs in self._logs.values() for value in logs]
        centre = _mean(everything)
        logs = self._logs.get(group, [])
        weight = _PRIOR_WEIGHT
        mean = (sum(logs) + weight * centre) / (len(logs) + weight)
        squares = sum((value - mean) ** 2 for value in logs) + weight * (_DOUBT * spread) ** 2
        return mean, max(math.sqrt(squares / (len(logs) + weight)), _LEAST_SIGMA)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class ClassPrice:
    """What is believed of one digest class."""

    predicted_us: float
    """By the cost model."""
    bound: str
    floor_us: float
    """No kernel of this work can be faster on this device."""
    sigma: float
    """Standard deviation of log(measured / predicted), by the cost model."""
    headroom: float | None = None
    """How much faster than its known rates the floor takes the device to be; None = not said."""


def optimistic(
    prices: Mapping[str, ClassPrice], measured: Mapping[str, float], residual: Residual, k: float
) -> dict[str, float]:
    """Price per class: as measured, else exp(mu - k sigma) times the prediction, never below the floor."""
    found: dict[str, float] = {}
    for digest, price in prices.items():
        if digest in measured:
            found[digest] = measured[digest]
        else:
            mean, sigma = residual.predict(price.bound, price.sigma)
            found[digest] = max(price.predicted_us * math.exp(mean - k * sigma), price.floor_us)
    return found
