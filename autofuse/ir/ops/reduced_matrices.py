"""Matrices brought to simpler forms, with LAPACK's results: what NumPy has not, and SciPy's wrappers give.

They are what JAX's calls of `geev`, `gees`, `gehrd`, `sytrd`, `geqp3` and `gtsv` ask for. All take stacks of matrices,
and go through them one by one. Matrices with NaN or infinities are not given to LAPACK, some of whose iterations would
not end: `info` is 1, the results NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.ops.lapack import routine

Array = NDArray[Any]
_Wanted = tuple[tuple[int, ...], Any]
"""Shape and dtype of a result, of one matrix."""


def _each(
    function: Callable[..., tuple[Any, ...]], operands: Sequence[tuple[Array, int]], results: Sequence[_Wanted]
) -> tuple[Array, ...]:
    """A function of each item of a stack, its results stacked; the last is `info`. Operands come with their rank."""
    first, rank = operands[0]
    stack = first.shape[: first.ndim - rank]
    made = [np.full((*stack, *shape), np.nan if np.dtype(dtype).kind in "fc" else 0, dtype) for shape, dtype in results]
    info = np.zeros(stack, np.int32)
    for place in np.ndindex(*stack):
        given = [operand[place] for operand, _ in operands]
        if not given[0].size:
            continue
        if not all(np.isfinite(one).all() for one in given):
            info[place] = 1
            continue
        *found, failed = function(*given)
        info[place] = failed
        for target, one in zip(made, found, strict=True):
            target[place] = one
    return *made, info


def geev(a: Array, left: bool = True, right: bool = True) -> tuple[Array, ...]:
    """Eigenvalues (of real matrices as real and imaginary parts), left and right eigenvectors, and `info`.

    Vectors are complex; those that are not wanted are NaN.
    """
    n, wide, run = a.shape[-1], np.result_type(a.dtype, np.complex64), routine("geev", a.dtype)
    is_real = a.dtype.kind == "f"

    def one(matrix: Array) -> tuple[Any, ...]:
        *values, vl, vr, info = run(matrix, compute_vl=left, compute_vr=right)
        turn = _paired if is_real else lambda vectors, _: vectors
        pairs = ((vl, left), (vr, right))
        vectors = [turn(v, values[-1]) if wanted else np.full((n, n), np.nan, wide) for v, wanted in pairs]
        return (*values, *vectors, info)

    return _each(one, [(a, 2)], [((n,), a.dtype)] * (1 + is_real) + [((n, n), wide)] * 2)


def _paired(vectors: Array, imaginary: Array) -> Array:
    """Complex vectors of LAPACK's: of a pair of conjugate eigenvalues the real part, then the imaginary one."""
    made = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    for first in np.flatnonzero(imaginary > 0):
        made[:, first] = vectors[:, first] + 1j * vectors[:, first + 1]
        made[:, first + 1] = made[:, first].conj()
    return made


def gees(a: Array, vectors: bool = True) -> tuple[Array, ...]:
    """The Schur form, its vectors, eigenvalues (of real matrices in two parts), how many were chosen, and `info`."""
    n, run = a.shape[-1], routine("gees", a.dtype)

    def none(*_: Any) -> bool:
        return False

    def one(matrix: Array) -> tuple[Any, ...]:
        form, chosen, *values, found, _, info = run(none, matrix, compute_v=vectors)
        return form, found if vectors else np.full((n, n), np.nan, a.dtype), *values, chosen, info

    values = [((n,), a.dtype)] * (1 + (a.dtype.kind == "f"))
    return _each(one, [(a, 2)], [((n, n), a.dtype), ((n, n), a.dtype), *values, ((), np.int32)])


def gehrd(a: Array) -> tuple[Array, ...]:
    """The Hessenberg form and the vectors of the reflections in one array, the reflections' factors, and `info`."""
    n = a.shape[-1]
    return _each(routine("gehrd", a.dtype), [(a, 2)], [((n, n), a.dtype), ((max(n - 1, 0),), a.dtype)])


