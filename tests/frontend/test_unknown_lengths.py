"""Loops whose number of iterations only the run knows: one plan for all lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import TraceError

F32 = np.float32
LENGTHS = (0, 1, 5, 8)


def filtered(x: Any, k: Any, n: Any) -> Any:
    for i in range(n):
        k = k * F32(0.5) + x[i]
    return k


def from_the_end(x: Any, k: Any, n: Any) -> Any:
    for i in range(n - 1, -1, -1):
        k = k * F32(0.5) + x[i]
    return k


def in_steps(x: Any, k: Any, n: Any) -> Any:
    s, t = np.float64(0), 1.5
    for i in range(0, n, 3):
        s = s + x[i].sum(dtype=np.float64)
        t = t * 2
    for i in range(n, 1, -2):
        s = s - x[i - 1, 0]
    return s, t


def triangle(x: Any, k: Any, n: Any) -> Any:
    s = F32(0)
    for i in range(n):
        for j in range(i):
            s = s + x[i, j] * k[j]
    return s


def rows_out(x: Any, k: Any, n: Any) -> Any:
    out, h = np.zeros_like(x), k.copy()
    for i in range(n):
        h = h * F32(0.5) + x[i]
        out[i] = h
    return out


def slices(x: Any, k: Any, n: Any) -> Any:
    out = np.zeros(k.shape, F32)
    for i in range(n):
        out[i:] += x[i, i:]
        out[:i] *= F32(0.5)
    return out


def numbered(x: Any, k: Any, n: Any) -> Any:
    m = k.max()
    for i, v in enumerate(range(2, n)):
        m = max(m, x[v, i])
    return m


def until(x: Any, k: Any, n: Any) -> Any:
    s, i = np.zeros((), F32), 0
    while i < n:
        s = s + x[i, 0]
        i = i + 1
    return s


def scanned(x: Any, k: Any, n: Any) -> Any:
    return af.scan(lambda h, _: (h * F32(0.5) + x[0], None), k, length=n)[0]


FUNCTIONS = (filtered, from_the_end, in_steps, triangle, rows_out, slices, numbered, until, scanned)


def x_and_k() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((8, 13)).astype(F32), rng.standard_normal(13).astype(F32)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_plan_for_all_lengths(function: Any) -> None:
    x, k = x_and_k()
    kind = np.int32 if function in (filtered, triangle, slices) else np.int64
    plan = af.compile(function, x, k, kind(3))
    for n in LENGTHS:
        found, expected = plan(x, k, kind(n)), function(x.copy(), k.copy(), n)
        for got, right in zip(parts(found), parts(expected), strict=True):
            np.testing.assert_allclose(got, right, 1e-5, 1e-5, err_msg=f"n = {n}")


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_they_are_kernels():
    x, k = x_and_k()
    for function in (filtered, triangle, scanned):
        plan = af.compile(function, x, k, np.int32(3))
        assert [kernel.kind for kernel in plan.kernels] == ["loop"]


def test_what_would_have_a_shape_that_data_decide_is_refused():
    x, k = x_and_k()
    for f, message in (
        (
            lambda x, k, n: af.scan(lambda h, row: (h + row, None), k, x, length=n),
            "xs of a leading extent that is known",
        ),
        (lambda x, k, n: af.scan(lambda h, _: (h, h), k, None, length=n), "cannot stack"),
        (lambda x, k, n: af.scan(lambda h, _: (h, None), k, None, length=n * 0.5), "needs an integer as its length"),
    ):
        with pytest.raises(TraceError, match=message):
            af.trace(f, x, k, np.int32(3))


def test_indices_behind_the_end_raise_where_that_is_asked_for():
    x, k = x_and_k()
    plan = af.compile(filtered, x, k, np.int32(3), check_bounds=True)
    np.testing.assert_allclose(plan(x, k, np.int32(8)), filtered(x, k, 8), 1e-5, 1e-5)
    with pytest.raises(IndexError, match="axis 0 with size 8"):
        plan(x, k, np.int32(9))
