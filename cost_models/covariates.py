"""What a regression on residuals reads of a kernel: the model's own price, what limits the kernel, and its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import Bound
from autofuse.cost_models.features import COLUMNS as FEATURE_COLUMNS

BOUNDS: tuple[Bound, ...] = get_args(Bound)
OWN = 1 + len(BOUNDS)
"""Columns that every model gives; those of the features follow."""
COLUMNS: tuple[str, ...] = ("log_us", *(f"bound_{bound}" for bound in BOUNDS), *FEATURE_COLUMNS)
"""Names of the columns: the logarithm of the predicted microseconds, a column of zeros and ones for each bound, and
those of `features.matrix`."""


def covariates(us: NDArray[Any], bound: Sequence[str], features: NDArray[Any] | None) -> NDArray[Any]:
    """One row per kernel, f64[n, len(COLUMNS)]; zeros for the features of a model that gives none.

    The arguments are the fields of `Prices`.
    """
    rows = np.zeros((len(us), len(COLUMNS)))
    rows[:, 0] = np.log(us)
    rows[:, 1:OWN] = [[one == known for known in BOUNDS] for one in bound] or 0.0
    if features is not None:
        rows[:, OWN:] = features
    return rows
