"""What measurements say about the model: the log of measured over predicted, with its spread, of every kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import BOUNDS
from autofuse.cost_models.covariates import covariates
from autofuse.cost_models.features import COLUMNS as FEATURES
from autofuse.lazydataclass import dataclass, field
from autofuse.search.prices.gaussianprocess import GaussianProcess

_DOUBT = 2.0
"""A model's spread is that of the kernels it was made from; of a program that it has not seen it is taken to be so many
times larger until measurements say otherwise."""
_LEAST_SIGMA = 0.05
_MOST = 512
"""Measurements that are looked at; of more, those of the least digests, which is to say any."""


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
    features: NDArray[Any] | None = field(default=None, compare=False)
    """The kernel's row of `Prices.features`; None = not said."""
    terms: NDArray[Any] | None = field(default=None, compare=False)
    """The same of `Prices.terms`."""


class Residual:
    """The measurements seen so far: a Gaussian process over what regressions read of kernels (`covariates`).

    The model errs alike for kernels that do like work. A column counts by its spread over all kernels that have prices.
    """

    def __init__(self, prices: Mapping[str, ClassPrice], measured: Mapping[str, float]) -> None:
        """`measured`: microseconds by class, infinite if the kernel failed; what has no price does not count."""
        both = sorted(measured.keys() & prices.keys())
        known = [digest for digest in both if _counts(prices[digest], measured[digest])][:_MOST]
        rows = _rows(list(prices.values()))
        deviation = rows.std(axis=0) if len(rows) else np.zeros(rows.shape[1])
        self._used = deviation > 1e-9
        self._deviation = deviation[self._used]
        seen = [prices[digest] for digest in known]
        logs = np.array([math.log(measured[digest] / prices[digest].predicted_us) for digest in known])
        self._process = GaussianProcess.of(self._scaled(seen), logs / _spread(seen))

    def predict(self, prices: Sequence[ClassPrice]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Means and standard deviations of log(measured / predicted), f64[n] each, of kernels not measured yet.

        Where nothing was measured, the model is taken at its word.
        """
        spread = _spread(prices)
        if not len(self._process.rows):
            return np.zeros(len(prices)), spread
        mean, sigma = self._process.predict(self._scaled(prices))
        return mean * spread, np.maximum(sigma * spread, _LEAST_SIGMA)

    def _scaled(self, prices: Sequence[ClassPrice]) -> NDArray[Any]:
        return _rows(prices)[:, self._used] / self._deviation


def optimistic(
    prices: Mapping[str, ClassPrice], measured: Mapping[str, float], residual: Residual, k: float
) -> dict[str, float]:
    """Price per class: as measured, else exp(mu - k sigma) times the prediction, never below the floor."""
    others = {digest: price for digest, price in prices.items() if digest not in measured}
    mean, sigma = residual.predict(list(others.values()))
    found = {digest: measured[digest] for digest in prices if digest in measured}
    for (digest, price), log in zip(others.items(), mean - k * sigma, strict=True):
        found[digest] = max(price.predicted_us * math.exp(log), price.floor_us)
    return {digest: found[digest] for digest in prices}


def _counts(price: ClassPrice, measured_us: float) -> bool:
    """Whether there is a logarithm of measured over predicted."""
    return price.predicted_us > 0 and 0 < measured_us < math.inf


def _spread(prices: Sequence[ClassPrice]) -> NDArray[Any]:
    return np.array([max(_DOUBT * price.sigma, _LEAST_SIGMA) for price in prices], np.float64)


def _rows(prices: Sequence[ClassPrice]) -> NDArray[Any]:
    us = np.array([max(price.predicted_us, 1e-9) for price in prices], np.float64)
    features = _matrix([price.features for price in prices], len(FEATURES))
    terms = _matrix([price.terms for price in prices], len(BOUNDS))
    return covariates(us, [price.bound for price in prices], features, terms)


def _matrix(rows: Sequence[NDArray[Any] | None], columns: int) -> NDArray[Any]:
    """Rows below each other; zeros for those that are not said."""
    unknown = np.zeros(columns)
    return np.array([unknown if row is None else row for row in rows], np.float64).reshape(len(rows), columns)
