"""Rolled loops in tests: rolled, unrolled and NumPy's own results, and which loops a graph has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.frontend.traced import trace
from autofuse.frontend.tracedprogram import Traced
from autofuse.ir.interpreter import interpret
from tests.fixtures.pythonprograms import difference


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def run(traced: Traced, args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """What the interpreter returns, and what it leaves in the arguments."""
    outputs = interpret(traced.graph, *(np.asarray(leaf) for leaf in traced.flatten(args)))
    left = [a for a in args if isinstance(a, np.ndarray | np.generic)]
    for number, output in traced.writebacks:
        left[number] = outputs[output]
    return traced.unflatten(list(outputs)), left


def agree(function: Callable[..., Any], *args: Any, rtol: float = 1e-9, unrolled: bool = True) -> Traced:
    """Rolled, unrolled and NumPy's own give the same results, and write the same into arguments."""
    own = copied(args)
    with np.errstate(all="ignore"):
        expected = function(*own)
    arguments = [a for a in own if isinstance(a, np.ndarray | np.generic)]
    ways = [trace(function, *copied(args), roll=roll) for roll in ((True, False) if unrolled else (True,))]
    for traced in ways:
        with np.errstate(all="ignore"):
            returned, left = run(traced, args)
        for got, wanted in zip(_flat(returned), _flat(expected), strict=True):
            assert got.dtype == wanted.dtype
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
        for got, wanted in zip(left, arguments, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
    return ways[0]


def serves_all_values(function: Callable[[Any], Any], rng: np.random.Generator, length: int) -> None:
    """One trace for an array of numbers below 1 gives, and writes, what NumPy does for others."""
    traced = trace(function, rng.random(length))
    for _ in range(4):
        x = rng.random(length)
        own = x.copy()
        wanted = function(own)
        got, (left,) = run(traced, (x,))
        assert not difference(wanted, got, "result", rounded=False)
        np.testing.assert_equal(left, own)


def _flat(value: Any) -> list[Any]:
    parts = value if isinstance(value, tuple | list) else [] if value is None else [value]
    return [np.asarray(part) for part in parts]


def loops(traced: Traced) -> list[str]:
    """The loops of the graph, of all depths, by op and length."""

    def within(graph: Any) -> list[str]:
        found: list[str] = []
        for node in graph.nodes:
            if node.op in ("scan", "while"):
                found.append(f"{node.op} {node.attrs.get('length', '')}".strip())
            for region in node.regions:
                found += within(region)
        return found

    return within(traced.graph)
