"""What a regression on residuals reads of a kernel: the model's own price, what it is made of, and the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import BOUNDS
from autofuse.cost_models.features import COLUMNS as FEATURE_COLUMNS

OWN = 1 + 2 * len(BOUNDS)
"""Columns that every model gives; those of the features follow."""
COLUMNS: tuple[str, ...] = (
    "log_us",
    *(f"bound_{bound}" for bound in BOUNDS),
    *(f"share_{bound}" for bound in BOUNDS),
    *FEATURE_COLUMNS,
)
"""Names of the columns: the logarithm of the predicted microseconds, a column of zeros and ones for each bound, each
term of the price over the price, and those of `features.matrix`."""


def covariates(
    us: NDArray[Any], bound: Sequence[str], features: NDArray[Any] | None, terms: NDArray[Any] | None = None
) -> NDArray[Any]:
    """One row per kernel, f64[n, len(COLUMNS)]; zeros for the features and terms of a model that gives none.

    The arguments are the fields of `Prices`.
    """
    rows = np.zeros((len(us), len(COLUMNS)))
    rows[:, 0] = np.log(us)
    rows[:, 1 : 1 + len(BOUNDS)] = [[one == known for known in BOUNDS] for one in bound] or 0.0
    if terms is not None:
        rows[:, 1 + len(BOUNDS) : OWN] = terms / us[:, None]
    if features is not None:
        rows[:, OWN:] = features
    return rows
