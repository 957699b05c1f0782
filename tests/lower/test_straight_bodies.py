"""Bodies of loops without control: what they compute, and what is not written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.ir.verifier import verify
from autofuse.lower.straightbodies import straight_body

F32 = np.float32
H, ROWS = np.linspace(-1, 2, 5).astype(F32), np.arange(15, dtype=F32).reshape(3, 5)


def body_of(function: Any) -> Graph:
    """The body of a function's loop, as a graph of its own."""
    graph = af.trace(lambda h, rows: af.scan(lambda h, _: function(h, rows), h, None, length=2), H, ROWS)
    (region,) = next(node.regions for node in graph.nodes if node.op == "scan")
    return Graph("body", (*region.inputs, *region.captures), region.nodes, region.outputs)


def walked(h: Any, rows: Any) -> Any:
    """Rows that come in and go out, from the last one to the first."""
    return af.scan(lambda h, row: (h * F32(0.5) + row, (h, row.max())), h, rows, reverse=True)


def nested(h: Any, rows: Any) -> Any:
    """A branch in a loop in a loop, which reads what is outside of both."""

    def inner(i: Any, g: Any) -> Any:
        return af.cond(g[i] > 0, lambda: g - h, lambda: g + rows[0])

    return af.fori_loop(0, 2, lambda _, g: af.fori_loop(0, 3, inner, g), h), h.sum()


def branches(h: Any, rows: Any) -> Any:
    """Several results, one of them alike on both sides."""
    low, high, same = af.cond(h[0] > 0, lambda: (h.min(), h, rows), lambda: (rows.min(), h * F32(2), rows))
    return high + low, same.sum()


@pytest.mark.parametrize("function", [walked, nested, branches])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_computed(function: Any, sign: int) -> None:
    body = body_of(function)
    straight = straight_body(body)
    verify(straight)
    assert not any(node.regions for node in straight.nodes)
    given = [H * F32(sign) if value.type.shape == H.shape else ROWS for value in body.inputs]
    for found, right in zip(interpret(straight, *given), interpret(body, *given), strict=True):
        np.testing.assert_array_equal(found, right)


def test_nothing_that_is_not_needed_is_computed() -> None:
    straight = straight_body(body_of(lambda h, rows: (af.scan(lambda g, r: (g, g * r), h, rows)[0], None)))
    assert not straight.nodes


def test_a_body_without_control_stays() -> None:
    body = body_of(lambda h, rows: (h * F32(2), rows.sum()))
    assert straight_body(body) is body
