"""Loops of which several iterations become one compute what they computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.ir.verifier import verify
from autofuse.passes.choices import read_choices
from autofuse.passes.pipeline import can_change, clean
from tests.fixtures.stencils import random_loop

U = np.random.default_rng(0).standard_normal((9, 8))


def _unrolled(times: int, function: Any, *arrays: Any) -> Graph:
    """The graph afterwards; both compute the same bits, and nothing is left to unroll."""
    traced = af.trace(function, *arrays)
    choices = read_choices(f"unrolled={times}")
    after = clean(traced, choices=choices)
    verify(after)
    assert not can_change(after, choices)
    for right, found in zip(interpret(traced, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_array_equal(found, right, strict=True)
    return after


def _loops(graph: Graph) -> list[tuple[int, int | None]]:
    return [(node.attrs["length"], node.attrs.get("unrolled")) for node in graph.nodes if node.op == "scan"]


def heat(steps: int) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return np.pad(u[1:-1, 1:-1] * 0.2 + around * 0.2, 1)

    return lambda u: af.fori_loop(0, steps, step, u)


@pytest.mark.parametrize(
    ("steps", "times", "loops"),
    [
        (16, 8, [(2, 8)]),
        (19, 4, [(4, 4), (3, None)]),
        (9, 2, [(4, 2), (1, None)]),
        (7, 4, [(7, None)]),
    ],
)
def test_iterations_that_are_left_over_are_a_loop_of_their_own(steps, times, loops):
    assert _loops(_unrolled(times, heat(steps), U)) == loops


def test_loops_that_are_kernels_and_loops_with_products_stay():
    def plain(u: Any) -> Any:
        return af.fori_loop(0, 20, lambda i, u: np.tanh(u), u)

    def product(u: Any) -> Any:
        return af.fori_loop(0, 20, lambda i, u: np.pad(np.tanh(u.T @ u)[1:, :], ((0, 2), (0, 0))), u)

    for function in (plain, product):
        assert _loops(_unrolled(4, function, U)) == [(20, None)]


@pytest.mark.parametrize("seed", range(30))
def test_random_loops(seed):
    function, arrays = random_loop(seed)
    _unrolled((2, 4, 8)[seed % 3], function, *arrays)


@pytest.mark.slow
def test_many_random_loops():
    for seed in range(1000, 1800):
        function, arrays = random_loop(seed)
        _unrolled((2, 4, 8)[seed % 3], function, *arrays)


@pytest.mark.parametrize("seed", range(3))
def test_plans(seed):
    _compare_plan(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 180))
def test_many_plans(seed):
    _compare_plan(seed)


def _compare_plan(seed: int) -> None:
    function, arrays = random_loop(seed)
    choices = f"unrolled={(2, 4, 8)[seed % 3]}"
    plan = af.compile(function, *arrays, variants=choices, policy=("analytical", "greedy")[seed % 2])
    (state, rows) = plan(*arrays)
    results = [*state, *([] if rows is None else [rows])]
    for found, right in zip(results, interpret(af.trace(function, *arrays), *arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)  # tanh of vectors
