"""Reductions and running reductions, as functions, methods and ufunc methods."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace

X = np.random.default_rng(0).normal(size=(3, 4, 5))
ULPS = 64  # sums of up to 60 terms in another order


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize(
    "name",
    ["sum", "prod", "min", "max", "mean", "var", "std", "all", "any", "argmin", "argmax", "ptp", "count_nonzero"],
)
def test_every_dtype(name: str, dtype: str, agrees: Any) -> None:
    if name == "ptp" and dtype == "?":
        return
    x = (X * 3).astype(dtype)
    agrees(lambda x: getattr(np, name)(x, axis=1), x, ulps=ULPS, scale=1.0)
    agrees(getattr(np, name), x, ulps=ULPS, scale=8.0)


@pytest.mark.parametrize("axis", [None, 0, 2, -1, (0, 1), (-1, 0), (0, 1, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean", "var", "std", "all", "any"])
def test_axis_and_keepdims(name: str, keepdims: bool, axis: Any, agrees: Any) -> None:
    agrees(lambda x: getattr(np, name)(x, axis=axis, keepdims=keepdims), X, ulps=ULPS, scale=1.0)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_positions(name: str, keepdims: bool, axis: Any, agrees: Any) -> None:
    agrees(lambda x: getattr(np, name)(x, axis, keepdims=keepdims), X)
    x = np.array([[1.0, np.nan, 3.0, np.nan], [2.0, 2.0, 2.0, 2.0]])
    agrees(lambda x: getattr(x, name)(axis=axis), x)


CALLS: dict[str, Any] = {
    "method positional": lambda x: x.sum(0),
    "method keepdims": lambda x: x.sum(-1, keepdims=True),
    "method chain": lambda x: x.mean(0).max(),
    "sum dtype": lambda x: np.sum(x, dtype=np.float32),
    "sum initial": lambda x: np.sum(x, axis=0, initial=10),
    "max initial": lambda x: np.max(x, initial=100.0),
    "min initial axis": lambda x: x.min(axis=1, initial=0),
    "sum where": lambda x: np.sum(x, axis=1, where=x > 0),
    "max where": lambda x: np.max(x, axis=1, where=x > 0, initial=-1.0),
    "mean where": lambda x: np.mean(x, axis=(0, 1), where=x > 0),
    "var where": lambda x: np.var(x, axis=0, where=x > -3),
    "all where": lambda x: np.all(x > 0, where=x > -1),
    "any where": lambda x: np.any(x > 0, axis=0, where=x > 1),
    "var ddof": lambda x: np.var(x, axis=0, ddof=1),
    "std ddof keepdims": lambda x: x.std(axis=(1, 2), ddof=2, keepdims=True),
    "var correction": lambda x: np.var(x, correction=1),
    "var dtype": lambda x: np.var(x, dtype=np.float32),
    "mean dtype": lambda x: np.mean(x, axis=1, dtype=np.float32),
    "std with mean": lambda x: np.std(x, axis=1, mean=x.mean(1, keepdims=True)),
    "average": lambda x: np.average(x, axis=0),
    "average weights": lambda x: np.average(x, axis=2, weights=np.arange(1.0, 6.0)),
    "average returned": lambda x: np.average(x, axis=0, weights=np.abs(x) + 1, returned=True),
    "ptp": lambda x: np.ptp(x, axis=1),
    "add.reduce default axis": np.add.reduce,
    "add.reduce": lambda x: np.add.reduce(x, axis=(0, 2), keepdims=True),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=-1),
    "minimum.reduce all": lambda x: np.minimum.reduce(x, axis=None),
    "logical_and.reduce": lambda x: np.logical_and.reduce(x > -2, axis=1),
    "logical_or.reduce": lambda x: np.logical_or.reduce(x, axis=1),
    "fmax.reduce": lambda x: np.fmax.reduce(np.where(x > 0, x, np.nan), axis=0),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x, axis=2),
    "minimum.accumulate": np.minimum.accumulate,
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, 1),
    "cumsum": np.cumsum,
    "cumsum axis": lambda x: x.cumsum(axis=-1),
    "cumsum dtype": lambda x: np.cumsum(x, axis=0, dtype=np.float32),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "nansum": lambda x: np.nansum(np.sqrt(x), axis=0),
    "nanprod": lambda x: np.nanprod(np.sqrt(x), axis=1, keepdims=True),
    "nanmean": lambda x: np.nanmean(np.sqrt(x), axis=0),
    "nanstd": lambda x: np.nanstd(np.sqrt(x), axis=(0, 1)),
    "nanvar": lambda x: np.nanvar(np.sqrt(x), axis=0, ddof=1),
    "nanmax": lambda x: np.nanmax(np.sqrt(x), axis=0),
    "nanmin": lambda x: np.nanmin(np.sqrt(x), axis=2),
    "nanargmax": lambda x: np.nanargmax(np.where(x > 0, x, np.nan)),
    "nanargmin": lambda x: np.nanargmin(np.where(x > 0, x, np.nan)),
    "nancumsum": lambda x: np.nancumsum(np.sqrt(x), axis=1),
    "median": lambda x: (np.median(x), np.median(x, axis=1), np.median(x, axis=0, keepdims=True)),
    "python sum": sum,
    "builtin sum of rows": lambda x: sum(x[i, 0] for i in range(3)),
    "trapezoid": lambda x: (np.trapezoid(x, axis=1), np.trapezoid(x, dx=0.5), np.trapezoid(x, np.arange(5.0) ** 2)),
}


@pytest.mark.parametrize("form", CALLS)
def test_call_forms(form: str, agrees: Any) -> None:
    agrees(CALLS[form], X, ulps=ULPS, scale=4.0)


def test_out(agrees: Any) -> None:
    def f(x: Any) -> Any:
        total, mean = np.empty((3, 5)), np.empty(5, np.float32)
        np.sum(x, axis=1, out=total)
        np.mean(x, axis=(0, 1), out=mean)
        x.max(axis=1, out=x[:, 0])
        return total, mean

    agrees(f, X, ulps=ULPS, scale=1.0)


def test_half_precision_means_are_taken_in_single(agrees: Any) -> None:
    x = (np.abs(X) + 60).astype(np.float16)  # the sum overflows f16
    agrees(lambda x: (x.mean(), x.mean(0)), np.concatenate([x] * 20), ulps=1)
    agrees(lambda x: x.sum(0), X.astype(ml_dtypes.bfloat16), ulps=2, scale=1.0)


def test_empty_arrays(agrees: Any) -> None:
    agrees(lambda x: (x.sum(0), x.prod(1), x.mean(0), x.all(), x.sum()), np.ones((0, 3)))
    with pytest.raises(TraceError, match="no identity"):
        trace(lambda x: x.max(), np.ones((0, 3)))


def test_a_bad_axis_is_an_error() -> None:
    with pytest.raises(TraceError, match=r"np\.sum: axis 3 is out of bounds"):
        trace(lambda x: np.sum(x, axis=3), X)
    with pytest.raises(TraceError, match="duplicate"):
        trace(lambda x: np.sum(x, axis=(0, 0)), X)
