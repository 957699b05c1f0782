"""Shape, order, joining and padding; views keep aliasing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace

X = np.arange(24.0).reshape(2, 3, 4)
M = np.arange(12.0).reshape(3, 4)
V = np.arange(5.0)

CALLS: dict[str, Any] = {
    "reshape": lambda x, m, v: (x.reshape(6, 4), x.reshape((4, -1)), np.reshape(x, (2, 12)), x.reshape(-1)),
    "reshape F": lambda x, m, v: (x.reshape(6, 4, order="F"), np.ravel(m, order="F")),
    "reshape of a transpose copies": lambda x, m, v: m.T.reshape(-1),
    "ravel flatten": lambda x, m, v: (x.ravel(), x.flatten(), np.ravel(m.T)),
    "T": lambda x, m, v: (x.T, m.T, v.T, m.mT, x.mT),
    "transpose": lambda x, m, v: (
        x.transpose(1, 0, 2),
        np.transpose(x, (2, 0, 1)),
        x.transpose(),
        x.transpose((0, -1, 1)),
    ),
    "swapaxes": lambda x, m, v: (np.swapaxes(x, 0, -1), m.swapaxes(0, 1)),
    "moveaxis": lambda x, m, v: (np.moveaxis(x, 0, -1), np.moveaxis(x, (0, 1), (-1, 0)), np.rollaxis(x, 2)),
    "squeeze expand": lambda x, m, v: (
        np.squeeze(x[:1]),
        np.expand_dims(v, 0),
        np.expand_dims(m, (0, -1)),
        x[:, :1].squeeze(1),
    ),
    "broadcast": lambda x, m, v: (np.broadcast_to(v, (2, 5)), *np.broadcast_arrays(m, m[:1], 3.0)),
    "flip": lambda x, m, v: (np.flip(x), np.flip(x, 1), np.fliplr(m), np.flipud(m), np.flip(x, (0, 2))),
    "rot90": lambda x, m, v: (*tuple(np.rot90(m, k) for k in range(-1, 5)), np.rot90(x, 1, (1, 2))),
    "atleast": lambda x, m, v: (
        np.atleast_1d(v.sum()),
        np.atleast_2d(v),
        np.atleast_3d(v),
        np.atleast_3d(m),
        *np.atleast_2d(v, m),
    ),
    "split": lambda x, m, v: (
        *np.split(m, 2, axis=1),
        *np.split(v, [1, 3]),
        *np.array_split(v, 3),
        *np.hsplit(m, 2),
        *np.vsplit(m, 3),
        *np.dsplit(x, 2),
    ),
    "unstack": lambda x, m, v: np.unstack(x, axis=1),
    "diagonal": lambda x, m, v: (
        np.diagonal(m),
        m.diagonal(1),
        np.diagonal(m, -1),
        np.diagonal(x, 0, 1, 2),
        np.diag(m),
        np.diag(m, 2),
    ),
    "diag of vector": lambda x, m, v: (np.diag(v), np.diag(v, 2), np.diag(v, -1), np.diagflat(m)),
    "trace": lambda x, m, v: (np.trace(m), m.trace(1), np.trace(x, axis1=1, axis2=2), np.linalg.trace(x)),
    "tril triu": lambda x, m, v: (np.tril(m), np.triu(m, 1), np.tril(x, -1), np.triu(v)),
    "concatenate": lambda x, m, v: (
        np.concatenate([m, m + 1]),
        np.concatenate((m, m), axis=1),
        np.concatenate([m, v], axis=None),
        np.concat([v, v]),
    ),
    "concatenate dtypes": lambda x, m, v: np.concatenate([m.astype(np.int32), m.astype(np.float32)], axis=-1),
    "stack": lambda x, m, v: (np.stack([v, v * 2]), np.stack([m, m], axis=1), np.stack((m, m, m), -1)),
    "vstack hstack": lambda x, m, v: (
        np.vstack([v, v]),
        np.hstack([v, v]),
        np.hstack([m, m]),
        np.dstack([m, m]),
        np.column_stack([v, v]),
    ),
    "block": lambda x, m, v: np.block([[m, m], [np.zeros((1, 4)), np.ones((1, 4))]]),
    "append": lambda x, m, v: (np.append(v, 3.0), np.append(m, m[:1], axis=0)),
    "roll": lambda x, m, v: (
        np.roll(v, 2),
        np.roll(m, -1, axis=1),
        np.roll(x, (1, 2), axis=(0, 2)),
        np.roll(m, 5),
        np.roll(v, 0),
    ),
    "tile": lambda x, m, v: (np.tile(v, 3), np.tile(m, (2, 1)), np.tile(v, (2, 2)), np.tile(m, 2)),
    "repeat": lambda x, m, v: (np.repeat(v, 2), m.repeat(3, axis=0), np.repeat(m, [1, 0, 2], axis=0), np.repeat(m, 2)),
    "diff": lambda x, m, v: (
        np.diff(v),
        np.diff(m, axis=0),
        np.diff(v, 2),
        np.diff(v > 2),
        np.diff(v, prepend=0.0),
        np.ediff1d(v),
    ),
    "gradient": lambda x, m, v: (np.gradient(v), *np.gradient(m), np.gradient(v, 0.5)),
    "meshgrid": lambda x, m, v: (
        *np.meshgrid(v, v[:3]),
        *np.meshgrid(v, v[:2], indexing="ij"),
        *np.meshgrid(v, v[:2], sparse=True),
    ),
    "insert delete": lambda x, m, v: (
        np.insert(v, 2, 9.0),
        np.insert(m, 1, v[:4], axis=0),
        np.delete(v, 1),
        np.delete(m, [0, 2], axis=1),
    ),
    "kron": lambda x, m, v: (np.kron(m, np.ones((2, 2))), np.kron(v, v)),
    "astype copy": lambda x, m, v: (
        m.astype(np.int32),
        np.copy(v),
        v.copy(),
        m.astype("f4"),
        m.astype(bool),
        (m - 5).astype(np.int8),
    ),
    "view": lambda x, m, v: (v.view(np.int64), v.astype(np.float32).view(np.uint32)),
    "take": lambda x, m, v: (
        np.take(v, [0, -1, 2]),
        m.take([1, 1], axis=1),
        np.take(m, 3),
        np.take(m, [[0, 1], [2, 0]], axis=0),
    ),
    "take modes": lambda x, m, v: (np.take(v, [7, -8], mode="wrap"), np.take(v, [7, -8], mode="clip")),
    "take_along_axis": lambda x, m, v: (
        np.take_along_axis(m, np.argsort(-m, axis=1), axis=1),
        np.take_along_axis(m, np.argmax(m, 0)[None], 0),
    ),
    "sort": lambda x, m, v: (
        np.sort(-v),
        np.sort(-m, axis=0),
        np.argsort(-v),
        np.argsort(-m, axis=None),
        np.argsort(m % 3, axis=None),
        np.argsort(m % 3, kind="stable"),
        np.argsort(m % 3, axis=0, stable=True),
        np.sort(m % 3, kind="mergesort"),
        np.sort(m % 3, axis=None),
    ),
    "searchsorted": lambda x, m, v: (
        np.searchsorted(v, [0.5, 3.0, 9.0]),
        np.searchsorted(v, m, side="right"),
        np.digitize(m, v),
    ),
    "convolve": lambda x, m, v: (
        np.convolve(v, [1.0, 2.0]),
        np.convolve(v, [1.0, 2.0, 3.0], "same"),
        np.convolve(v, v[:2], "valid"),
        np.correlate(v, v[:3]),
    ),
    "interp": lambda x, m, v: (np.interp(m / 3, v, v * v), np.interp(m, v, v, left=-1.0, right=-2.0)),
    "size queries": lambda x, m, v: np.zeros(
        (len(m), np.size(x), np.ndim(x), np.shape(v)[0], m.size, m.nbytes // m.itemsize)
    ),
    "unpacking": lambda x, m, v: [row.sum() for row in m] + [*v],
    "enumerate zip": lambda x, m, v: [a * i + b for i, (a, b) in enumerate(zip(v, v[::-1], strict=True))],
    "r_ c_": lambda x, m, v: (np.r_[v, 1.0, v[:2]], np.r_[0:3, v], np.c_[v, v * 2], np.c_[m, m[:, 0]], np.r_[1, 2]),
    "choose": lambda x, m, v: (np.choose((v % 2).astype(int), [v, -v]), (v > 2).astype(int).choose([v, v * 2])),
    "sliding windows": lambda x, m, v: (
        np.lib.stride_tricks.sliding_window_view(v, 3).mean(-1),
        np.lib.stride_tricks.sliding_window_view(m, (2, 3)),
        np.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
        np.lib.stride_tricks.sliding_window_view(m, (2, 1, 3), (1, 0, 1)),
        np.lib.stride_tricks.sliding_window_view(v, 5) + np.lib.stride_tricks.sliding_window_view(v, 1)[:1],
    ),
    "apply_along_axis": lambda x, m, v: (
        np.apply_along_axis(np.cumsum, 0, m),
        np.apply_along_axis(lambda r: r.sum(), 1, x),
        np.apply_along_axis(lambda r: np.outer(r, r), -1, m),
    ),
    "lists of arrays": lambda x, m, v: (
        np.maximum.reduce([v, v[::-1], v * 0.5]),
        np.add.reduce((m, m)),
        np.add([v[0], v[1]], 1.0),
        np.multiply(m, [1, 2, 3, 4]),
    ),
    "real imag": lambda x, m, v: (m.real, v.imag, np.real(v), np.conj(v), v.conjugate()),
}


@pytest.mark.parametrize("form", CALLS)
def test_call_forms(form: str, agrees: Any) -> None:
    agrees(CALLS[form], X, M, V)


def test_windows_of_any_size_are_a_view() -> None:
    graph = trace(lambda v: np.lib.stride_tricks.sliding_window_view(v, 1024)[::256], np.zeros(44100)).graph
    assert len(graph.nodes) < 10


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("width", [1, (2, 0), ((1, 2), (0, 3)), ((0, 0), (7, 9)), {1: (2, 2)}])
def test_pad(mode: str, width: Any, agrees: Any) -> None:
    agrees(lambda m: np.pad(m, width, mode), M)


def test_pad_values(agrees: Any) -> None:
    agrees(lambda m: (np.pad(m, 1), np.pad(m, 1, constant_values=3), np.pad(m, 1, constant_values=((1, 2), (3, 4)))), M)
    agrees(lambda m: np.pad(m.astype(np.int32), 1, constant_values=2.7), M)
    agrees(lambda v: np.pad(v, (1, 2), mode="edge"), V)


@pytest.mark.parametrize("mode", ["mean", "linear_ramp"])
def test_other_pad_modes_are_errors(mode: str) -> None:
    with pytest.raises(TraceError, match=r"np\.pad is traced for mode"):
        trace(lambda m: np.pad(m, 1, mode), M)


ALIASES: dict[str, Any] = {
    "slice": lambda x: x[1:],
    "strided": lambda x: x[::2, 1::2],
    "negative step": lambda x: x[::-1, ::-2],
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "element by ellipsis": lambda x: x[..., 1, 1],
    "new axis": lambda x: x[:, None, 1:3],
    "transpose": lambda x: x.T,
    "transposed slice of a slice": lambda x: x[1:].T[1:3],
    "reshape": lambda x: x.reshape(2, 6),
    "ravel": lambda x: x.ravel(),
    "ravel of a transpose is a copy": lambda x: x.T.ravel(),
    "reshape of columns is a copy": lambda x: x[:, 1:3].reshape(-1),
    "reshape of rows is a view": lambda x: x[1:].reshape(-1),
    "flatten is a copy": lambda x: x.flatten(),
    "flip": lambda x: np.flip(x, 1),
    "rot90": np.rot90,
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "squeeze": lambda x: x[:1].squeeze(),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "atleast_3d": np.atleast_3d,
    "split": lambda x: np.split(x, 2, axis=1)[1],
    "last of array_split": lambda x: np.array_split(x, 2)[-1],
    "asarray": np.asarray,
    "array is a copy": np.array,
    "copy": lambda x: x.copy(),
    "astype is a copy": lambda x: x.astype(x.dtype),
    "astype without copy": lambda x: x.astype(x.dtype, copy=False),
    "integer array is a copy": lambda x: x[[0, 1]],
    "iteration": lambda x: next(iter(x)),
    "ellipsis": lambda x: x[...],
    "real": lambda x: x.real,
    "sum of transposes keeps its order": lambda x: (x.T + 1).reshape(-1),
    "copy of a transpose keeps its order": lambda x: np.copy(x.T).ravel(),
    "method copy is in C order": lambda x: x.T.copy().ravel(),
    "two levels": lambda x: x[:, 1:][1:, ::-1][0],
}


@pytest.mark.parametrize("form", ALIASES)
def test_writing_into_what_a_function_returns_aliases_as_in_numpy(form: str, agrees: Any) -> None:
    def f(x: Any) -> Any:
        temporary = x + 1
        for base in (x, temporary):
            part = ALIASES[form](base)
            part[...] = -5
            part += 2
            base[0] *= 3
        return temporary, ALIASES[form](temporary)

    agrees(f, M)


def test_assignment_to_flat(agrees: Any) -> None:
    def f(x: Any) -> None:
        x.flat[::5] = 1.0
        x.flat[3] = x.sum()

    agrees(f, M)


ORDERS: dict[str, Any] = {
    "sum of transposes": lambda x: x.T + 1,
    "two orders": lambda x: x + x.T,
    "with a row": lambda x: x.T * x[0],
    "with a broadcast column": lambda x: x.T[:, :1] + x.T,
    "reversed": lambda x: -x[::-1],
    "columns": lambda x: x[:, ::2] * 2,
    "astype": lambda x: x.T.astype(np.float32),
    "astype C": lambda x: x.T.astype(np.float32, order="C"),
    "copy": lambda x: x.T.copy(),
    "np.copy": lambda x: np.copy(x.T),
    "copy F": lambda x: x.copy("F"),
    "matmul": lambda x: x.T @ x,
    "where": lambda x: np.where(x.T > 2, x.T, 0.0),
    "like": lambda x: np.zeros_like(x.T) + x,
    "zeros_like": lambda x: np.zeros_like(x.T),
    "array": lambda x: np.array(x.T),
    "clip": lambda x: np.clip(x.T, 1, 5),
    "slice of a sum of transposes": lambda x: (x.T + 1)[1:],
}


@pytest.mark.parametrize("form", ORDERS)
def test_whether_a_reshape_of_a_temporary_aliases_follows_numpys_memory_order(form: str, agrees: Any) -> None:
    def f(x: Any) -> Any:
        temporary = ORDERS[form](x)
        for flat in (temporary.reshape(-1), temporary.T.reshape(-1)):
            flat[1] = 100
        return temporary

    agrees(f, np.arange(9.0).reshape(3, 3))


GUESSED: dict[str, Any] = {
    "concatenate": lambda x: np.concatenate([x.T, x.T]),
    "sum": lambda x: np.stack([x, x]).T.sum(0),
    "take": lambda x: np.take(x.T, [2, 1, 0], axis=0),
    "fancy": lambda x: x.T[[2, 1, 0]],
    "sort": lambda x: np.sort(x.T),
    "cumsum": lambda x: np.cumsum(x.T, axis=0),
    "roll": lambda x: np.roll(x.T, 1, axis=0),
    "sum of a guess": lambda x: np.sort(x.T) + 1,
}


@pytest.mark.parametrize("form", GUESSED)
def test_where_the_memory_order_is_not_known_only_a_visible_difference_is_an_error(form: str, agrees: Any) -> None:
    def harmless(x: Any) -> Any:
        flat = GUESSED[form](x).reshape(-1)
        flat += 1
        return flat, GUESSED[form](x).reshape(-1)[None].squeeze()

    def visible(x: Any) -> Any:
        temporary = GUESSED[form](x)
        temporary.reshape(-1)[0] = 7
        return temporary

    agrees(harmless, np.arange(9.0).reshape(3, 3))
    with pytest.raises(TraceError, match="memory order"):
        trace(visible, np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("form", [lambda x: np.broadcast_to(x, (2, 3, 4)), np.diagonal, np.diag])
def test_read_only_views(form: Any, agrees: Any) -> None:
    def f(x: Any) -> Any:
        part = form(x)
        x[1] = 7
        return part + 1

    def g(x: Any) -> None:
        form(x)[0] = 1

    agrees(f, M)
    with pytest.raises(TraceError, match="read-only"):
        trace(g, M)
