"""Mean and variance of every column, and the standardised table: scikit-learn's StandardScaler, fit and transform."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def column_standardise(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    mean = table.mean(axis=0)
    var = table.var(axis=0)
    return (table - mean) / np.sqrt(var + 1e-9), mean, var


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns = {"small": (83, 19), "full": (100_000, 64)}[size]
    rng = np.random.default_rng(seed)
    centre = rng.normal(0.0, 5.0, columns)
    spread = rng.uniform(0.5, 3.0, columns)
    return (rng.normal(centre, spread, (rows, columns)).astype(np.float32),)
