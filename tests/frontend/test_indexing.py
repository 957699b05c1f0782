"""Indexing: reading, writing, updating in place; the caller's arrays are written back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret

X = np.arange(60.0).reshape(3, 4, 5)
I = np.array([0, 2, -1, 1])  # noqa: E741
J = np.array([[1, 0], [-2, 2]])

READS: dict[str, Any] = {
    "int": lambda x, i, j: (x[1], x[-1], x[0, 1], x[0, 1, 2], x[-1, -1, -1]),
    "slice": lambda x, i, j: (x[1:], x[:-1], x[:, 1:3], x[..., ::2], x[5:], x[2:1]),
    "negative step": lambda x, i, j: (x[::-1], x[:, ::-2], x[..., 3:0:-1], x[:, -1:0:-3]),
    "newaxis": lambda x, i, j: (x[None], x[:, None, 1], x[..., None], x[1, None, :, None]),
    "ellipsis": lambda x, i, j: (x[...], x[..., 0], x[0, ...], x[0, ..., 1], x[0, 1, 2, ...]),
    "numpy integers": lambda x, i, j: (x[np.int64(1)], x[np.uint8(2), : np.int32(2)]),
    "known integers": lambda x, i, j: [x[k] for k in np.arange(2)] + [x[np.argmax(np.array([1, 3, 2]))]],
    "array": lambda x, i, j: (x[i], x[:, i], x[..., i]),
    "matrix of indices": lambda x, i, j: (x[j], x[:, j], x[..., j, None]),
    "two arrays": lambda x, i, j: (x[i, i], x[i[:, None], i[None]], x[:, i, i]),
    "arrays apart": lambda x, i, j: (x[i, :, i], x[i, None, i], x[j, :, 1], x[0, :, i]),
    "array and int": lambda x, i, j: (x[i, 1], x[1, i], x[:, 1, i], x[:, i, 1]),
    "array and slice": lambda x, i, j: (x[i, 1:3], x[1:, i], x[::-1, i, ::2], x[1:3, 1, i]),
    "list": lambda x, i, j: (x[[0, 2]], x[:, [3, 1, 1]], x[[0, 1], [1, 2]], x[[]]),
    "evenly spaced": lambda x, i, j: (x[np.arange(2)], x[:, np.arange(3, -1, -1)], x[..., [0, 2, 4]], x[[1]]),
    "known mask": lambda x, i, j: (x[:, np.array([True, False, True, True])], x[np.arange(3) != 1]),
    "range": lambda x, i, j: x[range(2)],
    "small dtype": lambda x, i, j: (x[i.astype(np.int8)], x[np.abs(i).astype(np.uint8)]),
    "traced int": lambda x, i, j: (x[i[0]], x[:, i[1]], x[i[2], :, i[1]], x[0, i[3]], x[i[0], 1:, ::-1]),
    "traced int and array": lambda x, i, j: (x[i[0], i], x[i, i[0]]),
    "window": lambda x, i, j: x[:, np.abs(i[0]) + np.arange(2)],
    "ix_": lambda x, i, j: x[np.ix_([0, 2], [1, 3])],
    "ix_ of a known mask": lambda x, i, j: x[np.ix_([True, False, True], [3])],
    "slice of static size": lambda x, i, j: x[: x.shape[1] // 2, : len(i) - 1],
    "chained": lambda x, i, j: x[1:][::-1][0][:, 1],
    "s_": lambda x, i, j: (x[np.s_[1:, 0]], x[np.index_exp[..., 1]]),
}


@pytest.mark.parametrize("form", READS)
def test_reads(form: str, agrees: Any) -> None:
    agrees(READS[form], X, I, J)


def _assign(x: Any, index: Any, value: Any) -> None:
    x[index] = value


WRITES: dict[str, Any] = {
    "int": lambda x, i, j: _assign(x, 1, 5.0),
    "element": lambda x, i, j: _assign(x, (0, -1, 2), x[1, 1, 1]),
    "row from row": lambda x, i, j: _assign(x, 0, x[1]),
    "interior": lambda x, i, j: _assign(x, (slice(1, -1), slice(1, -1)), -x[1:-1, 1:-1]),
    "strided": lambda x, i, j: _assign(x, (slice(None), slice(None, None, 2), slice(1, None, 3)), 1.0),
    "reversed": lambda x, i, j: _assign(x, slice(None, None, -1), x.copy()),
    "reversed stride": lambda x, i, j: _assign(x, (Ellipsis, slice(4, 0, -2)), x[..., :2]),
    "overlapping": lambda x, i, j: _assign(x, slice(1, None), x[:-1]),
    "broadcast": lambda x, i, j: _assign(x, slice(1, None), np.arange(5.0)),
    "broadcast leading ones": lambda x, i, j: _assign(x[0], slice(None), np.ones((1, 1, 5))),
    "newaxis": lambda x, i, j: _assign(x, (slice(None), None, 0), x[:, None, 1]),
    "everything": lambda x, i, j: _assign(x, Ellipsis, 7),
    "empty": lambda x, i, j: _assign(x, slice(2, 1), 3.0),
    "array": lambda x, i, j: _assign(x, i, 1.5),
    "array last wins": lambda x, i, j: _assign(
        x, (slice(None), [1, 1, 1]), np.arange(15.0).reshape(3, 1, 5)[..., :3, :]
    ),
    "arrays": lambda x, i, j: _assign(x, (i, i), x[i, 0]),
    "arrays apart": lambda x, i, j: _assign(x, (i, slice(None), i), np.arange(4.0)),
    "matrix of indices": lambda x, i, j: _assign(x, (slice(None), j), np.arange(5.0)),
    "known mask": lambda x, i, j: _assign(x, np.arange(3) > 0, 9.0),
    "traced int": lambda x, i, j: _assign(x, (slice(None), i[1]), 4.0),
    "traced int element": lambda x, i, j: _assign(x, (i[0], i[1], 1), 4.0),
    "mask": lambda x, i, j: _assign(x, x > 30, 0.0),
    "mask of rows": lambda x, i, j: _assign(x, x[:, 0, 0] > 10, np.arange(5.0)),
    "mask and traced scalar": lambda x, i, j: _assign(x, x % 2 == 0, x.max()),
    "mask same elements": lambda x, i, j: _assign(x, x > 30, np.sqrt(x[x > 30]) * 2 + 1),
    "mask of another array": lambda x, i, j: _assign(x[0], x[1] > 25, x[2][x[1] > 25]),
    "int from array of int": lambda x, i, j: _assign(i, 0, 3.7),
}


@pytest.mark.parametrize("form", WRITES)
def test_writes_reach_the_argument(form: str, agrees: Any) -> None:
    traced = agrees(WRITES[form], X, I, J)
    assert len(traced.writebacks) == 1 or form == "empty"


def test_augmented_assignments(agrees: Any) -> None:
    def f(x: Any, i: Any) -> Any:
        x[1:-1] += x[:-2] + x[2:]
        x[0] *= 2
        x[:, 1] -= x[:, 2]
        x[:, i] /= 2
        x[x > 20] += 1
        x[..., 0] **= 2
        x[1, 2, 3] = x[1, 2, 3] + 1
        x //= 3
        y = x[2]
        y %= 5
        return y.sum()

    agrees(f, X, I)


def test_augmented_assignment_of_a_slice_emits_one_update() -> None:
    def f(x: Any) -> Any:
        x[1:-1] += 1.0

    ops = [node.op for node in trace(f, spec("f32[10]")).graph.nodes]
    assert ops.count("dynamic_update_slice") == 1
    assert ops.count("slice") == 1


def test_scalars_are_not_written_in_place(agrees: Any) -> None:
    def f(x: Any) -> Any:
        total = x.sum()
        first = total
        total += 1
        element = x[0, 0, 0]
        element *= 2
        array = np.array(1.0)
        same = array
        same += x[0, 0, 1]
        return total, first, element, array

    agrees(f, X)


def test_augmented_assignment_of_an_argument_writes_it(agrees: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        x += y
        y = y + 1
        return x * y

    traced = agrees(f, np.arange(3.0), np.ones(3))
    assert traced.writebacks == ((0, 1),)


def test_an_argument_that_is_returned_and_written(agrees: Any) -> None:
    def f(x: Any) -> Any:
        x[0] = 9
        return x, x[:2], x.T

    agrees(f, X)


def test_integer_array_plus_float_is_an_error_as_in_numpy() -> None:
    def f(i: Any) -> Any:
        i += 0.5

    with pytest.raises(TraceError, match="casting"):
        trace(f, I)


def test_masked_selections_reduce(agrees: Any) -> None:
    def f(x: Any) -> Any:
        mask = x > 20
        return x[mask].sum(), np.mean(x[mask]), (x[mask] * 2).max(), x[mask].min(), x[x[:, 0, 0] > 10].sum(axis=0)

    agrees(f, X, ulps=8, scale=8.0)


def test_masked_selections_have_moments_products_and_counts(agrees: Any) -> None:
    def f(x: Any) -> Any:
        row, other, whole = x[0, 0], x[1, 0], x[0]
        some, rows = row[row > 0.5], whole[whole[:, 0] > 0]
        spread = some.std(ddof=1), np.var(some), rows.std(axis=0), np.count_nonzero(some > 1)
        products = some @ other[row > 0.5], np.dot(some, some) * 2, (row > 1)[row > 0.5] @ (row > 2)[row > 0.5]
        counts = some.sum() / some.size, rows.sum(dtype=np.float32) / np.size(rows), np.float32(3) * len(some)
        return spread, products, counts

    agrees(f, X, ulps=8, scale=8.0, roll=True)


def test_products_of_integers_under_a_mask_keep_their_dtype() -> None:
    def f(i: Any) -> Any:
        return i[i > 0] @ i[i > 0]

    i = np.array([3, -2, 5], np.int16)
    (got,) = interpret(trace(f, i).graph, i)
    assert (got, got.dtype) == (34, np.int16)


ERRORS: dict[str, Any] = {
    "index 5 is out of bounds for axis 0 with size 3": lambda x, i: x[5],
    "too many indices": lambda x, i: x[0, 0, 0, 0],
    "single ellipsis": lambda x, i: x[..., ...],
    "index 9 is out of bounds for axis 1": lambda x, i: x[:, [9, 1]],
    "an index is made of": lambda x, i: x[1.5],
    "boolean index has shape": lambda x, i: x[i > 0],
    "data-dependent shape; returning it": lambda x, i: x[x > 0],
    "data-dependent shape; combining it": lambda x, i: x[x > 0] + np.arange(3.0),
    "selected by another mask": lambda x, i: _assign(x, x > 0, x[x < 0]),
    "data-dependent shape; indexing it": lambda x, i: x[x > 0][0],
    "product with anything but a vector selected": lambda x, i: x[x > 0] @ 2.0,
    "np.mean of it with keepdims": lambda x, i: x[x > 0].mean(keepdims=True),
    r"data-dependent shape; its len\(\)": lambda x, i: len(x[x > 0]),
    "depend on data|depends on the mask": lambda x, i: _assign(x, x > 0, np.arange(9.0)),
    "slice bound is a traced value": lambda x, i: x[: i[0]],
    "could not broadcast": lambda x, i: _assign(x, 0, np.ones(3)),
    "combined with other indices": lambda x, i: x[x[:, 0, 0] > 0, 0],
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_name_the_line(message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        trace(ERRORS[message], X, I)
    assert "test_indexing.py:" in str(caught.value)
