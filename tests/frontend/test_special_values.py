"""Every ufunc at zeros of both signs, infinities, NaN, and the largest, smallest and subnormal numbers."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.frontend.ufunc_rules import RULES
from autofuse.ir.interpreter import interpret

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
UFUNCS = sorted(name for name in RULES if isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).nin < 3)
ZEROS_ARE_EQUAL = ("maximum", "minimum", "fmax", "fmin")
"""NumPy leaves open which of two zeros it returns."""

CANCEL = ("logaddexp", "logaddexp2")
"""Results near zero are differences of terms of the size of one."""


def special(dtype: str) -> Any:
    d = np.dtype(dtype)
    if d.kind == "b":
        return np.array([True, False])
    if d.kind in "iu":
        info, width = np.iinfo(d), 8 * d.itemsize
        edges = [0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
        edges += [width - 1, width, width + 1] + ([-1, -2, -7, -width] if d.kind == "i" else [])
        return np.array(edges).astype(d) if d != np.uint64 else np.array(edges, d)
    info = np.finfo(d)
    root = float(info.max) ** 0.5
    positive = [0.0, np.inf, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 1e-5, 1e-3, 11.1, 20.5, 88.8, 100.0, 300.25, 709.8, 745.2]
    positive += [info.max, info.tiny, info.smallest_subnormal, float(info.tiny) / 2, float(info.tiny) ** 0.5]
    positive += [1 + float(info.eps), 1 - float(info.epsneg), root, 2 * root, 1e4, 1e8, 1e20, 1e300]
    with np.errstate(over="ignore"):
        return np.array([np.nan, *positive, *(-float(x) for x in positive)]).astype(d)


def arguments(name: str, dtype: str) -> tuple[Any, ...]:
    values = special(dtype)
    if getattr(np, name).nin == 1:
        return (values,)
    x, y = (side.ravel().copy() for side in np.meshgrid(values, values))
    if name == "ldexp" and values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return x, np.nan_to_num(np.clip(y.astype("f8"), -3000, 3000)).astype("i4")
    if name == "power" and values.dtype.kind == "i":
        return x[y >= 0], y[y >= 0]  # NumPy raises ValueError
    return x, y


def wrong_elements(name: str, got: Any, want: Any) -> Any:
    """Where elements differ by more than 8 ulp, or in the sign of a zero."""
    if want.dtype.kind != "f":
        return np.flatnonzero(got != want)
    info = np.finfo(want.dtype)
    g, w = got.astype("f8"), want.astype("f8")
    scale = np.maximum(np.abs(w), 1) if name in CANCEL else np.abs(w)
    near = np.abs(g - w) <= 8 * np.maximum(float(info.eps) * scale, float(info.smallest_subnormal))
    same = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.isfinite(g) & np.isfinite(w) & near)
    if name not in (*ZEROS_ARE_EQUAL, *CANCEL):
        same &= (g != 0) | (w != 0) | (np.signbit(g) == np.signbit(w))
    return np.flatnonzero(~same)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_values(name: str, dtype: str) -> None:
    ufunc, given = getattr(np, name), arguments(name, dtype)
    try:
        want = ufunc(*given)
    except TypeError:
        pytest.skip("NumPy has no such loop")
    traced = trace(ufunc, *given)
    got = traced.unflatten(interpret(traced.graph, *given))
    pairs = zip(got, want, strict=True) if ufunc.nout > 1 else [(got, want)]
    for g, w in pairs:
        assert g.dtype == w.dtype
        for i in wrong_elements(name, g, w):
            pytest.fail(f"np.{name}({', '.join(repr(x[i]) for x in given)}) = {g[i]!r}, want {w[i]!r}")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_square_root_that_numpy_takes_for_a_power(dtype: str, agrees: Any) -> None:
    x = np.array([-0.0, -np.inf, 0.0, 4.0, np.nan], dtype)
    agrees(lambda x: (x**0.5, np.power(x, 0.5), np.float_power(x, 0.5), x[0] ** 0.5, x[1] ** 0.5), x)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_ldexp_rounds_once(dtype: str, agrees: Any) -> None:
    """Results among the subnormal numbers, from significands whose bits lie just beside a tie."""
    info = np.finfo(dtype)
    mantissas = np.array([1.5, 1 + info.eps, 2 - info.eps, 1.25, 1.75 + info.eps], dtype)
    powers = np.arange(info.minexp - info.nmant - 2, info.minexp + 2, dtype=np.int32)
    x, e = (side.ravel().copy() for side in np.meshgrid(mantissas, powers))
    agrees(np.ldexp, x, e)
    agrees(np.ldexp, np.ldexp(x, np.int32(info.maxexp - 2)), e - np.int32(info.maxexp - 2))


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u8"])
def test_greatest_common_divisors(dtype: str, agrees: Any) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    x, y = (rng.integers(info.min, info.max, 50, dtype=dtype, endpoint=True) for _ in range(2))
    agrees(lambda x, y: (np.gcd(x, y), np.gcd(x, 12), np.lcm(x, y)), x, y)


@pytest.mark.parametrize("target", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors convert otherwise")
def test_floats_that_wrap_when_they_become_integers(source: str, target: str, agrees: Any) -> None:
    """NumPy on x86-64 goes through a wider integer and does not warn: such casts are what programs rely on."""
    x = np.array([-1.0, -1.5, -0.5, 0.5, 127.5, 128, 200, 255.9, 256, 300.7, -129, 32768, -40000, 65504], source)
    agrees(lambda x: x.astype(target), x[np.isfinite(x)])


def test_floats_beyond_every_integer_saturate_and_nan_is_zero() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30])
    for target, want in {"i4": [0, 2**31 - 1, -(2**31)] * 2, "i8": [0, 2**63 - 1, -(2**63)] * 2}.items():
        traced = trace(lambda x, target=target: x.astype(target), x)
        (got,) = interpret(traced.graph, x)
        assert got.tolist() == want[:3] + want[1:3]
