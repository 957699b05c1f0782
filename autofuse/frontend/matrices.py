"""Functions that make matrices: identities, diagonals, triangles and powers. Masks are emitted as `iota`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from autofuse.frontend.creation import in_order, iota
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer, broadcast, convert
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import supported
from autofuse.frontend.tracer import fresh


@implements(np.eye, creates=True)
def eye(
    N: Any,  # noqa: N803 - NumPy's name
    M: Any = None,  # noqa: N803 - NumPy's name
    k: int = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    """As `np.eye`."""
    del device, like
    shape = (operator.index(N), operator.index(N if M is None else M))
    on_diagonal = _diagonal_mask(shape, operator.index(k), "EQ")
    return in_order(fresh(convert(on_diagonal.value, supported(dtype))), order)


@implements(np.identity, creates=True)
def identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `np.identity`."""
    del like
    return eye(n, dtype=dtype or float)


def _diagonal_mask(shape: tuple[int, ...], k: int, direction: str) -> Term:
    """Where `column <direction> row + k`, over the last two dimensions of `shape`."""
    rows, columns = Term(iota(shape[-2:], 0)), Term(iota(shape[-2:], 1))
    mask = columns.op("compare", rows + k if k else rows, direction=direction)
    return Term(broadcast(mask.value, shape))


def _triangle(direction: str) -> Any:
    def triangle(m: Any, k: int = 0) -> Any:
        matrix = as_tracer(m)
        if matrix.ndim == 1:
            matrix = call(np.broadcast_to, matrix, (matrix.size, matrix.size))
        inside = _diagonal_mask(matrix.shape, operator.index(k), direction)
        return fresh(inside.select(Term(matrix.value), 0).value)

    return triangle


implements(np.tril)(_triangle("LE"))
implements(np.triu)(_triangle("GE"))


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    """As `np.diag`."""
    vector = as_tracer(v)
    if vector.ndim == 2:
        return call(np.diagonal, vector, k)
    if vector.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    size = vector.size + abs(k)
    row, column = max(-k, 0), max(k, 0)
    spread = call(np.pad, vector, (row, size - vector.size - row))
    rows = call(np.broadcast_to, spread[:, None], (size, size))
    on_diagonal = _diagonal_mask((size, size), column - row, "EQ")
    return fresh(on_diagonal.select(Term(rows.value), 0).value)


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    """As `np.diagflat`."""
    return diag(call(np.ravel, as_tracer(v)), k)


@implements(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803 - NumPy's name
    """As `np.vander`."""
    vector = as_tracer(x)
    count = vector.size if N is None else operator.index(N)
    dtype = np.promote_types(vector.dtype, int)
    columns = [np.ones(vector.shape, dtype), *([vector.astype(dtype)] * (count - 1))][:count]
    powers = np.multiply.accumulate(call(np.stack, [as_tracer(c) for c in columns], 1), axis=1)
    return powers if increasing else powers[:, ::-1]
