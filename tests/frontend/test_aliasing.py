"""What NumPy copies and what it views, each with a write afterwards: into what it was taken from, and into itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret

VIEWS = (
    *("x[...]", "x[:]", "x[()]", "x[1:]", "x[:, 1]", "x[:, ::2]", "x[::-1]", "x[None]", "x[:, None]", "x[0]"),
    *("x[0, ...]", "x[0, 1, ...]", "x[np.int64(0)]", "x[np.argmax(np.array([1, 5, 2]))]", "x[0, 0, ...][...]"),
    *("x.T", "x.mT", "x.transpose(1, 0)", "np.transpose(x)", "x.swapaxes(0, 1)", "np.moveaxis(x, 0, 1)", "x.T.T"),
    *("np.rollaxis(x, 1)", "np.permute_dims(x, (1, 0))", "np.matrix_transpose(x)", "np.moveaxis(x, 0, 0)"),
    *("x.reshape(-1)", "x.reshape(4, 3)", "x.reshape(x.shape)", "x.reshape(3, 2, 2)", "x.reshape(1, 3, 4)"),
    *("x[:, ::2].reshape(-1)", "x.T.reshape(-1, order='F')", "x[0:1, 0:1].reshape(())", "x[0, 0, ...].reshape(1)"),
    *(
        "x.ravel()",
        "x.T.ravel('F')",
        "x.ravel('K')",
        "x.T.ravel('K')",
        "x.ravel('A')",
        "x.T.ravel('A')",
        "x[1].ravel()",
    ),
    *("x.diagonal()", "np.diagonal(x, 1)", "np.diag(x)", "np.linalg.diagonal(x, offset=-1)", "x.T.diagonal()"),
    *("x.real", "np.real(x)", "x.conj()", "x.conjugate()", "x.view()", "np.asarray(x)", "np.asanyarray(x)"),
    *(
        "np.ascontiguousarray(x)",
        "np.asfortranarray(x.T)",
        "np.require(x, requirements='C')",
        "np.nan_to_num(x, False)",
    ),
    *("x.astype(x.dtype, copy=False)", "np.asarray(x, order='C')", "np.asarray_chkfinite(x)"),
    *("np.broadcast_to(x, (2, 3, 4))", "np.broadcast_to(x, (3, 4))", "np.broadcast_arrays(x, np.ones((3, 4)))[0]"),
    *("np.squeeze(x[0:1])", "x[None].squeeze()", "x[0:1, 0:1].squeeze()", "np.expand_dims(x, 0)", "np.atleast_1d(x)"),
    *("np.atleast_2d(x)", "np.atleast_3d(x)", "np.atleast_3d(x[0])", "np.flip(x)", "np.fliplr(x)", "np.flip(x, ())"),
    *("np.rot90(x)", "np.rot90(x, 2)", "np.rot90(x, 3)", "np.rot90(x, 4)", "np.split(x, 3)[0]", "np.vsplit(x, 3)[1]"),
    *("np.array_split(x, 2)[1]", "np.hsplit(x, 2)[0]", "np.unstack(x)[0]", "list(x)[0]", "[row for row in x][1]"),
    *("(lambda a, b, c: b)(*x)", "next(iter(x))", "next(zip(x, x.T))[1]", "np.ravel(x)", "x[0, 0, ...].T"),
    *("np.lib.stride_tricks.sliding_window_view(x[0], 2)", "np.meshgrid(x[0], x[1], sparse=True, copy=False)[0]"),
)
"""Of a C-contiguous `x` of shape (3, 4), views."""

COPIES = (
    *("x[0, 1]", "x[-1, -2]", "x[np.int64(0), np.uint8(1)]", "x[0, 0:1][0]", "x[0:1, 0:1].reshape(())[()]"),
    *("x.flat[0]", "x.flat[-1]", "x.flat[1:3]", "x.flat[[0, 1]]", "list(x.flat)[2]", "x[0, 0, ...][()]", "x.T.flat[1]"),
    *("x[[0, 1]]", "x[np.array([0, 2])]", "x[[0, 1], [1, 2]]", "x[np.array([True, False, True])]", "x[0, [0, 1]]"),
    *("x[np.arange(3), 0]", "x[np.ix_([0, 1], [1, 2])]", "x[0:1, [0, 1]]", "x[np.array(0)]", "x[np.array(0), 1]"),
    *("x[[0, 1, 2]]", "x[np.array(1), :]", "x.copy()", "np.copy(x)", "np.array(x)", "x.astype(x.dtype)"),
    *("x.astype(np.float32)", "x.flatten()", "x.T.flatten()", "x.T.reshape(-1)", "x.T.ravel()", "x[:, ::2].ravel()"),
    *("x.ravel('F')", "x[0, ::2].ravel()", "np.asfortranarray(x)", "np.asarray(x, order='F')", "x.imag", "np.imag(x)"),
    *("np.asfortranarray(x).ravel()", "x.copy(order='F').T.ravel()", "(x.T + 1).ravel()", "(x.T + 1).T.ravel()"),
    *(
        "np.zeros((3, 4), order='F').ravel()",
        "np.full((3, 4), 2.0, order='F').T.ravel()",
        "np.eye(3, order='F').ravel()",
    ),
    *(
        "np.ones_like(x.T).ravel()",
        "x.T.astype(np.float32).ravel()",
        "np.sqrt(x.T).ravel()",
        "np.clip(x.T, 0, 1).ravel()",
    ),
    *(
        "list(x[0])[1]",
        "[e for e in x[0]][1]",
        "(lambda a, b, c, d: b)(*x[0])",
        "next(iter(x[1]))",
        "tuple(x.ravel())[3]",
    ),
    *(
        "dict(enumerate(x[0]))[1]",
        "next(reversed(x[0]))",
        "next(zip(x[0], x[1]))[0]",
        "np.conj(x)",
        "+x",
        "abs(x)",
        "x + 0",
    ),
    *(
        "x.min()",
        "x.max(0)",
        "x.sum()",
        "x.mean()",
        "np.cumsum(x)",
        "np.sort(x)",
        "x.argmax()",
        "x.clip(0, 1)",
        "x.trace()",
    ),
    *("x.take(0)", "np.take(x, [0, 1])", "np.take(x, 0, axis=0)", "np.take_along_axis(x, np.zeros((3, 1), int), 1)"),
    *(
        "np.choose(np.zeros((3, 4), int), [x, x])",
        "np.where(True, x, 0)",
        "x.round()",
        "np.nan_to_num(x)",
        "np.tril(x)",
    ),
    *(
        "np.repeat(x, 1, axis=0)",
        "np.roll(x, 0)",
        "np.concatenate([x])",
        "np.stack([x])[0]",
        "np.pad(x, 0)",
        "np.tile(x, 1)",
    ),
    *("x[0, 0][...]", "x[0, 0][None]", "x[0, 0][()]", "np.reshape(x[0, 0], (1,))", "np.asarray(x[0, 0])", "x[0, 0].T"),
    *("np.array(x[0, 0])", "np.broadcast_to(x[0, 0], (3,))", "x[0, 0].reshape(1)", "x[0, 0].ravel()", "x[0, 0].copy()"),
    *(
        "np.expand_dims(x[0, 0], 0)",
        "x[0, 0].squeeze()",
        "np.squeeze(x[0, 0])",
        "np.atleast_1d(x[0, 0])",
        "x[0, 0].real",
    ),
    *("np.transpose(x[0, 0])", "x.sum()[...]", "x[0, 0].conj()", "x[0, 0].astype(float)", "x[0, 0].flatten()"),
)
"""Of the same, copies."""

SOURCES = {
    "an argument": lambda x: x,
    "a temporary": lambda x: x * 1.0,
    "the transpose of a temporary": lambda x: x.T.copy().T,
    "a temporary in Fortran order": lambda x: x.copy(order="F"),
}


def _taking(text: str) -> Any:
    return eval(f"lambda x: {text}", {"np": np})


def _program(text: str, source: str, into_the_source: bool) -> Any:
    take, make = _taking(text), SOURCES[source]

    def program(x: Any) -> Any:
        y = make(x)
        t = take(y)
        if into_the_source:
            y[...] = -y - 100
        else:
            t[...] = 77
        return t, y

    return program


def _by_numpy(program: Any, x: Any) -> Any:
    """What it returns, and the argument then; None where NumPy raises."""
    own = x.copy(order="K")
    try:
        return (*program(own), own)
    except (ValueError, TypeError):  # a read-only view; a scalar
        return None


def _traced(program: Any, x: Any) -> Any:
    """The same of the traced program; None where tracing raises."""
    own = x.copy(order="K")
    try:
        traced = trace(program, own)
    except TraceError:
        return None
    outputs = interpret(traced.graph, own)
    final = [outputs[output] for _, output in traced.writebacks] or [own]
    return (*traced.unflatten(outputs), *final)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("text", [*VIEWS, *COPIES])
def test_a_write_is_seen_where_numpy_shows_it(text: str, order: Any) -> None:
    x = np.asarray(np.arange(1.0, 13.0).reshape(3, 4), order=order)
    for source in list(SOURCES)[: 4 if order == "C" else 2]:
        for into_the_source in (True, False):
            program = _program(text, source, into_the_source)
            want = _by_numpy(program, x)
            try:
                got = _traced(program, x)
            except ArgumentError as error:
                if order == "C" or "must be C-contiguous" not in str(error):
                    raise
                continue
            assert (got is None) == (want is None), (source, into_the_source)
            for g, w in zip(got or (), want or (), strict=True):
                assert (type(g), g.dtype) == (type(w), w.dtype)
                np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("text", VIEWS)
def test_the_table_of_views_is_numpys(text: str) -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    assert np.shares_memory(_taking(text)(x), x)


@pytest.mark.parametrize("text", COPIES)
def test_the_table_of_copies_is_numpys(text: str) -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    assert not np.shares_memory(_taking(text)(x), x)


def _swap(b: Any) -> None:
    t = b[0]
    b[0] = b[15]
    b[15] = t


def _swap_at_once(b: Any) -> None:
    b[0], b[1] = b[1], b[0]


def _periodic(b: Any) -> None:
    first, last = b[1], b[-2]
    b[1:-1] = (b[:-2] + b[2:]) / 2
    b[0], b[-1] = last, first


def _knock_out(b: Any) -> Any:
    i = np.argmax(b)
    best = b[i]
    b[i] = -np.inf
    return best, b.max()


def _old_value(b: Any) -> Any:
    old = b[0]
    b -= 0.1
    return old - b[0]


def _sums_of_a_list(b: Any) -> Any:
    parts = list(b)
    b[...] = 0
    return sum(parts)


def _swap_rows(b: Any) -> Any:
    rows = b.reshape(4, 4)
    rows[0], rows[1] = rows[1], rows[0].copy()
    rows[2], rows[3] = rows[3], rows[2]  # both rows are views: NumPy writes one of them twice


def _masked(b: Any) -> Any:
    large = b > 5
    kept = b[large]
    large[...] = False
    b[...] = -1
    return kept.sum()


@pytest.mark.parametrize(
    "program",
    [_swap, _swap_at_once, _periodic, _knock_out, _old_value, _sums_of_a_list, _swap_rows, _masked],
    ids=lambda f: f.__name__,
)
def test_programs_that_keep_an_element(program: Any, agrees: Any) -> None:
    agrees(program, np.arange(16.0) % 7 + 0.25)


def test_a_write_through_flat_is_repeated_or_cut_as_numpy_does(agrees: Any) -> None:
    def f(x: Any) -> Any:
        x.flat[1:6] = [1.0, 2.0]
        x.T.flat[:2] = np.arange(5.0)
        x.flat[-1] = 9
        x[1].flat = 7
        x[2].real = -1
        return max(x.flat[[0, 3]].shape), [e + 1 for e in x.T.flat][3]

    agrees(f, np.zeros((3, 4)))


def test_what_depends_on_the_order_of_an_argument_refuses_other_orders() -> None:
    def f(x: Any) -> Any:
        flat = x.ravel()
        flat[0] = 5.0
        return flat.sum()

    plan = af.compile(f, spec("f64[3,4]"))
    x = np.ones((3, 4))
    assert plan(x) == 16.0
    assert x[0, 0] == 5.0
    with pytest.raises(ArgumentError, match=r"x: must be C-contiguous.*np.ascontiguousarray\(x\)"):
        plan(np.ones((4, 3)).T)
    with pytest.raises(ArgumentError, match="x: must be C-contiguous"):
        af.compile(f, np.ones((4, 3)).T)


def test_what_does_not_depend_on_it_takes_any_order() -> None:
    def f(x: Any) -> Any:
        total = x.reshape(-1).sum()
        x[...] = x - x.ravel().mean()
        return total

    plan = af.compile(f, spec("f64[3,4]"))
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    assert plan(x) == 66.0
    np.testing.assert_array_equal(x, np.arange(12.0).reshape(3, 4) - 5.5)


def test_a_saved_plan_keeps_what_it_asks_of_its_arguments(tmp_path: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        y.ravel()[...] = 1.0
        return x + y

    path = af.compile(f, spec("f32[2,3]"), spec("f32[2,3]")).save(tmp_path / "p.json")
    plan = af.load(path)
    assert plan.document.contiguous == (1,)
    fortran = np.zeros((3, 2), np.float32).T
    plan(fortran, np.zeros((2, 3), np.float32))
    with pytest.raises(ArgumentError, match="y: must be C-contiguous"):
        plan(np.zeros((2, 3), np.float32), fortran)
