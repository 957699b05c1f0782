"""Factorisations and solutions of dense systems with LAPACK's results, by SciPy's LAPACK.

They are what StableHLO's `cholesky` and `triangular_solve` and JAX's `lapack_*` calls ask for. All take stacks of
matrices, of floats or complex numbers, and none raises for a matrix that has no result: `info` is then not 0, as LAPACK
has it, or elements are NaN or infinite. Plans for CPUs call the same routines by address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_Wanted = tuple[tuple[int, ...], Any]
"""Shape and dtype of a result, of one matrix."""
_TRANS = {"n": 0, "t": 1, "c": 2}


def routine(name: str, dtype: Any, library: str = "lapack") -> Callable[..., Any]:
    """LAPACK's or BLAS's function for a dtype."""
    from scipy.linalg import blas, lapack  # takes longer to load than most plans take to run

    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[np.dtype(dtype).char]
    return getattr(lapack if library == "lapack" else blas, letter + name)


def _each(
    function: Callable[..., tuple[Any, ...]], operands: Sequence[Array], results: Sequence[_Wanted]
) -> tuple[Array, ...]:
    """A function of what stands at each place of a stack of matrices, its results stacked; zeros of empty ones."""
    stack = operands[0].shape[:-2]
    made = tuple(np.zeros((*stack, *shape), dtype) for shape, dtype in results)
    for place in np.ndindex(*stack):
        if operands[0][place].size:
            for target, one in zip(made, function(*(operand[place] for operand in operands)), strict=True):
                target[place] = one
    return made


def cholesky(a: Array, lower: bool = True) -> Array:
    """The factor of positive definite matrices, NaN for others; zeros in the other triangle. One triangle is read."""
    factor, info = potrf(a, lower)
    own = np.tril(factor) if lower else np.triu(factor)
    return np.where(info[..., None, None] == 0, own, np.nan).astype(a.dtype)


def potrf(a: Array, lower: bool = True) -> tuple[Array, ...]:
    """The factor in its triangle, the other one as it was; and `info`, where the factor is whole if that is 0."""
    run = routine("potrf", a.dtype)
    return _each(lambda x: run(x, lower=lower, clean=0), [a], [(a.shape[-2:], a.dtype), ((), np.int32)])


def trsm(a: Array, b: Array, left: bool = True, lower: bool = True, trans: str = "n", unit: bool = False) -> Array:
    """X of `op(a) X = b`, or of `X op(a) = b`: one triangle of `a` counts; `trans`: n, t, or c as op conjugates too."""
    run, way = routine("trsm", a.dtype, "blas"), _TRANS[trans]

    def one(right: Array, triangle: Array) -> tuple[Array]:
        return (run(1, triangle, right, side=not left, lower=lower, trans_a=way, diag=unit),)

    return _each(one, [b, a], [(b.shape[-2:], b.dtype)])[0]


def getrf(a: Array) -> tuple[Array, ...]:
    """L (without its ones) and U in one array, with partial pivoting; rows swapped with, counted from 1; and `info`."""
    run = routine("getrf", a.dtype)

    def one(matrix: Array) -> tuple[Any, ...]:
        lu, pivots, info = run(matrix)
        return lu, pivots + 1, info

    return _each(one, [a], [(a.shape[-2:], a.dtype), ((min(a.shape[-2:]),), np.int32), ((), np.int32)])


def geqrf(a: Array) -> tuple[Array, ...]:
    """R and the vectors of the reflections in one array, and the reflections' factors."""
    run = routine("geqrf", a.dtype)
    return _each(lambda matrix: run(matrix)[:2], [a], [(a.shape[-2:], a.dtype), ((min(a.shape[-2:]),), a.dtype)])


def orgqr(a: Array, factors: Array) -> Array:
    """The first columns of the product of the reflections that `geqrf` gives, as many as `a` has."""
    if not factors.shape[-1]:
        return np.broadcast_to(np.eye(*a.shape[-2:], dtype=a.dtype), a.shape)
    run = routine("ungqr" if a.dtype.kind == "c" else "orgqr", a.dtype)
    return _each(lambda matrix, by: run(matrix, by)[:1], [a, factors], [(a.shape[-2:], a.dtype)])[0]


def syevd(a: Array, lower: bool = True, vectors: bool = True) -> tuple[Array, ...]:
    """Eigenvectors of Hermitian matrices (the matrices themselves if they are not wanted), eigenvalues, and `info`."""
    run = routine("heevd" if a.dtype.kind == "c" else "syevd", a.dtype)

    def one(matrix: Array) -> tuple[Any, ...]:
        values, found, info = run(matrix, compute_v=vectors, lower=lower)
        return found if vectors else matrix, values, info

    return _each(one, [a], [(a.shape[-2:], a.dtype), (a.shape[-1:], np.real(a).dtype), ((), np.int32)])


def gesdd(a: Array, mode: str = "A") -> tuple[Array, ...]:
    """The matrices, singular values, left and right vectors (`mode` A: all, S: as many as values), and `info`.

    Of mode N the vectors are NaN.
    """
    rows, columns = a.shape[-2:]
    count = min(rows, columns)
    left = (rows, count) if mode == "S" else (rows, rows)
    right = (count, columns) if mode == "S" else (columns, columns)
    run = routine("gesdd", a.dtype)

    def one(matrix: Array) -> tuple[Any, ...]:
        u, values, vt, info = run(matrix, compute_uv=mode != "N", full_matrices=mode == "A")
        return matrix, values, *((np.nan, np.nan) if mode == "N" else (u, vt)), info

    shapes = [(a.shape[-2:], a.dtype), ((count,), np.real(a).dtype), (left, a.dtype), (right, a.dtype)]
    return _each(one, [a], [*shapes, ((), np.int32)])
