"""Factorisations and solutions of dense systems with LAPACK's results, made of NumPy's calls.

They are what StableHLO's `cholesky` and `triangular_solve` and JAX's `lapack_*` calls ask for. All take stacks of
matrices, of floats or complex numbers, and none raises for a matrix that has no result: `info` is then above 0, as
LAPACK has it, or elements are NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_BLOCK = 48
"""Rows that are solved, or columns that are factorised, before a product updates the others."""


def _info(stack: tuple[int, ...]) -> NDArray[np.int32]:
    return np.zeros(stack, np.int32)


def _places(stack: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return np.ndindex(*stack)


def _each(
    function: Callable[[Array], Array | tuple[Array, ...]], a: Array, like: tuple[Array, ...]
) -> tuple[tuple[Array, ...], NDArray[np.int32]]:
    """A function of NumPy's of a stack; where it raises, of each matrix alone: NaN and 1 for those that it refuses."""
    info = _info(a.shape[:-2])
    try:
        found = function(a)
        return (found if isinstance(found, tuple) else (found,)), info
    except np.linalg.LinAlgError:
        results = tuple(np.full_like(one, np.nan) for one in like)
        for place in _places(a.shape[:-2]):
            try:
                found = function(a[place])
            except np.linalg.LinAlgError:
                info[place] = 1
                continue
            for result, one in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
                result[place] = one
        return results, info


def cholesky(a: Array, lower: bool = True) -> Array:
    """The factor of positive definite matrices, NaN for others; zeros in the other triangle. One triangle is read."""
    return _cholesky(a, lower)[0]


def potrf(a: Array, lower: bool = True) -> tuple[Array, Array]:
    """The factor in its triangle, the other one as it was; and `info`."""
    factor, info = _cholesky(a, lower)
    rows, columns = np.ogrid[: a.shape[-2], : a.shape[-1]]
    return np.where((columns <= rows) if lower else (rows <= columns), factor, a), info


def _cholesky(a: Array, lower: bool) -> tuple[Array, Array]:
    whole = np.tril(a) if lower else np.conj(np.swapaxes(np.triu(a), -1, -2))
    diagonal = np.arange(a.shape[-1])
    if np.iscomplexobj(whole):
        whole[..., diagonal, diagonal] = np.real(whole[..., diagonal, diagonal])
    (factor,), info = _each(np.linalg.cholesky, whole, (whole,))
    return (factor if lower else np.conj(np.swapaxes(factor, -1, -2))), info


def trsm(a: Array, b: Array, left: bool = True, lower: bool = True, trans: str = "n", unit: bool = False) -> Array:
    """X of `op(a) X = b`, or of `X op(a) = b`: one triangle of `a` counts; `trans`: n, t, or c as op conjugates too."""
    triangle, below = a, lower
    if trans != "n":
        turned = np.swapaxes(a, -1, -2)
        triangle, below = np.conj(turned) if trans == "c" else turned, not lower
    if left:
        return _solved(triangle, b, below, unit)
    return np.swapaxes(_solved(np.swapaxes(triangle, -1, -2), np.swapaxes(b, -1, -2), not below, unit), -1, -2)


