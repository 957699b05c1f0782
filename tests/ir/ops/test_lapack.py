"""Factorisations with LAPACK's results, beside SciPy's LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from autofuse.ir.ops import lapack

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def numbers(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    rng = np.random.default_rng(1)
    made: Any = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def positive(size: int, dtype: Any) -> NDArray[Any]:
    a = numbers((2, size, size), dtype)
    return a @ a.conj().swapaxes(-1, -2) + size * np.eye(size, dtype=dtype)


def near(found: Any, expected: Any) -> None:
    single = np.dtype(found.dtype).name in ("float32", "complex64")
    tolerance = 2e-3 if single else 1e-9
    assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky(dtype: Any, lower: bool) -> None:
    h = positive(50, dtype)
    factor, info = lapack.potrf(h, lower)
    kept = np.triu(factor, 1) if lower else np.tril(factor, -1)
    assert_array_equal(kept, np.triu(h, 1) if lower else np.tril(h, -1))
    own = np.tril(factor) if lower else np.triu(factor).conj().swapaxes(-1, -2)
    near(own @ own.conj().swapaxes(-1, -2), h)
    assert info.dtype == np.int32
    assert_array_equal(info, [0, 0])
    assert_array_equal(lapack.cholesky(h, lower), np.tril(factor) if lower else np.triu(factor))


def test_matrices_that_are_not_definite_have_nan_alone() -> None:
    h = positive(4, np.float64)
    h[1] *= -1
    assert_array_equal(lapack.potrf(h)[1], [0, 1])
    factor = lapack.cholesky(h)
    assert np.isfinite(np.tril(factor[0])).all()
    assert np.isnan(factor[1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_matrices_and_stacks(dtype: Any) -> None:
    for shape in ((0, 3, 3), (2, 0, 0)):
        a = numbers(shape, dtype)
        assert lapack.cholesky(a).shape == shape
        assert [x.shape for x in lapack.getrf(a)] == [shape, shape[:2], shape[:1]]
        assert lapack.trsm(a, a).shape == shape
    assert lapack.trsm(numbers((2, 3, 3), dtype), numbers((2, 3, 0), dtype)).shape == (2, 3, 0)
    assert_array_equal(lapack.orgqr(numbers((3, 2), dtype), numbers((0,), dtype)), np.eye(3, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans", ["n", "t", "c"])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(dtype: Any, trans: str, unit: bool) -> None:
    size = 100  # more than two blocks
    a = numbers((2, size, size), dtype) / (3 * size) + np.eye(size, dtype=dtype)
    b = numbers((2, size, 3), dtype)
    for lower in (False, True):
        own = np.tril(a) if lower else np.triu(a)
        if unit:
            own[..., np.arange(size), np.arange(size)] = 1
        turned = own.swapaxes(-1, -2)
        op = {"n": own, "t": turned, "c": turned.conj()}[trans]
        near(op @ lapack.trsm(a, b, True, lower, trans, unit), b)
        right = b.swapaxes(-1, -2)
        near(lapack.trsm(a, right, False, lower, trans, unit) @ op, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(60, 60), (63, 60), (60, 62), (1, 1)])
def test_lu_and_qr(dtype: Any, shape: tuple[int, int]) -> None:
    a = numbers((2, *shape), dtype)
    lu, pivots, info = lapack.getrf(a)
    for number in range(2):
        expected, swapped = scipy.linalg.lu_factor(a[number])
        near(lu[number], expected)
        assert_array_equal(pivots[number], swapped + 1)
    assert_array_equal(info, [0, 0])
    packed, factors = lapack.geqrf(a)
    count = min(shape)
    near(lapack.orgqr(packed[..., :count], factors) @ np.triu(packed[..., :count, :]), a)


def test_singular_matrices_are_reported() -> None:
    lu, pivots, info = lapack.getrf(np.zeros((3, 3)))
    assert (info, pivots.tolist()) == (1, [1, 2, 3])
    assert_array_equal(lu, np.zeros((3, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype: Any) -> None:
    h = positive(6, dtype)
    vectors, values, info = lapack.syevd(h)
    near((vectors * values[:, None, :]) @ vectors.conj().swapaxes(-1, -2), h)
    near(lapack.syevd(h, vectors=False)[1], values)
    assert_array_equal(info, [0, 0])
    a = numbers((2, 7, 4), dtype)
    for mode, columns in (("A", 7), ("S", 4), ("N", 7)):
        _, sizes, u, vt, _ = lapack.gesdd(a, mode)
        assert (u.shape, vt.shape) == ((2, 7, columns), (2, 4, 4))
        near(sizes, np.linalg.svd(a, compute_uv=False))
        if mode != "N":
            near((u[..., :4] * sizes[:, None, :]) @ vt, a)
