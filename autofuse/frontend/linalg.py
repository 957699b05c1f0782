"""Products of matrices and tensors, and norms."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.axes import many_axes, one_axis
from autofuse.frontend.complexrules import squares
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer, broadcast, convert, result_dtype, transpose
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufuncs import GENERALIZED, finish, out_arrays, resolve
from autofuse.ir.graph import Value


def contract(
    a: Value,
    b: Value,
    contracting: tuple[Sequence[int], Sequence[int]],
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:
    """`dot_general` of operands of one dtype; bool counts in i32, then any. Raises ValueError for unequal extents."""
    for d, e in zip((*contracting[0], *batching[0]), (*contracting[1], *batching[1]), strict=True):
        if a.type.shape[d] != b.type.shape[e]:
            raise ValueError(
                f"shapes {a.type.shape} and {b.type.shape} not aligned:"
                f" {a.type.shape[d]} (dim {d}) != {b.type.shape[e]} (dim {e})"
            )
    if a.type.dtype.kind == "bool":
        counted = contract(convert(a, np.dtype(np.int32)), convert(b, np.dtype(np.int32)), contracting, batching)
        return convert(counted, np.dtype(np.bool_))
    if len(contracting[0]) + len(batching[0]) == a.type.rank == b.type.rank and a.type.dtype.numpy.itemsize > 2:
        return _summed_products(a, b, contracting, batching)
    return current().emit(
        "dot_general",
        (a, b),
        lhs_batching_dimensions=tuple(batching[0]),
        rhs_batching_dimensions=tuple(batching[1]),
        lhs_contracting_dimensions=tuple(contracting[0]),
        rhs_contracting_dimensions=tuple(contracting[1]),
    )


def _summed_products(
    a: Value,
    b: Value,
    contracting: tuple[Sequence[int], Sequence[int]],
    batching: tuple[Sequence[int], Sequence[int]],
) -> Value:
    """A dot whose operands have no dimension of their own: one pass over both, which a sum does faster than a product.

    Not of 16-bit floats, whose products a dot does not round.
    """
    partner = dict(zip((*contracting[0], *batching[0]), (*contracting[1], *batching[1]), strict=True))
    aligned = transpose(b, tuple(partner[d] for d in range(a.type.rank)))
    products = current().emit("multiply", (a, aligned))
    sums = products
    if contracting[0]:
        sums = current().emit("reduce", (products,), dimensions=tuple(sorted(contracting[0])), combiner="add")
    left = sorted(batching[0])
    return transpose(sums, tuple(left.index(d) for d in batching[0]))


def _converted(a: Any, b: Any) -> tuple[Value, Value]:
    dtype = result_dtype(as_tracer(a), as_tracer(b))
    return convert(as_tracer(a).value, dtype), convert(as_tracer(b).value, dtype)


def _matmul_values(a: Value, b: Value) -> Value:
    if not a.type.rank or not b.type.rank:
        raise ValueError("matmul: Input operand does not have enough dimensions (a scalar was given; use *)")
    over_a, over_b = a.type.rank - 1, max(b.type.rank - 2, 0)
    if b.type.rank <= 2 or a.type.rank == 1:
        return contract(a, b, ((over_a,), (over_b,)))
    batch = np.broadcast_shapes(a.type.shape[:-2], b.type.shape[:-2])
    a = broadcast(a, batch + a.type.shape[-2:])
    b = broadcast(b, batch + b.type.shape[-2:])
    leading = tuple(range(len(batch)))
    return contract(a, b, ((a.type.rank - 1,), (b.type.rank - 2,)), (leading, leading))


def matmul(
    ufunc: np.ufunc,
    a: Any,
    b: Any,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
    **options: Any,
) -> Any:
    """`a @ b`."""
    if options.keys() - {"order", "subok"}:
        raise TypeError(f"np.matmul with {', '.join(options)} cannot be traced")
    left, right, target = as_tracer(a), as_tracer(b), out_arrays(out, 1)[0]
    loop = resolve(ufunc, (left, right), [None if target is None else target.dtype], dtype, casting)
    value = _matmul_values(convert(left.value, loop[0]), convert(right.value, loop[1]))
    return finish(convert(value, loop[2]), target, True, "np.matmul(out=)")


GENERALIZED["matmul"] = matmul


def _vecdot(ufunc: np.ufunc, a: Any, b: Any, out: Any = None, axis: Any = -1) -> Any:
    del ufunc
    left, right = call(np.moveaxis, as_tracer(a), axis, -1), call(np.moveaxis, as_tracer(b), axis, -1)
    first, second = _converted(left.conj(), right)
    batch = np.broadcast_shapes(first.type.shape[:-1], second.type.shape[:-1])
    first, second = broadcast(first, batch + first.type.shape[-1:]), broadcast(second, batch + second.type.shape[-1:])
    leading = tuple(range(len(batch)))
    value = contract(first, second, ((len(batch),), (len(batch),)), (leading, leading))
    return finish(value, out_arrays(out, 1)[0], True, "np.vecdot(out=)")


def _matvec(ufunc: np.ufunc, a: Any, x: Any, out: Any = None) -> Any:
    del ufunc
    return (
        call(np.squeeze, np.matmul(a, as_tracer(x)[..., None]), -1)
        if out is None
        else _into(out, a @ as_tracer(x)[..., None])
    )


def _into(out: Any, column: Any) -> Any:
    return finish(call(np.squeeze, column, -1).value, out_arrays(out, 1)[0], True, "np.matvec(out=)")


def _vecmat(ufunc: np.ufunc, x: Any, a: Any) -> Any:
    del ufunc
    return call(np.squeeze, np.matmul(as_tracer(x)[..., None, :].conj(), a), -2)


GENERALIZED["vecdot"] = _vecdot
GENERALIZED["matvec"] = _matvec
GENERALIZED["vecmat"] = _vecmat


@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """As `np.dot`."""
    target: Any = out_arrays(out, 1)[0]
    first, second = _converted(a, b)
    if not first.type.rank or not second.type.rank:
        return np.multiply(fresh(first), fresh(second), out=target)
    value = contract(first, second, ((first.type.rank - 1,), (max(second.type.rank - 2, 0),)))
    return finish(value, target, True, "np.dot(out=)")


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    """As `np.inner`."""
    first, second = _converted(a, b)
    if not first.type.rank or not second.type.rank:
        return np.multiply(fresh(first), fresh(second))
    return fresh(contract(first, second, ((first.type.rank - 1,), (second.type.rank - 1,))))


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    """As `np.vdot`."""
    return dot(call(np.ravel, as_tracer(a)).conj(), call(np.ravel, as_tracer(b)))


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """As `np.outer`."""
    return np.multiply(call(np.ravel, as_tracer(a))[:, None], call(np.ravel, as_tracer(b))[None, :], out=out)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    """As `np.kron`."""
    left, right = as_tracer(a), as_tracer(b)
    rank = max(left.ndim, right.ndim)
    ones = (1,) * rank
    first, second = (ones + left.shape)[-rank:], (ones + right.shape)[-rank:]
    spread = left.reshape(tuple(e for extent in first for e in (extent, 1)))
    other = right.reshape(tuple(e for extent in second for e in (1, extent)))
    return (spread * other).reshape(tuple(map(operator.mul, first, second)))[()]


@implements(np.cross, np.linalg.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    """As `np.cross`."""
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = call(np.moveaxis, as_tracer(a), axisa, -1), call(np.moveaxis, as_tracer(b), axisb, -1)
    if left.shape[-1] != 3 or right.shape[-1] != 3:
        raise ValueError("np.cross is traced for vectors of 3 elements only")
    (x, y, z), (u, v, w) = ([side[..., i] for i in range(3)] for side in (left, right))
    product = call(np.stack, [y * w - z * v, z * u - x * w, x * v - y * u], -1)
    return call(np.moveaxis, product, -1, axisc)


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """As `np.tensordot`."""
    first, second = _converted(a, b)
    if isinstance(axes, tuple | list):
        pair = cast("Sequence[Any]", axes)
        over_a = _axis_list(pair[0], first.type.rank)
        over_b = _axis_list(pair[1], second.type.rank)
    else:
        over_a = tuple(range(first.type.rank - int(axes), first.type.rank))
        over_b = tuple(range(int(axes)))
    if len(over_a) != len(over_b):
        raise ValueError("shape-mismatch for sum: unequal numbers of axes")
    return fresh(contract(first, second, (over_a, over_b)), is_scalar=False)


def _axis_list(axes: Any, rank: int) -> tuple[int, ...]:
    given: Sequence[Any] = cast("Sequence[Any]", axes) if isinstance(axes, tuple | list) else (axes,)
    return tuple(one_axis(axis, rank) for axis in given)


@implements(np.linalg.vecdot)
def linalg_vecdot(x1: Any, x2: Any, /, *, axis: Any = -1) -> Any:
    """As `np.linalg.vecdot`."""
    return _vecdot(np.vecdot, x1, x2, axis=axis)


@implements(np.linalg.matmul)
def linalg_matmul(a: Any, b: Any) -> Any:
    """As `np.linalg.matmul`."""
    return np.matmul(a, b)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """As `np.linalg.multi_dot`: in the order that takes the fewest multiplications."""
    factors = [as_tracer(array) for array in arrays]
    if len(factors) < 2:
        raise ValueError("Expecting at least two arrays.")
    if any(array.ndim != 2 for array in factors[1:-1]) or any(array.ndim not in (1, 2) for array in factors):
        raise np.linalg.LinAlgError("Array must be two-dimensional; the first and the last may be one-dimensional")
    rows = [1 if factors[0].ndim == 1 else factors[0].shape[0], *(array.shape[0] for array in factors[1:])]
    splits = _cheapest_splits([*rows, 1 if factors[-1].ndim == 1 else factors[-1].shape[1]])

    def product(first: int, last: int, **kwargs: Any) -> Any:
        if first == last:
            return factors[first]
        middle = splits[first, last]
        return call(np.dot, product(first, middle), product(middle + 1, last), **kwargs)

    return product(0, len(factors) - 1, out=out)


def _cheapest_splits(extents: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where each run of matrices is cut in two, by (first, last); matrix i is `extents[i]` by `extents[i + 1]`.

    Cormen et al., Introduction to Algorithms, matrix-chain multiplication; the first of equal cuts, as NumPy does.
    """
    cost = {(i, i): 0 for i in range(len(extents) - 1)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, len(extents) - 1):
        for i in range(len(extents) - 1 - length):
            j = i + length
            whole = {k: cost[i, k] + cost[k + 1, j] + extents[i] * extents[k + 1] * extents[j + 1] for k in range(i, j)}
            splits[i, j] = min(whole, key=lambda k: whole[k])
            cost[i, j] = whole[splits[i, j]]
    return splits


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """As `np.linalg.matrix_power`."""
    if n < 1:
        raise ValueError("np.linalg.matrix_power is traced for exponents of 1 and more")
    result, square = None, as_tracer(a)
    while True:
        if n & 1:
            result = square if result is None else np.matmul(result, square)
        n >>= 1
        if not n:
            return result
        square = cast("TracerArray", np.matmul(square, square))


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Any:
    """As `np.matrix_transpose`."""
    array = as_tracer(x)
    if array.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {array.ndim}")
    return call(np.swapaxes, array, -1, -2)


