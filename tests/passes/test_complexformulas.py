"""Formulas of complex functions beside NumPy's: edges of C99, and random numbers to a few units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.parts import as_complex, as_parts
from autofuse.ir.types import of_array
from autofuse.passes.complexparts import split_complex

Array = NDArray[Any]
INF, NAN = np.inf, np.nan
EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -2.5, 3e38, 1e-40, -3e-39, 89.0, -89.0, 100.0, 1e-8]
UNARY = ("negate", "sign", "exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "abs")
"""Whose edges NumPy takes from C99."""
ULPS = {
    "sqrt": 2,
    "log": 2,
    "tan": 8,
    "tanh": 8,
    "expm1": 4,
    "log1p": 4,
    "exp": 6,
    "sin": 6,
    "cos": 6,
    "rsqrt": 8,
    "abs": 2,
}
"""In complex64, of each part against the exact value; of what is computed in f64, 1."""


def split(op: str, *operands: Array) -> Array:
    builder = GraphBuilder("one")
    inputs = [builder.input(of_array(operand)) for operand in operands]
    graph = builder.finish([builder.emit(op, inputs)])
    (found,) = interpret(split_complex(graph), *map(as_parts, operands))
    return as_complex(found) if found.ndim > operands[0].ndim else found


def numpys(op: str, *operands: Array) -> Array:
    names = {"negate": "negative"}
    with np.errstate(all="ignore"):
        return getattr(np, names.get(op, op))(*operands)


def square(values: list[float], dtype: Any) -> Array:
    parts = np.array(values, dtype(0).real.dtype)
    made = np.empty((parts.size, parts.size), dtype)
    made.real, made.imag = parts[:, None], parts[None, :]
    return made.reshape(-1)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_edges_are_those_of_c(op: str, dtype: Any) -> None:
    z = square(EDGES, dtype)
    if op == "sign":  # NumPy's is 1j where the absolute value overflows
        z = z[np.isinf(numpys("abs", z)) <= np.isinf(z)]
    found, expected = split(op, z), numpys(op, z)
    for part in (np.real, np.imag) if op != "abs" else (np.real,):
        mine, theirs = part(found), part(expected)
        same = np.isnan(mine) == np.isnan(theirs)
        settled = np.isfinite(z) | (op not in ("sin", "cos", "tan", "tanh"))  # C leaves some signs of these open
        np.testing.assert_array_equal(np.where(settled, np.isinf(mine), 0), np.where(settled, np.isinf(theirs), 0))
        assert same.all(), z[~same]
        size = np.where(np.isfinite(theirs), np.abs(theirs), 0)
        with np.errstate(invalid="ignore"):
            off = np.abs(np.where(np.isfinite(mine) & np.isfinite(theirs), mine - theirs, 0))
        assert (off <= 16 * np.spacing(size)).all(), z[off > 16 * np.spacing(size)]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_quotients_are_numpys_bit_for_bit(dtype: Any) -> None:
    z = square(EDGES, dtype)
    x, y = np.repeat(z, z.size), np.tile(z, z.size)
    np.testing.assert_array_equal(split("divide", x, y), numpys("divide", x, y))


@pytest.mark.parametrize("op", ULPS)
def test_complex64_is_near_the_exact_value(op: str) -> None:
    rng = np.random.default_rng(3)
    z = as_complex((rng.standard_normal((5000, 2)) * 10.0 ** rng.integers(-3, 2, (5000, 2))).astype(np.float32))
    wide = z.astype(np.complex128)
    exact = 1 / np.sqrt(wide) if op == "rsqrt" else numpys(op, wide)
    if op in ("expm1", "log1p"):  # NumPy's lose digits near 0
        small = np.abs(wide) < 0.02
        signs = [1 / 2, 1 / 6, 1 / 24, 1 / 120] if op == "expm1" else [-1 / 2, 1 / 3, -1 / 4, 1 / 5]
        series = wide + sum(c * wide ** (n + 2) for n, c in enumerate(signs))
        exact = np.where(small, series, exact)
    found = split(op, z)
    for part in (np.real, np.imag) if op != "abs" else (np.real,):
        right = part(exact)
        fits = np.abs(right) < np.finfo(np.float32).max
        off = np.abs(part(found)[fits] - right[fits]) / np.spacing(np.abs(right[fits]).astype(np.float32))
        assert off.max() <= ULPS[op], (op, z[fits][off.argmax()])


def test_powers_keep_to_what_numpy_says_of_zero() -> None:
    x = np.array([0, 0, 0, 2 + 1j, 0], np.complex64)
    y = np.array([0, 2, -1, 0, 1 + 1j], np.complex64)
    found = split("power", x, y)
    np.testing.assert_array_equal(found[[0, 1, 3, 4]], [1, 0, 1, 0])
    assert np.isnan(found[2])


def test_nothing_overflows_on_the_way() -> None:
    z = np.array([1e300 + 1e300j, 3e-320 + 4e-320j, 720 + 1e-300j, 800 + 1e-200j])
    assert np.isfinite(split("abs", z)).all()
    assert np.isfinite(split("sqrt", z)).all()
    assert np.isfinite(split("log", z)).all()
    assert np.isfinite(split("tanh", z)).all()
    assert np.isfinite(split("exp", z[2:]).imag).all()
