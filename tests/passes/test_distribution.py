"""Loops that are distributed: what they compute is what they computed, and products leave them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.ir.verifier import verify
from autofuse.passes import distribution
from autofuse.passes.choices import read_choices
from autofuse.passes.distribution import DistributeLoops
from autofuse.passes.pipeline import can_change, clean
from tests.fixtures.recurrences import random_program

DISTRIBUTED = read_choices("loops=distributed")
RNG = np.random.default_rng(4)
STATE, W, U, OUT, X = (
    RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (3, 4), (4, 4), (4, 2), (7, 5, 3))
)


def _distributed(function: Any, *arrays: Any) -> Graph:
    """The graph afterwards; both compute the same, and nothing is left to distribute."""
    traced = af.trace(function, *arrays)
    after = clean(traced, choices=DISTRIBUTED)
    verify(after)
    assert not can_change(after, DISTRIBUTED)
    for right, found in zip(interpret(traced, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5, strict=True)  # sums of f32 in another order
    return after


def _ops(graph: Graph) -> tuple[list[str], list[str]]:
    """Outside of loops, and in the body of the only one."""
    (loop,) = (node for node in graph.nodes if node.regions)
    return [node.op for node in graph.nodes], [node.op for node in loop.regions[0].nodes]


def _policy(state: Any, w: Any, u: Any, out: Any, x: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.tanh(row @ w + h @ u)
        return h, (np.tanh(h @ out).reshape(-1), (row * row).sum())

    return af.scan(step, state, x)


def test_a_product_of_rows_is_one_before_the_loop_and_one_of_stacks_behind_it():
    outside, inside = _ops(_distributed(_policy, STATE, W, U, OUT, X))
    assert outside.index("dot_general") < outside.index("scan") < len(outside) - 1 - outside[::-1].index("dot_general")
    assert outside.count("dot_general") == 2
    assert inside.count("dot_general") == 1
    assert "reduce" in outside
    assert "reduce" not in inside


def test_a_loop_from_the_end_keeps_the_order_of_rows():
    def backwards(state: Any, w: Any, u: Any, x: Any) -> Any:
        return af.scan(lambda h, row: (np.tanh(row @ w + h @ u),) * 2, state, x, reverse=True)

    _, inside = _ops(_distributed(backwards, STATE, W, U, X))
    assert inside.count("dot_general") == 1


def test_a_loop_in_the_body_of_a_loop_is_distributed_too():
    def nested(state: Any, w: Any, u: Any, x: Any) -> Any:
        def outer(h: Any, _: Any) -> Any:
            return af.scan(lambda h, row: (np.tanh(row @ w + h @ u), None), h, x)[0], None

        return af.scan(outer, state, None, length=3)[0]

    graph = _distributed(nested, STATE, W, U, X)
    (loop,) = (node for node in graph.nodes if node.regions)
    assert [node.op for node in graph.nodes].count("dot_general") == 1, "all loops read the same rows"
    (inner,) = (node for node in loop.regions[0].nodes if node.regions)
    assert [node.op for node in inner.regions[0].nodes].count("dot_general") == 1


def _gradient(w: Any, u: Any, h: Any, x: Any, g: Any) -> Any:
    """As of a cell: what goes back, and gradients of matrices and of a bias that are added up."""

    def step(carry: Any, rows: Any) -> Any:
        back, dw, du, db = carry
        row, state, outer = rows
        back = (back @ u.T + outer) * (1 - state * state)
        return (back, dw + row.T @ back, (back.T @ state).T + du, db + (back.sum(0) + np.zeros_like(db))), None

    zeros = (np.zeros_like(h[0]), np.zeros_like(w), u, np.zeros(u.shape[1], u.dtype))
    return af.scan(step, zeros, (x, h, g), reverse=True)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_that_are_added_up_are_one_behind_the_loop(dtype: Any):
    h, g = (RNG.standard_normal((7, 5, 4)).astype(dtype) for _ in range(2))
    graph = _distributed(_gradient, W.astype(dtype), U.astype(dtype), h, X.astype(dtype), g)
    outside, inside = _ops(graph)
    assert (outside.count("dot_general"), inside.count("dot_general")) == (2, 1)
    assert "reduce" in outside
    assert "reduce" not in inside
    (loop,) = (node for node in graph.nodes if node.regions)
    assert loop.attrs["carries"] == 1
    deep = [node for node in graph.nodes if node.op == "dot_general"]
    assert all(node.attrs["lhs_contracting_dimensions"] == (0, 1) for node in deep)


def test_what_is_added_up_may_be_of_rows_alone():
    def loop(s: Any, h: Any, x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            s, h = carry
            wide = np.concatenate([row, row * 2], axis=1)
            return (s + wide.T @ (wide @ wide.T), np.tanh(h + row)), wide

        return af.scan(step, (s, h), x)

    x = RNG.standard_normal((7, 5, 4)).astype(np.float32)
    outside, inside = _ops(_distributed(loop, np.ones((8, 5), np.float32), STATE, x))
    assert (outside.count("dot_general"), inside.count("dot_general")) == (2, 0)


@pytest.mark.parametrize(
    "step",
    [
        lambda s, h, row: (s + h.T @ row, h * s.sum()),  # read besides
        lambda s, h, row: (s * 2 + h.T @ row, h + row),  # more than a sum
        lambda s, h, row: (s + np.tanh(h.T @ row), h + row),  # no sum of products
    ],
)
def test_sums_that_more_is_done_with_stay(step: Any):
    def loop(s: Any, h: Any, x: Any) -> Any:
        return af.scan(lambda carry, row: (step(*carry, row), None), (s, h), x)[0]

    graph = clean(af.trace(loop, U, STATE, RNG.standard_normal((7, 5, 4)).astype(np.float32)), choices=DISTRIBUTED)
    _, inside = _ops(graph)
    assert "dot_general" in inside


def test_narrow_sums_stay_as_they_are_rounded_each_time():
    half = RNG.standard_normal((7, 5, 4)).astype(np.float16)

    def loop(s: Any, x: Any) -> Any:
        return af.scan(lambda s, row: (s + row.T @ row, None), s, x)[0]

    _, inside = _ops(clean(af.trace(loop, U.astype(np.float16), half), choices=DISTRIBUTED))
    assert "add" in inside


def test_what_is_on_a_recurrence_stays():
    def cell(state: Any, u: Any, x: Any) -> Any:
        return af.scan(lambda h, row: (np.tanh(row + h @ u), h * 2), state, x)

    graph = clean(af.trace(cell, STATE, U, RNG.standard_normal((7, 5, 4)).astype(np.float32)))
    assert not can_change(graph, DISTRIBUTED)


def test_what_a_loop_that_stays_reads_stays_with_it():
    """A product that a branch reads, which no array of all iterations can: it is computed in each."""

    def branching(state: Any, out: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            product = h @ out
            return h + row[:, :1], af.cond(row[0, 0] > 0, lambda p: p * 2, lambda p: p - 1, product)

        return af.scan(step, state, x)

    _, inside = _ops(_distributed(branching, STATE, OUT, X))
    assert "dot_general" in inside


def test_a_loop_whose_arrays_would_be_too_large_stays(monkeypatch):
    graph = clean(af.trace(_policy, STATE, W, U, OUT, X))
    assert can_change(graph, DISTRIBUTED)
    monkeypatch.setattr(distribution, "MOST_BYTES", 7)
    assert DistributeLoops().apply(graph) is graph


@pytest.mark.parametrize("seed", range(40))
def test_random_loops(seed):
    function, arrays = random_program(seed)
    _distributed(function, *arrays)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_random_loops(seed):
    function, arrays = random_program(seed)
    _distributed(function, *arrays)


@pytest.mark.parametrize("seed", range(3))
def test_plans_of_distributed_loops(seed):
    _compare_plan(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_plans_of_distributed_loops(seed):
    _compare_plan(seed)


def _compare_plan(seed: int) -> None:
    function, arrays = random_program(seed)
    policy = ("unfused", "analytical", "greedy")[seed % 3]
    plan = af.compile(function, *arrays, variants="loops=distributed", policy=policy)
    right = interpret(af.trace(function, *arrays), *arrays)
    (state, rows) = plan(*arrays)
    for found, expected in zip([*state, *rows], right, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)