# norms


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002 - NumPy's name
    """As `np.linalg.norm`."""
    array = as_tracer(x)
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if axis is None and ord is None:
        flat = np.sqrt(call(np.sum, squares(array)))
        return flat.reshape((1,) * array.ndim) if keepdims else flat
    axes = tuple(range(array.ndim)) if axis is None else _axis_list(axis, array.ndim)
    if len(axes) == 1:
        return _vector_norm(array, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(array, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _vector_norm(x: TracerArray, order: Any, axis: int, keepdims: bool) -> Any:
    magnitude = np.absolute(x)
    if order == math.inf:
        return call(np.max, magnitude, axis, keepdims=keepdims)
    if order == -math.inf:
        return call(np.min, magnitude, axis, keepdims=keepdims)
    if order == 0:
        return call(np.sum, np.not_equal(x, 0).astype(x.real.dtype), axis, keepdims=keepdims)
    if order == 1:
        return call(np.sum, magnitude, axis, keepdims=keepdims)
    if order is None or order == 2:
        return np.sqrt(call(np.sum, squares(x), axis, keepdims=keepdims))
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    return np.power(call(np.sum, np.power(magnitude, order), axis, keepdims=keepdims), 1 / order)


def _matrix_norm(x: TracerArray, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    if order in (None, "fro", "f"):
        return np.sqrt(call(np.sum, squares(x), many_axes(axes, x.ndim), keepdims=keepdims))
    if order not in (1, -1, math.inf, -math.inf):
        raise ValueError(
            f"np.linalg.norm of matrices is traced for ord None, 'fro', 1, -1, inf, -inf; got {order!r:.80}"
        )
    summed, other = axes if abs(order) == 1 else axes[::-1]
    sums = call(np.sum, np.absolute(x), summed, keepdims=True)
    extreme = call(np.max if order > 0 else np.min, sums, other, keepdims=True)
    return extreme if keepdims else fresh(call(np.squeeze, extreme, axes).value)


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:  # noqa: A002 - NumPy's name
    """As `np.linalg.vector_norm`."""
    array = as_tracer(x)
    if axis is not None and not isinstance(axis, tuple):
        return norm(array, ord, axis, keepdims)
    axes = many_axes(axis, array.ndim)
    rest = [d for d in range(array.ndim) if d not in axes]
    kept_shape = tuple(1 if d in axes else extent for d, extent in enumerate(array.shape))
    flat = array.transpose((*rest, *axes)).reshape((*(array.shape[d] for d in rest), -1))
    result = norm(flat, ord, -1)
    return result.reshape(kept_shape) if keepdims else result


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:  # noqa: A002 - NumPy's name
    """As `np.linalg.matrix_norm`."""
    return _matrix_norm(as_tracer(x), ord, (as_tracer(x).ndim - 2, as_tracer(x).ndim - 1), keepdims)
