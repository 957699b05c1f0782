"""Elementwise ufuncs: values, dtypes by NEP 50, out= and where=, for every dtype."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from autofuse.errors import TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]
ALL = ["?", *INTEGERS, *FLOATS]


def sample(dtype: str, seed: int = 0) -> Any:
    """Values with the edges of the dtype among them."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(24) < 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        edges = [info.min, info.max, 0, 1, 2, 3, 7] + ([-1, -2, -3, -7] if kind == "i" else [])
        low, high = max(info.min, -30), min(info.max, 30)
        return np.concatenate([np.array(edges, dtype), rng.integers(low, high, 32 - len(edges)).astype(dtype)])
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5]
    return np.concatenate([np.array(edges, dtype), (rng.normal(size=20) * 3).astype(dtype)])


EXACT_UNARY = [
    "negative positive absolute fabs sign square conjugate floor ceil trunc rint isnan isinf isfinite signbit invert",
    "logical_not sqrt reciprocal bitwise_count modf",
]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", " ".join(EXACT_UNARY).split())
def test_exact_functions_of_one_argument(name: str, dtype: str, agrees: Any) -> None:
    ufunc = getattr(np, name)
    x = sample(dtype)
    if name == "reciprocal" and np.dtype(dtype).kind in "biu":
        x = x[x != 0]  # NumPy's 1/0 in integers is whatever the processor makes of it
    try:
        with np.errstate(all="ignore"):
            ufunc(x)
    except TypeError:
        with pytest.raises(TraceError):
            trace(ufunc, x)
        return
    agrees(ufunc, x)


ROUNDED_UNARY = [
    "exp exp2 expm1 log log2 log10 log1p cbrt sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh",
    "deg2rad rad2deg degrees radians",
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", " ".join(ROUNDED_UNARY).split())
def test_rounded_functions_of_one_argument(name: str, dtype: str, agrees: Any) -> None:
    # composed from two or three rounded steps: 8 ulp
    agrees(getattr(np, name), sample(dtype), ulps=8)


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "arctan", "sqrt", "log1p"])
@pytest.mark.parametrize("dtype", ["?", *INTEGERS])
def test_functions_of_integers_compute_in_numpys_float(name: str, dtype: str, agrees: Any) -> None:
    agrees(getattr(np, name), sample(dtype), ulps=8)


def test_hyperbolic_functions_reach_the_largest_results(agrees: Any) -> None:
    for dtype, top in (("f4", 89.0), ("f8", 710.0)):
        x = np.array([-top, -20, -19.9, -1e-4, 1e-4, 19.9, 20, top], dtype)
        agrees(lambda x: (np.sinh(x), np.cosh(x)), x, ulps=256)  # e^top: the error of the exponent grows with it


@pytest.mark.parametrize("name", ["erf", "expit", "logit", "xlogy", "xlog1py", "entr", "log_expit"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_scipy_ufuncs(name: str, dtype: str, agrees: Any) -> None:
    ufunc = getattr(scipy.special, name)
    x = np.linspace(0.01, 0.99, 17).astype(dtype)
    agrees(ufunc, *([x, x[::-1].copy()] if ufunc.nin == 2 else [x]), ulps=32)


BINARY = [
    "add subtract multiply maximum minimum fmax fmin floor_divide remainder fmod divide divmod copysign nextafter",
    "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor less less_equal greater greater_equal",
    "equal not_equal heaviside",
]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", " ".join(BINARY).split())
def test_exact_functions_of_two_arguments(name: str, dtype: str, agrees: Any) -> None:
    ufunc = getattr(np, name)
    x, y = sample(dtype)[:24], sample(dtype, seed=1)[::-1][:24].copy()
    try:
        with np.errstate(all="ignore"):
            ufunc(x, y)
    except TypeError:
        with pytest.raises(TraceError):
            trace(ufunc, x, y)
        return
    if name in ("maximum", "minimum", "fmax", "fmin"):
        x, y = x + x.dtype.type(0), y + y.dtype.type(0)  # which zero is the larger is left open by NumPy
    agrees(ufunc, x, y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["arctan2", "hypot", "logaddexp", "logaddexp2", "power", "float_power"])
def test_rounded_functions_of_two_arguments(name: str, dtype: str, agrees: Any) -> None:
    x, y = sample(dtype), sample(dtype, seed=1)[::-1].copy()
    agrees(getattr(np, name), x, y, ulps=8)


@pytest.mark.parametrize("left", ALL)
@pytest.mark.parametrize("right", ALL)
def test_promotion_of_every_pair_of_dtypes(left: str, right: str, agrees: Any) -> None:
    x, y = np.arange(6).astype(left), np.arange(6)[::-1].astype(right)
    agrees(lambda x, y: (x + y, x < y, x == y, np.where(x < y, x, y)), x, y)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("number", [2, 2.5, True, np.float64(2), np.int8(3), np.float32(1.5)])
def test_scalars_are_weak_if_python_made_them(dtype: str, number: Any, agrees: Any) -> None:
    x = np.arange(6).astype(dtype)
    agrees(lambda x: (x + number, number * x, x < number, x / 2, np.maximum(x, number)), x)


def test_bfloat16_follows_ml_dtypes(agrees: Any) -> None:
    x = np.linspace(-2, 2, 9).astype(ml_dtypes.bfloat16)
    agrees(lambda x: (x + x, x * 2, x + 1.0, np.maximum(x, x), -x, np.abs(x), x < x), x)
    agrees(np.exp, x, ulps=1)


def test_python_integers_outside_the_dtype(agrees: Any) -> None:
    x = np.arange(5, dtype=np.uint8)
    agrees(lambda x: (x < 300, x == -1, x < 1000, x != 256, x >= -5), x)
    with pytest.raises(TraceError, match="out of bounds"):
        trace(lambda x: x + 300, x)


def test_signed_and_unsigned_compare_by_value(agrees: Any) -> None:
    a = np.array([-1, 0, 5, 2**62], np.int64)
    b = np.array([2**64 - 1, 0, 4, 2**63], np.uint64)
    agrees(lambda a, b: (a < b, b < a, a == b, a != b, a >= b, b <= a), a, b)


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_arrays_and_numbers_on_either_side(name: str, agrees: Any) -> None:
    op = getattr(operator, name)
    x, y = np.arange(1, 7, dtype=np.float32), np.arange(6, 0, -1, dtype=np.float32)
    agrees(lambda x, y: (op(x, y), op(x, 2), op(3.0, x), op(x, y[2]), op(np.float32(2), x)), x, y)


def test_integer_operators(agrees: Any) -> None:
    x = np.array([1, 2, 3, -4], np.int32)
    agrees(lambda x: (x & 3, 1 | x, x ^ x, ~x, x << 2, x >> 1, abs(x), -x, +x, divmod(x, 3), divmod(7, x)), x)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, -1, -2, 0.5, 1.7])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_powers_of_floats(dtype: str, exponent: float, agrees: Any) -> None:
    agrees(lambda x: x**exponent, np.array([0.5, 1.0, 2.0, 3.3, 0.0], dtype), ulps=4)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 10])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers(dtype: str, exponent: int, agrees: Any) -> None:
    agrees(lambda x: x**exponent, np.array([0, 1, 2, 3, 100], dtype))


