"""Counts, quantiles, covariances, searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace

X = np.random.default_rng(5).normal(size=(6, 7))
N = np.array([3, 1, 0, 3, 2, 5])

CALLS: dict[str, Any] = {
    "percentile": lambda x, n: (np.percentile(x, 30), np.percentile(x, 75.0, axis=1), np.percentile(n, 50)),
    "percentiles": lambda x, n: (np.percentile(x, [10, 90], axis=0), np.quantile(x, [[0.0, 1.0]], axis=(0, 1))),
    "quantile keepdims": lambda x, n: np.quantile(x, 0.3, axis=0, keepdims=True),
    "percentile of single": lambda x, n: np.percentile(x.astype(np.float32), 40, axis=1),
    "percentiles of single": lambda x, n: np.percentile(x.astype(np.float32), [40, 60], axis=1),
    "percentile with nan": lambda x, n: np.percentile(np.sqrt(x), 40, axis=1),
    "median": lambda x, n: (np.median(x), np.median(x, axis=0), np.median(n), np.median(x.astype(np.float32), 1)),
    "cov": lambda x, n: (np.cov(x), np.cov(x, rowvar=False, bias=True), np.cov(x[0], x[1]), np.cov(x[0], ddof=0)),
    "corrcoef": lambda x, n: (np.corrcoef(x), np.corrcoef(x[0], x[1])),
    "bincount": lambda x, n: (np.bincount(n, minlength=8), np.bincount(n, weights=x[:, 0], minlength=6)),
    "isin": lambda x, n: (np.isin(n, [1, 3]), np.isin(n, np.array([0]), invert=True)),
    "cumulative_sum": lambda x, n: (np.cumulative_sum(x, axis=1), np.cumulative_sum(n, include_initial=True)),
    "cumulative_prod": lambda x, n: np.cumulative_prod(x, axis=0, include_initial=True),
    "unravel": lambda x, n: (np.unravel_index(np.argmax(x), x.shape), np.unravel_index(n, (2, 3))),
    "ravel_multi_index": lambda x, n: np.ravel_multi_index((n, n), (6, 7)),
    "triangle": lambda x, n: (x[np.tril_indices_from(x)], x[np.triu_indices_from(x, 1)]),
    "queries": lambda x, n: np.zeros(3) if np.iterable(x) and np.isscalar(x[0, 0]) and not np.isscalar(x) else None,
    "top by argsort": lambda x, n: x[np.argsort(x[:, 0])[::-1]][:2],
    "lookup": lambda x, n: x[n, np.argmax(x, axis=1)],
}


@pytest.mark.parametrize("form", CALLS)
def test_call_forms(form: str, agrees: Any) -> None:
    agrees(CALLS[form], X, N, ulps=32, scale=4.0)


def test_quantiles_must_be_known() -> None:
    with pytest.raises(TraceError, match="real array"):
        trace(lambda x: np.quantile(x, x[0, 0]), X)
    with pytest.raises(TraceError, match="range"):
        trace(lambda x: np.quantile(x, 1.5), X)