def _solved(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """By blocks of rows: what is known is taken off by a product, and the rest is solved row by row."""
    size = a.shape[-1]
    x = np.array(b, order="C")
    starts = range(0, size, _BLOCK)
    with np.errstate(all="ignore"):
        for start in starts if lower else reversed(starts):
            stop = min(start + _BLOCK, size)
            known = slice(0, start) if lower else slice(stop, size)
            if known.start < known.stop:
                x[..., start:stop, :] -= a[..., start:stop, known] @ x[..., known, :]
            for row in range(start, stop) if lower else reversed(range(start, stop)):
                near = slice(start, row) if lower else slice(row + 1, stop)
                if near.start < near.stop:
                    x[..., row, :] -= (a[..., row, None, near] @ x[..., near, :])[..., 0, :]
                if not unit:
                    x[..., row, :] /= a[..., row, row, None]
    return x


def getrf(a: Array) -> tuple[Array, Array, Array]:
    """L (without its ones) and U in one array, with partial pivoting; rows swapped with, counted from 1; and `info`."""
    lu = np.array(a, order="C")
    *stack, rows, columns = lu.shape
    count = min(rows, columns)
    pivots = np.zeros((*stack, count), np.int32)
    info = _info(tuple(stack))
    with np.errstate(all="ignore"):
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            for column in range(start, stop):
                _eliminate(lu, pivots, info, column, stop)
            if stop < columns:
                block = lu[..., start:stop, start:stop]
                lu[..., start:stop, stop:] = _solved(block, lu[..., start:stop, stop:], lower=True, unit=True)
                lu[..., stop:, stop:] -= lu[..., stop:, start:stop] @ lu[..., start:stop, stop:]
    return lu, pivots, info


def _eliminate(lu: Array, pivots: Array, info: Array, column: int, stop: int) -> None:
    """One column: the largest element is brought up, and the block's other columns are updated."""
    below = lu[..., column:, column]
    size = np.abs(np.real(below)) + np.abs(np.imag(below)) if np.iscomplexobj(lu) else np.abs(below)
    chosen = column + np.argmax(size, -1)
    pivots[..., column] = chosen + 1
    for place in _places(lu.shape[:-2]):
        pivot = int(chosen[place])
        if pivot != column:
            lu[(*place, [column, pivot])] = lu[(*place, [pivot, column])]
    head = lu[..., column, column]
    singular = head == 0
    info[...] = np.where((info == 0) & singular, column + 1, info)
    lu[..., column + 1 :, column] /= np.where(singular, head.dtype.type(1), head)[..., None]
    if column + 1 < stop:
        factors = lu[..., column + 1 :, column, None]
        lu[..., column + 1 :, column + 1 : stop] -= factors * lu[..., column, None, column + 1 : stop]


def geqrf(a: Array) -> tuple[Array, Array]:
    """R and the vectors of the reflections in one array, and the reflections' factors."""
    packed, factors = np.linalg.qr(a, "raw")
    return np.swapaxes(packed, -1, -2), factors


def orgqr(a: Array, factors: Array) -> Array:
    """The first columns of the product of the reflections that `geqrf` gives, as many as `a` has."""
    columns = a.shape[-1]
    q = np.zeros(a.shape, a.dtype)
    q[..., np.arange(columns), np.arange(columns)] = 1
    for number in reversed(range(factors.shape[-1])):
        vector = np.array(a[..., number:, number])
        vector[..., 0] = 1
        shares = np.conj(vector)[..., None, :] @ q[..., number:, number:]
        q[..., number:, number:] -= factors[..., number, None, None] * (vector[..., :, None] * shares)
    return q


def syevd(a: Array, lower: bool = True, vectors: bool = True) -> tuple[Array, Array, Array]:
    """Eigenvectors of Hermitian matrices (the matrices themselves if they are not wanted), eigenvalues, and `info`."""
    side = "L" if lower else "U"
    values_like = np.zeros(a.shape[:-1], np.real(a).dtype)
    if not vectors:
        (values,), info = _each(lambda x: np.linalg.eigvalsh(x, side), a, (values_like,))
        return a, values, info
    (values, found), info = _each(lambda x: tuple(np.linalg.eigh(x, side)), a, (values_like, a))
    return found, values, info


def gesdd(a: Array, mode: str = "A") -> tuple[Array, ...]:
    """The matrices, singular values, left and right vectors (`mode` A: all, S: as many as values), and `info`.

    Of mode N the vectors are NaN.
    """
    *stack, rows, columns = a.shape
    count = min(rows, columns)
    left = (rows, count) if mode == "S" else (rows, rows)
    right = (count, columns) if mode == "S" else (columns, columns)
    u, vt = (np.full((*stack, *shape), np.nan, a.dtype) for shape in (left, right))
    values = np.zeros((*stack, count), np.real(a).dtype)
    if mode == "N":
        (values,), info = _each(lambda x: np.linalg.svd(x, compute_uv=False), a, (values,))
        return a, values, u, vt, info
    (u, values, vt), info = _each(lambda x: tuple(np.linalg.svd(x, mode == "A")), a, (u, values, vt))
    return a, values, u, vt, info