def test_negative_integer_powers_are_an_error_as_in_numpy() -> None:
    with pytest.raises(TraceError, match="negative integer powers"):
        trace(lambda x: x**-2, np.arange(1, 4))


@pytest.mark.parametrize("base", [2, 0.9])
def test_power_with_a_traced_exponent(base: float, agrees: Any) -> None:
    agrees(lambda x: base**x, np.arange(4, dtype=np.float32), ulps=2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: str, agrees: Any) -> None:
    x = sample(dtype)
    agrees(lambda x, y: (np.left_shift(x, y), np.right_shift(x, y)), x, (np.arange(x.size) % 7).astype(dtype))


def test_ldexp(agrees: Any) -> None:
    x, e = np.array([1.5, 0.75, 1.0, 3.0], np.float32), np.array([3, -4, 130, -140], np.int32)
    agrees(np.ldexp, x, e)


def test_broadcasting(agrees: Any) -> None:
    x, y, z = np.ones((3, 1, 4)), np.arange(5.0).reshape(5, 1), np.float64(2)
    agrees(lambda x, y, z: x * y + z, x, y, z)


def test_out_is_written_and_returned(agrees: Any) -> None:
    def step(x: Any, y: Any) -> Any:
        out = np.empty_like(x)
        same = np.add(x, y, out=out)
        np.multiply(out, 2, out)
        return out, same

    agrees(step, np.arange(3.0), np.ones(3))


def test_out_on_a_slice_of_an_argument(agrees: Any) -> None:
    def step(x: Any) -> Any:
        np.add(x[:2], 10, out=x[2:4])
        return x.sum()

    traced = agrees(step, np.arange(6.0))
    assert traced.writebacks == ((0, 1),)


def test_out_of_a_wider_dtype(agrees: Any) -> None:
    def step(x: Any) -> Any:
        out = np.zeros(3)
        np.add(x, x, out=out)
        np.floor_divide(out, 2, out=x, casting="unsafe")
        return out

    agrees(step, np.arange(3, dtype=np.float32))


def test_out_of_a_narrower_kind_is_an_error() -> None:
    def step(x: Any) -> Any:
        return np.add(x, 0.5, out=x)

    with pytest.raises(TraceError, match="casting"):
        trace(step, np.arange(3))


def test_where_keeps_the_old_elements_of_out(agrees: Any) -> None:
    def step(x: Any, mask: Any) -> Any:
        out = np.full(x.shape, -1.0)
        np.sqrt(x, out=out, where=mask)
        np.divide(x, 2.0, out=out, where=x > 2)
        return out

    agrees(step, np.arange(5.0), np.array([True, False, True, False, True]))


def test_dtype_argument(agrees: Any) -> None:
    x = np.arange(5, dtype=np.int32)
    agrees(lambda x: (np.add(x, 1, dtype=np.float64), np.multiply(x, x, dtype="f4"), np.sqrt(x, dtype=np.float32)), x)


def test_two_results(agrees: Any) -> None:
    agrees(lambda x: np.divmod(x, 0.7), np.linspace(-2, 2, 9))


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "less"])
def test_outer(name: str, agrees: Any) -> None:
    agrees(lambda x, y: getattr(np, name).outer(x, y), np.arange(3.0), np.arange(4.0).reshape(2, 2))


@pytest.mark.parametrize("name", ["add", "subtract", "maximum", "minimum", "multiply"])
def test_at_accumulates_repeated_indices(name: str, agrees: Any) -> None:
    def step(x: Any, i: Any, v: Any) -> Any:
        getattr(np, name).at(x, i, v)
        return x

    agrees(step, np.arange(5.0), np.array([0, 1, 1, -1]), np.array([1.0, 2.0, 3.0, 4.0]))


def test_constants_join_the_graph_once() -> None:
    traced = trace(lambda x: (x + 1.0) * 1.0 + 1.0, spec("f32[4]"))
    assert sum(node.op == "constant" for node in traced.graph.nodes) == 1
