"""Functions that are NumPy's own where its way takes less work than kernels would: long tables, long filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.frontend.traced import trace

RNG = np.random.default_rng(0)
KNOTS = np.sort(RNG.standard_normal(200))
X = np.append(RNG.standard_normal(50), [np.nan, KNOTS[3], np.inf])

PROGRAMS: dict[str, Any] = {
    "searchsorted": lambda k, x: (np.searchsorted(k, x), np.searchsorted(k, x.reshape(1, -1), side="right")),
    "searchsorted of one": lambda k, x: np.searchsorted(k, x[0]),
    "digitize": lambda k, x: (np.digitize(x, k), np.digitize(x, k[::-1], right=True)),
    "isin": lambda k, x: (np.isin(x, k), np.isin(x, k, invert=True)),
    "isin of integers": lambda k, x: np.isin((k * 9).astype(int), (x[:50] * 9).astype(int)),
    "interp": lambda k, x: np.interp(x[:50], k, k * 2),
    "convolve": lambda k, x: tuple(np.convolve(k, x[:50], mode) for mode in ("full", "same", "valid")),
    "convolve, filter first": lambda k, x: np.convolve((x[:50] * 9).astype(np.int32), (k * 9).astype(np.int32)),
    "correlate": lambda k, x: (np.correlate(k, x[:50]), np.correlate(x[:50], k, "full")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_numpy(name: str, agrees: Any) -> None:
    traced = agrees(PROGRAMS[name], KNOTS, X, ulps=256)
    assert any(node.op == "custom_call" for node in traced.graph.nodes)
    assert not traced.left_to_numpy, "this is how the function is implemented"


def test_few_are_compared_in_kernels() -> None:
    for function in (np.searchsorted, np.convolve):
        graph = trace(lambda k, x, f=function: f(k, x), KNOTS[:8], X).graph
        assert all(node.op != "custom_call" for node in graph.nodes)
