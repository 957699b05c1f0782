"""Loops and branches that stay in the graph, against the same functions run as ordinary Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import TraceError
from autofuse.frontend.control import cond, while_loop
from autofuse.frontend.countedloops import fori_loop, scan
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret
from autofuse.ir.verifier import verify

X = np.linspace(0.1, 2.0, 6).astype(np.float32)
W = np.eye(6, dtype=np.float32) * 0.5
TABLE = np.arange(6, dtype=np.float32)


def newton(x: Any) -> Any:
    def body(state: Any) -> Any:
        guess, n = state
        return 0.5 * (guess + x / guess), n + 1

    guess, n = while_loop(lambda s: np.any(np.abs(s[0] * s[0] - x) > 1e-4) & (s[1] < 20), body, (np.ones_like(x), 0))
    return guess, n


def power_iteration(x: Any, w: Any) -> Any:
    return fori_loop(0, 5, lambda i, v: w @ v + TABLE * np.float32(0.1), x)


def rnn(x: Any, w: Any) -> Any:
    def cell(h: Any, xt: Any) -> Any:
        new = np.tanh(w @ h + xt)
        return new, {"h": new, "norm": np.sum(new)}

    return scan(cell, np.zeros(6, np.float32), np.outer(x, x))


def in_place_body(x: Any) -> Any:
    def body(i: Any, state: Any) -> Any:
        state[1:-1] += state[:-2] * np.float32(0.5)
        state[i % 3] = 1
        return state

    return fori_loop(0, 4, body, x), x


def traced_trip_count(x: Any, n: Any) -> Any:
    return fori_loop(0, n, lambda i, v: v * 2 + np.asarray(i).astype(np.float32), x)


def two_branches(x: Any) -> Any:
    return cond(x.sum() > 5, lambda v: (v * 2, np.exp(v)), lambda v: (v + 1, np.zeros_like(v)), x)


def branch_in_loop(x: Any) -> Any:
    return fori_loop(0, 6, lambda i, v: cond(np.max(v) > 2, lambda u: u - x, lambda u: u + x, v), x)


def loop_in_scan(x: Any, w: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        inner = fori_loop(0, 3, lambda i, v: v * np.float32(0.5) + row, carry)
        return inner, inner.max()

    return scan(step, x, w)


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "while": (newton, (X,)),
    "fori": (power_iteration, (X, W)),
    "scan": (rnn, (X, W)),
    "writing the state": (in_place_body, (X,)),
    "traced trip count": (traced_trip_count, (X, np.array(3))),
    "cond true": (two_branches, (X * 3,)),
    "cond false": (two_branches, (X * 0,)),
    "cond in a loop": (branch_in_loop, (X,)),
    "loop in a scan": (loop_in_scan, (X, W)),
    "reverse": (lambda x: scan(lambda c, v: (c + v, c * v), np.float32(1), x, reverse=True), (X,)),
    "length only": (lambda x: scan(lambda c, _: (c * 2, c), x, None, length=3), (X,)),
    "no results": (lambda x: scan(lambda c, v: (c + v, None), np.float32(0), x), (X,)),
    "weak initial number": (lambda x: fori_loop(0, 3, lambda i, t: t + x.sum(), 0.0), (X,)),
    "known condition": (lambda x: cond(len(x) > 3, lambda v: v, lambda v: -v, x), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_is_what_python_does(name: str) -> None:
    function, arguments = PROGRAMS[name]
    want = function(*(a.copy() for a in arguments))
    traced = trace(function, *arguments)
    verify(traced.graph)
    got = traced.unflatten(interpret(traced.graph, *arguments))
    _compare(got, want)


def _compare(got: Any, want: Any) -> None:
    if isinstance(want, tuple | list):
        for g, w in zip(got, want, strict=True):
            _compare(g, w)
    elif isinstance(want, dict):
        for key in want:
            _compare(got[key], want[key])
    elif want is None:
        assert got is None
    else:
        assert np.shape(got) == np.shape(want)
        if isinstance(want, np.ndarray | np.generic):
            assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # f32, some dozen operations


def test_loops_are_one_node_whatever_the_trip_count() -> None:
    counts = [
        len(trace(lambda x, n=n: fori_loop(0, n, lambda i, v: v * 2, x), spec("f32[4]")).graph.nodes) for n in (2, 2000)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("loop", ["fori_loop", "scan", "while_loop"])
def test_a_body_is_traced_once_however_deep_loops_are_nested(loop: str) -> None:
    traces = [0]

    def nested(depth: int, x: Any) -> Any:
        if not depth:
            traces[0] += 1
            return x * 2
        if loop == "fori_loop":
            return fori_loop(0, 3, lambda i, v: nested(depth - 1, v), x)
        if loop == "scan":
            return scan(lambda v, row: (nested(depth - 1, v) + row, row), x, np.ones((3, 6), np.float32))[0]
        return while_loop(lambda v: v.sum() < 100, lambda v: nested(depth - 1, v), x)

    trace(lambda x: nested(5, x), X)
    assert traces == [1]


@pytest.mark.parametrize("count", [0, 1])
def test_loops_of_few_iterations(count: int) -> None:
    def loops(x: Any) -> Any:
        total = fori_loop(2, 2 + count, lambda i, v: v * 3 + np.asarray(i).astype(np.float32), x)
        last, (rows, pairs) = scan(lambda c, row: (c + row, (c * row, {"row": row})), x, np.outer(x, x)[:count])
        return total, last, rows, pairs["row"]

    for got, want in zip(interpret(trace(loops, X).graph, X), loops(X), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, np.reshape(want, got.shape), rtol=1e-6)


def test_indices_in_the_rows_of_a_scan_are_checked() -> None:
    def picked(x: Any, places: Any) -> Any:
        return scan(lambda c, at: (c + x[at], x[at] * 2), np.float32(0), places)

    plan = af.compile(picked, X, np.arange(4), policy="unfused", check_bounds=True)
    np.testing.assert_allclose(plan(X, np.array([5, 0, -6, 1]))[1], X[[5, 0, 0, 1]] * 2)
    with pytest.raises(IndexError, match="index -7"):
        plan(X, np.array([1, -7, 2, 3]))


def test_a_function_of_scan_returns_a_pair() -> None:
    with pytest.raises(TraceError, match="must return a pair, the next carry and what is stacked"):
        trace(lambda x: scan(lambda c, row: c + row, x[0], x), X)


def test_a_body_reads_arrays_of_the_enclosing_function() -> None:
    graph = trace(power_iteration, X, W).graph
    (loop,) = (node for node in graph.nodes if node.op == "scan")
    assert graph.inputs[1] in loop.regions[0].captures


ERRORS: dict[str, Any] = {
    "before the body and f64": lambda x: fori_loop(0, 3, lambda i, v: v.astype(np.float64), x),
    "before the body and f32\\[3\\]": lambda x: fori_loop(0, 3, lambda i, v: v[:3], x),
    "another structure": lambda x: fori_loop(0, 3, lambda i, v: (v, v), x),
    "must be one scalar": lambda x: while_loop(lambda v: v > 0, lambda v: v - 1, x),
    "scalar condition": lambda x: cond(x > 0, lambda: x, lambda: x),
    "result 0 of cond is f32": lambda x: cond(x.sum() > 0, lambda: x, lambda: x[:2]),
    "different structures": lambda x: cond(x.sum() > 0, lambda: x, lambda: (x, x)),
    "scan needs one length, got \\[": lambda x: scan(lambda c, v: (c, v), 0, (x, x[1:])),
    "scan needs one length, got neither arrays among xs": lambda x: scan(lambda c, _: (c, None), x, None),
    "writes into an array of the enclosing function": lambda x: fori_loop(0, 3, lambda i, v: v + _written(x), x),
}


def _written(x: Any) -> Any:
    x[0] = 1
    return x


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        trace(ERRORS[message], X)
    assert "test_control.py:" in str(caught.value)
