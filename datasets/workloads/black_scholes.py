"""European call and put prices (Black and Scholes 1973), as in PARSEC: single precision, polynomial normal cdf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def normal_cdf(x: NDArray[Any]) -> NDArray[Any]:
    """Abramowitz and Stegun, Handbook of Mathematical Functions, formula 26.2.17; absolute error below 7.5e-8."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi)) * poly
    return np.where(x >= 0.0, 1.0 - tail, tail)


def black_scholes(
    spot: NDArray[Any], strike: NDArray[Any], years: NDArray[Any], rate: float = 0.02, volatility: float = 0.30
) -> tuple[NDArray[Any], NDArray[Any]]:
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count = {"small": 1013, "full": 1_000_000}[size]
    rng = np.random.default_rng(seed)
    spot = rng.uniform(5.0, 30.0, count).astype(np.float32)
    strike = rng.uniform(1.0, 100.0, count).astype(np.float32)
    years = rng.uniform(0.25, 10.0, count).astype(np.float32)
    return spot, strike, years
