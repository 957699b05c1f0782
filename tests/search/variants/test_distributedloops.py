"""Loops whose iterations need nothing of one another: their work is done at once where the model is sure of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.api.partitioning import make_context, settled
from autofuse.api.programs import traced_program
from autofuse.frontend.traced import trace
from autofuse.fusion.userrules import Pin
from autofuse.ir.optable import role_of
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.variants import distributedloops
from autofuse.search.variants.distributedloops import DISTRIBUTED, distributed_loops
from autofuse.search.variants.variants import Variants
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server


def products(a: Any, x: Any, y: Any) -> Any:
    """One element after another (PolyBench mvt)."""
    for i in range(len(a)):
        y[i] += a[i] @ x


def recurrence(a: Any, x: Any, y: Any) -> Any:
    for i in range(len(a)):
        x = np.tanh(a @ x)
        y[i] = x.max()


def about(function: Any, side: int, rules: Any = ()) -> Context:
    specs = (af.spec(f"f64[{side},{side}]"), af.spec(f"f64[{side}]"), af.spec(f"f64[{side}]"))
    return make_context(traced_program(trace(function, *specs)), CpuTarget(server(2)), rules)


def priced(context: Context) -> Variants:
    usual = Analytical().partition(context)
    return distributed_loops(context, usual, lambda each: (each, Analytical().partition(each)))


def test_a_product_takes_the_place_of_a_loop_of_products() -> None:
    context = about(products, 1000)
    found = priced(context)
    best = found.predicted()
    assert best.choices == DISTRIBUTED
    assert 2 * best.price_us < found.usual.price_us
    sums = [node for node in best.context.program.graph.nodes if role_of(node).is_reduction_like]
    assert [node.output.type.size for node in sums] == [1000]
    variant = settled(context).program.variant
    assert variant is not None
    assert variant.choices == DISTRIBUTED.label


def test_nobody_looks_at_small_loops_at_recurrences_and_where_rules_name_the_graph() -> None:
    for context in (about(products, 20), about(recurrence, 300), about(products, 1000, [Pin("scan")])):
        assert priced(context).predicted().choices != DISTRIBUTED


def test_a_graph_that_takes_much_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributedloops, "_stored_bytes", lambda _: 200 << 20)
    found = priced(about(products, 1000))
    assert found.predicted() is found.usual
    assert found.left_out == (
        "graph variant loops=distributed was left out: its arrays of all iterations take 209715200 bytes",
    )


def test_plans_of_such_loops_are_numpys() -> None:
    rng = np.random.default_rng(3)
    a, x, y = rng.standard_normal((700, 701)), rng.standard_normal(701), rng.standard_normal(700)
    plan = af.compile(products, a, x, y)
    expected = y + a @ x
    plan(a, x, y)
    np.testing.assert_allclose(y, expected, rtol=1e-10)
