"""A Gaussian process over a handful of measurements (Rasmussen and Williams, Gaussian Processes for Machine Learning).

The prior of the values z at rows x is normal with mean 0 and covariance t2 * C,

    C = common + smooth * exp(-d2 / (2 length^2)) + own * (whether it is the same measurement)

where d2 is the mean squared difference of two rows over their columns: what all values have in common, of which nothing
is known before, what similar rows have in common, and what each measurement has by itself. The last two add up to one.
t2 has an inverse gamma prior around 1 that is worth `PRIOR_WEIGHT` values (Shah et al., Student-t Processes as
Alternatives to Gaussian Processes, 2014). Shares and length are not chosen but averaged over a few, each weighted by
its marginal likelihood: with few values most of them fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.lazydataclass import dataclass

PRIOR_WEIGHT = 2.0
"""Values that the prior of the amplitude is worth."""
_COMMON = 9.0
"""A level that three standard deviations cannot surprise: models are off by factors on machines they do not know."""
_OWN = (0.05, 0.3, 0.9)
_LENGTHS = (0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class _Fit:
    """One shape of the covariance, conditioned on the values."""

    own: float
    length: float
    inverse: NDArray[Any]
    """f64[n, n]: of the Cholesky factor of C."""
    weights: NDArray[Any]
    """f64[n]: C^-1 z."""
    amplitude: float
    """The posterior's t2."""
    evidence: float
    """Logarithm of the marginal likelihood, up to a constant."""


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """Knows some values, and says what others may be."""

    rows: NDArray[Any]
    """f64[n, d]"""
    fits: tuple[_Fit, ...]

    @staticmethod
    def of(rows: NDArray[Any], values: NDArray[Any]) -> GaussianProcess:
        """From `values`, f64[n], at `rows`, f64[n, d]; n may be 0."""
        squares = _squares(rows, rows)
        fits = [_fit(squares, values, own, length) for own in _OWN for length in _LENGTHS]
        return GaussianProcess(rows, tuple(fits))

    def predict(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Means and standard deviations of what measuring at other rows, f64[m, d], gives; f64[m] each."""
        squares = _squares(rows, self.rows)
        evidence = np.array([fit.evidence for fit in self.fits])
        weights = np.exp(evidence - evidence.max())
        mean, second = np.zeros(len(rows)), np.zeros(len(rows))
        for fit, weight in zip(self.fits, weights / weights.sum(), strict=True):
            across = _covariance(squares, fit.own, fit.length)
            explained = across @ fit.inverse.T
            centre = across @ fit.weights
            variance = fit.amplitude * (_COMMON + 1.0 - np.einsum("ij,ij->i", explained, explained))
            mean += weight * centre
            second += weight * (variance + centre**2)
        return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def _fit(squares: NDArray[Any], values: NDArray[Any], own: float, length: float) -> _Fit:
    count = len(values)
    factor = np.linalg.cholesky(_covariance(squares, own, length) + own * np.eye(count))
    inverse = np.linalg.inv(factor)
    whitened = inverse @ values
    fitted = float(whitened @ whitened)
    amplitude = (PRIOR_WEIGHT + fitted) / (PRIOR_WEIGHT + count)
    evidence = -float(np.log(np.diag(factor)).sum()) - 0.5 * (PRIOR_WEIGHT + count) * math.log1p(fitted / PRIOR_WEIGHT)
    return _Fit(own, length, inverse, inverse.T @ whitened, amplitude, evidence)


def _covariance(squares: NDArray[Any], own: float, length: float) -> NDArray[Any]:
    """C between different measurements, from their d2."""
    return _COMMON + (1.0 - own) * np.exp(squares * (-0.5 / length**2))


def _squares(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Mean squared difference of every row of one with every row of the other, over the columns."""
    columns = max(rows.shape[1], 1)
    lengths = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :]
    return np.maximum(lengths - 2.0 * rows @ others.T, 0.0) / columns
