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
    "quantiles that are ends": lambda x, n: [
        np.quantile(y, q) for y in (x, n, x.astype(np.float32), x / (x - x[0, 0])) for q in (0, 1, [1, 0], [[1]])
    ],
    "quantile keepdims": lambda x, n: np.quantile(x, 0.3, axis=0, keepdims=True),
    "percentile of single": lambda x, n: np.percentile(x.astype(np.float32), 40, axis=1),
    "percentiles of single": lambda x, n: np.percentile(x.astype(np.float32), [40, 60], axis=1),
    "percentile with nan": lambda x, n: np.percentile(np.sqrt(x), 40, axis=1),
    "median": lambda x, n: (np.median(x), np.median(x, axis=0), np.median(n), np.median(x.astype(np.float32), 1)),
    "cov": lambda x, n: (np.cov(x), np.cov(x, rowvar=False, bias=True), np.cov(x[0], x[1]), np.cov(x[0], ddof=0)),
    "corrcoef": lambda x, n: (np.corrcoef(x), np.corrcoef(x[0], x[1])),
    "bincount": lambda x, n: (
        np.bincount(np.clip(n, 0, 7), minlength=8),
        np.bincount(np.minimum(n, 5), weights=x[:, 0], minlength=6),
        np.bincount(n > 2, minlength=2),
        np.bincount(n.astype(np.uint8), minlength=256),
        np.bincount([1, 5, 1], minlength=3),
        np.bincount([1, 5, 1], weights=x[0, :3]),
    ),
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


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i8", "u2", "f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["median", "mean", "std", "var", "average", "nanstd", "nanmean"])
def test_of_every_dtype(name: str, dtype: str, agrees: Any) -> None:
    function = getattr(np, name)
    for x in (N.reshape(2, 3).astype(dtype), N[:5].astype(dtype), N[:0].astype(dtype)):
        if name == "average" and not x.size:
            continue  # NumPy's ZeroDivisionError
        agrees(lambda x: (function(x), function(x, axis=-1), function(x, axis=0, keepdims=True)), x, ulps=4)
    agrees(lambda x: np.median(x, axis=(0, 1)), N.reshape(2, 3).astype(dtype))
    if dtype != "?":
        agrees(lambda x: np.percentile(x, [0, 30, 100]), N.astype(dtype), ulps=4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_put_nan_behind_all_numbers(side: str, agrees: Any) -> None:
    knots = np.array([-1.0, 0, 0, 2, np.inf, np.nan, np.nan])
    x = np.array([[np.nan, -np.inf, -1, 0.5], [0, 2, np.inf, 3]])
    agrees(lambda k, x: (np.searchsorted(k, x, side), np.searchsorted(k, x[0, 0], side)), knots, x)
    order = np.array([3, 1, 0, 2, 6, 5, 4])
    agrees(lambda k, x, order: np.searchsorted(k, x, side, sorter=order), knots[np.argsort(order)], x, order)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", [[2.0, 0.5, -1.0], [-1.0, 0.5, 0.5, 2.0], [1.0], [1.0, 1.0], []])
def test_digitize_in_bins_of_both_directions(bins: list[float], right: bool, agrees: Any) -> None:
    x = np.array([-2, -1, 0.5, 1, 2, 3, np.nan, np.inf])
    agrees(lambda x: (np.digitize(x, np.array(bins), right), np.digitize(x[-2], bins, right)), x)
    agrees(lambda x, bins: (np.digitize(x, bins, right), np.digitize(x[0], bins, right)), x, np.array(bins))


def test_bins_in_no_order_are_an_error() -> None:
    with pytest.raises((TraceError, ValueError), match="monotonically"):
        trace(lambda x: np.digitize(x, [1, 3, 2]), X)


@pytest.mark.parametrize("dtype", ["i4", "f2", "f4", "f8"])
def test_sinc_at_zero(dtype: str, agrees: Any) -> None:
    agrees(np.sinc, np.array([0, 1, -2, 0], dtype) / np.array(2, dtype), ulps=8, scale=1.0)


def test_quantiles_must_be_known() -> None:
    with pytest.raises(TraceError, match="real array"):
        trace(lambda x: np.quantile(x, x[0, 0]), X)
    with pytest.raises(TraceError, match="range"):
        trace(lambda x: np.quantile(x, 1.5), X)
