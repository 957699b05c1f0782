"""Calls of NumPy functions at a million elements: what is traced, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 1_000_000
SIDE = 1_000
FLOATS = ("float32", "float64")
ALL = ("float32", "float64", "int64")
INTEGERS = ("int64",)

Array = NDArray[Any]
Make = Callable[[np.random.Generator, Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """One call."""

    name: str
    function: Callable[..., Any]
    arguments: Make
    """From a seeded generator and a dtype."""
    dtypes: Sequence[str] = FLOATS


def _line(rng: np.random.Generator, dtype: Any) -> Array:
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(SIZE).astype(dtype)
    return rng.integers(-1000, 1000, SIZE).astype(dtype)


def _one(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype),)


def _two(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype), _line(rng, dtype))


def _square(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype).reshape(SIDE, SIDE),)


def _squares(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype).reshape(SIDE, SIDE), _line(rng, dtype).reshape(SIDE, SIDE))


def _with_index(low: int, high: int, count: int = SIZE) -> Make:
    return lambda rng, dtype: (_line(rng, dtype), rng.integers(low, high, count))


def _unique_index(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype), rng.permutation(SIZE), _line(rng, dtype))


def _repeated_index(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype), rng.integers(0, SIZE, SIZE), _line(rng, dtype))


def _rows_index(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (
        _line(rng, dtype).reshape(-1, 100),
        rng.integers(0, SIZE // 100, SIZE // 100),
        _line(rng, dtype).reshape(-1, 100),
    )


def _knots(count: int) -> Make:
    return lambda rng, dtype: (np.sort(_line(rng, dtype)[:count]), _line(rng, dtype))


def _table(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (_line(rng, dtype), np.linspace(-3, 3, 1000), rng.standard_normal(1000))


def _counts(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (rng.integers(0, 1000, SIZE).astype(dtype),)


def _weighted(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    return (rng.integers(0, 1000, SIZE), _line(rng, dtype))


def _matrix(side: int) -> Make:
    def make(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
        return (rng.standard_normal((side, side)).astype(dtype) + side * np.eye(side, dtype=dtype),)

    return make


def _system(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    a = rng.standard_normal((SIDE, SIDE)).astype(dtype) + SIDE * np.eye(SIDE, dtype=dtype)
    return (a, rng.standard_normal((SIDE, 8)).astype(dtype))


def _positive(rng: np.random.Generator, dtype: Any) -> tuple[Any, ...]:
    a = rng.standard_normal((SIDE, SIDE)).astype(dtype)
    return ((a @ a.T + SIDE * np.eye(SIDE)).astype(dtype),)


def _add_at(x: Any, i: Any, v: Any) -> Any:
    y = x.copy()
    np.add.at(y, i, v)
    return y


def _maximum_at(x: Any, i: Any, v: Any) -> Any:
    y = x.copy()
    np.maximum.at(y, i, v)
    return y


def _put(x: Any, i: Any, v: Any) -> Any:
    y = x.copy()
    y[i] = v
    return y


def _slice_set(x: Any) -> Any:
    y = x.copy()
    y[1:-1] = y[1:-1] * 2
    return y


def _masked_set(x: Any) -> Any:
    y = x.copy()
    y[y < 0] = 0
    return y


SORTING = (
    Case("sort", np.sort, _one, ALL),
    Case("sort rows", np.sort, _square, ALL),
    Case("sort columns", lambda x: np.sort(x, 0), _square, ALL),
    Case("sort stable", lambda x: np.sort(x, kind="stable"), _one, ALL),
    Case("argsort", np.argsort, _one, ALL),
    Case("argsort rows", np.argsort, _square, ALL),
    Case("argsort stable", lambda x: np.argsort(x, kind="stable"), _one, ALL),
    Case("median", np.median, _one, ALL),
    Case("median rows", lambda x: np.median(x, axis=1), _square, ALL),
    Case("percentile", lambda x: np.percentile(x, 90), _one, ALL),
    Case("percentile of 3", lambda x: np.percentile(x, [10, 50, 90]), _one, ALL),
    Case("quantile rows", lambda x: np.quantile(x, 0.3, axis=1), _square, ALL),
    Case("partition", lambda x: np.partition(x, 1000), _one, ALL),
    Case("argpartition", lambda x: np.argpartition(x, 1000), _one, ALL),
    Case("lexsort", lambda x, y: np.lexsort((x, y)), _two, ALL),
    Case("searchsorted 10", np.searchsorted, _knots(10), ALL),
    Case("searchsorted 1000", np.searchsorted, _knots(1000), ALL),
    Case("searchsorted 1e6", np.searchsorted, _knots(SIZE), ALL),
    Case("digitize 10", lambda k, x: np.digitize(x, k), _knots(10), ALL),
    Case("digitize 1000", lambda k, x: np.digitize(x, k), _knots(1000), ALL),
    Case("isin 10", lambda k, x: np.isin(x, k), _knots(10), ALL),
    Case("isin 1000", lambda k, x: np.isin(x, k), _knots(1000), ALL),
    Case("interp", np.interp, _table),
    Case("histogram", lambda x: np.histogram(x, bins=100, range=(-4, 4)), _one, FLOATS),
)

SCATTERING = (
    Case("add.at", _add_at, _repeated_index, ALL),
    Case("add.at rows", _add_at, _rows_index, ALL),
    Case("maximum.at", _maximum_at, _repeated_index, ALL),
    Case("x[i] = v", _put, _repeated_index, ALL),
    Case("x[i] = v, unique", _put, _unique_index, ALL),
    Case("x[i] = rows", _put, _rows_index, ALL),
    Case("x[1:-1] = v", _slice_set, _one, ALL),
    Case("x[mask] = 0", _masked_set, _one, ALL),
    Case("bincount", lambda k: np.bincount(np.clip(k, 0, 999), minlength=1000), _counts, INTEGERS),
    Case("bincount weights", lambda k, w: np.bincount(np.clip(k, 0, 999), w, minlength=1000), _weighted),
    Case("take", np.take, _with_index(0, SIZE), ALL),
    Case("x[i]", lambda x, i: x[i], _with_index(-SIZE, SIZE), ALL),
    Case("take_along_axis", lambda x, y: np.take_along_axis(x, np.argsort(y, 1), 1), _squares, ALL),
    Case(
        "choose", lambda i, x, y: np.choose(i, [x, y, x + y]), lambda r, d: (r.integers(0, 3, SIZE), *_two(r, d)), ALL
    ),
    Case("delete", lambda x: np.delete(x, 5), _one, ALL),
    Case("insert", lambda x: np.insert(x, 5, 1), _one, ALL),
)

MOVING = (
    Case("copy", lambda x: x.copy(), _one, ALL),
    Case("astype", lambda x: x.astype(np.int32), _one, ALL),
    Case("transpose copy", lambda x: x.T.copy(), _square, ALL),
    Case("concatenate", lambda x, y: np.concatenate([x, y]), _two, ALL),
    Case("stack", lambda x, y: np.stack([x, y], -1), _two, ALL),
    Case("roll", lambda x: np.roll(x, 1000), _one, ALL),
    Case("roll rows", lambda x: np.roll(x, 10, 1), _square, ALL),
    Case("repeat", lambda x: np.repeat(x, 3), _one, ALL),
    Case("tile", lambda x: np.tile(x, 3), _one, ALL),
    Case("pad", lambda x: np.pad(x, 10), _square, ALL),
    Case("pad reflect", lambda x: np.pad(x, 10, "reflect"), _square, ALL),
    Case("flip", lambda x: np.flip(x).copy(), _one, ALL),
    Case("rot90", lambda x: np.rot90(x).copy(), _square, ALL),
    Case("tril", np.tril, _square, ALL),
    Case("diag", lambda x: np.diag(x[:SIDE]), _one, ALL),
    Case("eye", lambda x: np.eye(SIDE) + x, _square, ALL),
    Case("meshgrid", lambda x, y: np.meshgrid(x[:SIDE], y[:SIDE]), _two, ALL),
    Case("linspace", lambda x: np.linspace(0.0, 1.0, SIZE) + x, _one, ALL),
    Case("arange", lambda x: np.arange(SIZE) + x, _one, ALL),
    Case("split", lambda x: [part + 1 for part in np.split(x, 4)], _one, ALL),
    Case("broadcast_to", lambda x: np.broadcast_to(x[:SIDE], (SIDE, SIDE)).copy(), _one, ALL),
)

FOLDING = (
    Case("sum", np.sum, _one, ALL),
    Case("sum rows", lambda x: np.sum(x, 1), _square, ALL),
    Case("sum columns", lambda x: np.sum(x, 0), _square, ALL),
    Case("prod", np.prod, _one, ALL),
    Case("mean", np.mean, _one, ALL),
    Case("var", np.var, _one, ALL),
    Case("std rows", lambda x: np.std(x, 1), _square, ALL),
    Case("max", np.max, _one, ALL),
    Case("argmax", np.argmax, _one, ALL),
    Case("argmax rows", lambda x: np.argmax(x, 1), _square, ALL),
    Case("argmin columns", lambda x: np.argmin(x, 0), _square, ALL),
    Case("any", lambda x: np.any(x > 10), _one, ALL),
    Case("all", lambda x: np.all(x > -10000), _one, ALL),
    Case("count_nonzero", np.count_nonzero, _one, ALL),
    Case("ptp", np.ptp, _one, ALL),
    Case("average", lambda x, w: np.average(x, weights=w), _two, FLOATS),
    Case("cumsum", np.cumsum, _one, ALL),
    Case("cumsum rows", lambda x: np.cumsum(x, 1), _square, ALL),
    Case("cumsum columns", lambda x: np.cumsum(x, 0), _square, ALL),
    Case("cumprod", np.cumprod, _one, ALL),
    Case("maximum.accumulate", np.maximum.accumulate, _one, ALL),
    Case("nansum", np.nansum, _one),
    Case("nanmax", np.nanmax, _one),
    Case("nanmean", np.nanmean, _one),
    Case("diff", np.diff, _one, ALL),
    Case("gradient", np.gradient, _one, FLOATS),
    Case("trapezoid", np.trapezoid, _one),
    Case("cov", lambda x: np.cov(x.reshape(10, -1)), _one),
    Case("corrcoef", lambda x: np.corrcoef(x.reshape(10, -1)), _one),
)

ELEMENTWISE = (
    Case("add", lambda x, y: x + y, _two, ALL),
    Case("divide", lambda x, y: x / y, _two),
    Case("floor_divide", lambda x: x // 7, _one, ALL),
    Case("remainder", lambda x: x % 7, _one, ALL),
    Case("power", lambda x: np.abs(x) ** 1.5, _one, FLOATS),
    Case("square", lambda x: x**2, _one, ALL),
    Case("sqrt", lambda x: np.sqrt(np.abs(x)), _one, FLOATS),
    *(
        Case(u.__name__, lambda x, u=u: u(x), _one)
        for u in (np.exp, np.exp2, np.expm1, np.sin, np.cos, np.tan, np.tanh, np.sinh, np.arctan, np.arcsinh, np.cbrt)
    ),
    *(
        Case(u.__name__, lambda x, u=u: u(np.abs(x) + 1), _one)
        for u in (np.log, np.log2, np.log10, np.log1p, np.arccosh)
    ),
    Case("arctan2", np.arctan2, _two),
    Case("hypot", np.hypot, _two),
    Case("logaddexp", np.logaddexp, _two),
    Case("fmod", np.fmod, _two),
    Case("nextafter", np.nextafter, _two),
    Case("frexp", np.frexp, _one),
    Case("modf", np.modf, _one),
    Case("where", lambda x, y: np.where(x > 0, x, y), _two, ALL),
    Case("clip", lambda x: np.clip(x, -1, 1), _one, ALL),
    Case("round", lambda x: np.round(x, 2), _one, FLOATS),
    Case("isnan", np.isnan, _one),
    Case("nan_to_num", np.nan_to_num, _one),
    Case("isclose", np.isclose, _two),
    Case("sinc", np.sinc, _one),
    Case("polyval", lambda x: np.polyval([1.0, 2.0, 3.0], x), _one),
    Case("select", lambda x, y: np.select([x > 0, y > 0], [x, y]), _two, ALL),
    Case("piecewise", lambda x: np.piecewise(x, [x < 0, x >= 0], [-1, 1]), _one, ALL),
    Case("bitwise_and", lambda x, y: x & y, _two, INTEGERS),
    Case("left_shift", lambda x: x << 3, _one, INTEGERS),
    Case("gcd", np.gcd, _two, INTEGERS),
)

CONTRACTING = (
    Case("dot", np.dot, _two, FLOATS),
    Case("matmul", lambda x, y: x @ y, _squares, FLOATS),
    Case("matmul i64", lambda x, y: x[:200, :200] @ y[:200, :200], _squares, INTEGERS),
    Case("matrix @ vector", lambda x, y: x @ y[0], _squares, FLOATS),
    Case("outer", lambda x, y: np.outer(x[:SIDE], y[:SIDE]), _two, ALL),
    Case("kron", lambda x, y: np.kron(x[:SIDE].reshape(50, 20), y[:SIDE].reshape(20, 50)), _two, ALL),
    Case(
        "tensordot",
        lambda x, y: np.tensordot(x.reshape(100, 10, 1000), y.reshape(10, 1000, 100), ([1, 2], [0, 1])),
        _two,
    ),
    Case("einsum ij,ij->i", lambda x, y: np.einsum("ij,ij->i", x, y), _squares),
    Case(
        "einsum bij,bjk",
        lambda x, y: np.einsum("bij,bjk->bik", x.reshape(100, 100, 100), y.reshape(100, 100, 100)),
        _two,
    ),
    Case("cross", lambda x, y: np.cross(x[:999999].reshape(-1, 3), y[:999999].reshape(-1, 3)), _two, ALL),
    Case("norm", np.linalg.norm, _one),
    Case("norm rows", lambda x: np.linalg.norm(x, axis=1), _square),
    Case("convolve 5", lambda x, y: np.convolve(x, y[:5]), _two, ALL),
    Case("convolve 100", lambda x, y: np.convolve(x, y[:100], "same"), _two),
    Case("correlate 20", lambda x, y: np.correlate(x, y[:20]), _two),
    Case("solve", np.linalg.solve, _system),
    Case("inv", np.linalg.inv, _matrix(SIDE)),
    Case("cholesky", np.linalg.cholesky, _positive),
    Case("det", lambda a: np.linalg.det(a / 100), _matrix(100)),
    Case("svd", np.linalg.svd, _matrix(100)),
    Case("eigh", np.linalg.eigh, _matrix(100)),
    Case("matrix_power", lambda a: np.linalg.matrix_power(a / 1000, 5), _matrix(300)),
)

CASES = (*SORTING, *SCATTERING, *MOVING, *FOLDING, *ELEMENTWISE, *CONTRACTING)
