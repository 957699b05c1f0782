"""Eigenvalues and simpler forms of matrices, by what they make up again, in four dtypes and stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from autofuse.ir.ops import lapack, reduced_matrices
from tests.ir.ops.test_lapack import DTYPES, near, numbers, positive


def turned(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_of_both_sides(dtype: Any) -> None:
    a = numbers((2, 7, 7), dtype)
    *values, left, right, info = reduced_matrices.geev(a)
    w = values[0] + 1j * values[1] if len(values) == 2 else values[0]
    near(a @ right, right * w[..., None, :])
    near(turned(left) @ a, w[..., :, None] * turned(left))
    assert_array_equal(info, [0, 0])
    alone = reduced_matrices.geev(a, left=False)
    assert np.isnan(alone[-3]).all()
    near(alone[-2], right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur(dtype: Any) -> None:
    a = numbers((2, 6, 6), dtype)
    form, vectors, *_, chosen, info = reduced_matrices.gees(a)
    near(vectors @ form @ turned(vectors), a)
    assert not np.tril(form, -2).any()
    assert (chosen.dtype, info.dtype) == (np.int32, np.int32)
    assert np.isnan(reduced_matrices.gees(a, vectors=False)[1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_hessenberg(dtype: Any) -> None:
    a = numbers((2, 6, 6), dtype)
    packed, factors, _ = reduced_matrices.gehrd(a)
    below = np.zeros_like(a[..., 1:, :5])
    below[...] = packed[..., 1:, :5]
    q = np.zeros_like(a)
    q[..., 0, 0] = 1
    q[..., 1:, 1:] = lapack.orgqr(below, factors)
    near(q @ np.triu(packed, -1) @ turned(q), a)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal(dtype: Any, lower: bool) -> None:
    h = positive(6, dtype)
    _, diagonal, beside, factors, info = reduced_matrices.sytrd(h, lower)
    assert diagonal.dtype == np.real(h).dtype
    assert (factors.shape, factors.dtype) == ((2, 5), h.dtype)
    for one, d, e in zip(h, diagonal, beside, strict=True):
        near(np.linalg.eigvalsh(np.diag(d) + np.diag(e, 1) + np.diag(e, -1)), np.linalg.eigvalsh(one))
    assert_array_equal(info, [0, 0])


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 4, 6), (2, 5, 5)])
@pytest.mark.parametrize("fixed", [(), (2,), (3, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pivoted_qr(dtype: Any, fixed: tuple[int, ...], shape: tuple[int, ...]) -> None:
    a = numbers(shape, dtype)
    asked = np.zeros((2, shape[-1]), np.int32)
    asked[:, list(fixed)] = 1
    packed, order, factors = reduced_matrices.geqp3(a, asked)
    assert_array_equal(np.sort(order, -1), np.arange(1, shape[-1] + 1)[None].repeat(2, 0))
    assert {*order[0, : len(fixed)]} == {place + 1 for place in fixed}
    count = min(shape[1:])
    r = np.triu(packed)[..., :count, :]
    made = reduced_matrices.ormqr(packed, factors, np.concatenate([r, np.zeros_like(packed[..., count:, :])], -2))
    near(made, np.take_along_axis(a, order[:, None, :] - 1, -1))
    sizes = np.abs(np.diagonal(r, axis1=-2, axis2=-1))[..., len(fixed) :]
    assert (np.diff(sizes) <= 1e-5).all()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_with_reflections(dtype: Any, transpose: bool, left: bool) -> None:
    a = numbers((2, 6, 4), dtype)
    packed, factors = lapack.geqrf(a)
    whole = np.concatenate([packed, np.zeros((2, 6, 2), dtype)], -1)
    q = lapack.orgqr(whole, factors)
    q = turned(q) if transpose else q
    c = numbers((2, 6, 3), dtype) if left else numbers((2, 3, 6), dtype)
    near(reduced_matrices.ormqr(packed, factors, c, left, transpose), q @ c if left else c @ q)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_systems(dtype: Any) -> None:
    lower, diagonal, upper = (numbers((3, 2, 7), dtype)[n] for n in range(3))
    diagonal = diagonal * 0.1
    right = numbers((2, 7, 3), dtype)
    *_, x, info = reduced_matrices.gtsv(lower, diagonal, upper, right)
    for n in range(2):
        near(
            np.diag(diagonal[n]) @ x[n] + np.diag(lower[n, 1:], -1) @ x[n] + np.diag(upper[n, :-1], 1) @ x[n], right[n]
        )
    assert_array_equal(info, [0, 0])
    assert reduced_matrices.gtsv(lower, 0 * diagonal, 0 * upper, right)[-1].all()


def test_what_is_infinite_has_no_result() -> None:
    a = numbers((2, 4, 4), np.float64)
    a[0, 1, 1] = np.nan
    *values, info = reduced_matrices.geev(a)
    assert_array_equal(info, [1, 0])
    assert all(np.isnan(value[0]).all() for value in values)
    assert np.isfinite(values[0][1]).all()


def test_matrices_of_nothing() -> None:
    a = np.zeros((2, 0, 0))
    assert [x.shape for x in reduced_matrices.geev(a)] == [(2, 0), (2, 0), (2, 0, 0), (2, 0, 0), (2,)]
    assert [x.shape for x in reduced_matrices.sytrd(a)] == [(2, 0, 0), (2, 0), (2, 0), (2, 0), (2,)]
    packed, order, factors = reduced_matrices.geqp3(np.zeros((0, 3)), np.zeros(3, np.int32))
    assert_allclose(order, [1, 2, 3])
    assert (packed.shape, factors.shape) == ((0, 3), (0,))