def sytrd(a: Array, lower: bool = True) -> tuple[Array, ...]:
    """A Hermitian matrix as a tridiagonal one: packed with the reflections, diagonal, the next one, factors, `info`."""
    n, real = a.shape[-1], np.real(a[..., :0]).dtype
    run = routine("sytrd" if a.dtype.kind == "f" else "hetrd", a.dtype)
    count = max(n - 1, 0)
    results = [((n, n), a.dtype), ((n,), real), ((count,), real), ((count,), a.dtype)]
    return _each(lambda matrix: run(matrix, lower=lower), [(a, 2)], results)


def geqp3(a: Array, pivots: Array) -> tuple[Array, ...]:
    """R and the reflections of a matrix whose columns are taken the largest first, the columns' numbers, and factors.

    Columns whose `pivots` are not 0 come first, as they are.
    """
    *_, rows, columns = a.shape
    run = routine("geqp3", a.dtype)

    def one(matrix: Array, chosen: Array) -> tuple[Any, ...]:
        fixed, free = np.flatnonzero(chosen), np.flatnonzero(chosen == 0)
        order = np.concatenate([fixed, free])
        if not fixed.size:
            packed, numbers, factors, _, info = run(matrix)
            return packed, numbers, factors, info
        return _with_fixed(matrix, order, min(len(fixed), rows), run)

    results = [((rows, columns), a.dtype), ((columns,), np.int32), ((min(rows, columns),), a.dtype)]
    packed, numbers, factors, _ = _each(one, [(a, 2), (pivots, 1)], results)
    return (
        packed,
        numbers if a.size else np.broadcast_to(np.arange(1, columns + 1, dtype=np.int32), numbers.shape),
        factors,
    )


def _with_fixed(matrix: Array, order: Array, count: int, run: Callable[..., Any]) -> tuple[Any, ...]:
    """The first columns of `order` without pivoting, then what they leave of the others with it."""
    first, others = np.asarray(matrix[:, order[:count]]), np.asarray(matrix[:, order[count:]])
    packed, factors, _, _ = routine("geqrf", matrix.dtype)(first)
    others = ormqr(packed, factors, others, left=True, transpose=True)
    if others[count:].size:
        below, numbers, more, _, info = run(others[count:])
        places = numbers - 1
        others = np.concatenate([others[:count, places], below])
        order = np.concatenate([order[:count], order[count:][places]])
        return np.concatenate([packed, others], 1), order + 1, np.concatenate([factors, more]), info
    return np.concatenate([packed, others], 1), order + 1, factors, 0


def ormqr(a: Array, factors: Array, c: Array, left: bool = True, transpose: bool = False) -> Array:
    """`Q c`, or `c Q`, of the product Q of the reflections in `a`; or with its conjugate transpose."""
    if not left:
        turned = ormqr(a, factors, np.conj(np.swapaxes(c, -1, -2)), True, not transpose)
        return np.conj(np.swapaxes(turned, -1, -2))
    made = np.array(c, order="C")
    numbers = range(factors.shape[-1])
    for number in numbers if transpose else reversed(numbers):
        vector = np.array(a[..., number:, number])
        vector[..., 0] = 1
        factor = np.conj(factors[..., number]) if transpose else factors[..., number]
        shares = np.conj(vector)[..., None, :] @ made[..., number:, :]
        made[..., number:, :] -= factor[..., None, None] * (vector[..., :, None] * shares)
    return made


def gtsv(lower: Array, diagonal: Array, upper: Array, b: Array) -> tuple[Array, ...]:
    """Solutions of tridiagonal systems by elimination with pivoting, the diagonals as they were before them; `info`.

    The first element of `lower` and the last one of `upper` are not read.
    """
    run = routine("gtsv", b.dtype)

    def one(dl: Array, d: Array, du: Array, right: Array) -> tuple[Any, ...]:
        *_, x, info = run(dl[1:], d, du[:-1], right)
        return x, info

    solved, info = _each(one, [(lower, 1), (diagonal, 1), (upper, 1), (b, 2)], [(b.shape[-2:], b.dtype)])
    return lower, diagonal, upper, solved, info
