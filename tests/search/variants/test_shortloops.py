"""Loops of a few iterations that a driver would run: written out where the model says that this is cheaper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.api.partitioning import make_context, settled
from autofuse.api.programs import traced_program
from autofuse.frontend.traced import trace
from autofuse.search.policies.analytical import Analytical
from autofuse.search.variants.shortloops import short_loops
from autofuse.targets.base import find_target

WRITTEN_OUT = "unrolled=all"


def cell(x: Any, w: Any) -> Any:
    """A product in each step, of rows that depend on one another, so that no kernel is the loop."""

    def step(h: Any, row: Any) -> Any:
        h = np.tanh(np.roll(h, 1, 0) @ w + row)
        return h, h

    return af.scan(step, np.zeros((3, 80), np.float32), x)


def compiled(steps: int = 4, **options: Any) -> af.Plan:
    shapes = af.spec(f"f32[{steps},3,80]"), af.spec("f32[80,80]")
    return af.compile(cell, *shapes, **{"backend": "cuda", "device": "h200", "deadline": None, **options})


def choices_of(plan: af.Plan) -> str:
    return "default" if plan.document.variant is None else plan.document.variant.choices


@pytest.fixture(scope="module")
def plan() -> af.Plan:
    return compiled()


def test_a_short_loop_is_written_out_where_steps_of_the_driver_are_most_of_the_time(plan: af.Plan) -> None:
    assert choices_of(plan) == WRITTEN_OUT
    assert all(kernel.kind != "driver" for kernel in plan.kernels)
    (note,) = (note for note in plan.document.notes if note.startswith("graph variants priced"))
    assert "default" in note
    assert WRITTEN_OUT in note


def test_a_loop_stays_where_a_user_says_so_where_its_length_or_the_prices_do_and_where_time_is_up() -> None:
    assert {kernel.kind for kernel in compiled(variants="unrolled=1").kernels} == {"driver"}
    assert choices_of(compiled(400)) == "default"
    assert choices_of(compiled(backend="cpu", device=None)) == "default"
    late = compiled(deadline=1e-3)
    assert choices_of(late) == "default"
    assert f"graph variant {WRITTEN_OUT} was not priced: the time was up" in late.document.notes


def test_rules_are_about_the_graph_that_they_name() -> None:
    assert choices_of(compiled(rules=[af.Pin("scan")])) == "default"


def test_tuning_starts_from_the_graph_that_the_model_is_sure_of() -> None:
    target = find_target("cuda", None, "h200")
    program = traced_program(trace(cell, af.spec("f32[4,3,80]"), af.spec("f32[80,80]")))
    context = settled(make_context(program, target))
    assert context.program.variant is not None
    assert context.program.variant.choices == WRITTEN_OUT
    assert settled(context) is context


@pytest.mark.slow
def test_what_a_loop_runs_costs_the_same_in_both_graphs() -> None:
    """So the driver's steps decide, though they are the smaller part: 60 us of some 250."""

    def centred(u: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            return np.tanh(u - u.mean(0)), None

        return af.scan(step, u, None, length=4)[0]

    program = traced_program(trace(centred, af.spec("f32[4096,4096]")))
    context = make_context(program, find_target("cuda", None, "h200"))
    found = short_loops(context, Analytical().partition(context), lambda each: (each, Analytical().partition(each)))
    (other,) = found.others
    assert 0.3 * found.usual.price_us > 60
    assert found.predicted() is other
