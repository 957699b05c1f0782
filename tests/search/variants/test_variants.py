"""Variants of a graph: which there are, what they cost by the model, and which plan is kept when they are measured."""

import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from autofuse.api.partitioning import drive
from autofuse.errors import MeasureError
from autofuse.ir.digest import digest
from autofuse.ir.interpreter import interpret
from autofuse.passes.choices import DEFAULT, alternatives, read_choices
from autofuse.passes.pipeline import clean
from autofuse.plan.verify import verify
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.space.candidates import Bounds
from autofuse.search.variants import variants
from autofuse.search.variants.measured_variants import budget_shares, tune_variants
from autofuse.search.variants.variants import (
    Variant,
    Variants,
    has_variants,
    is_clearly_cheaper,
    price_variants,
    varied,
)
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.counted.nearworker import DeathError
from autofuse.testing.devices import server
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import TARGET, context_of, identity_here
from autofuse.testing.sketches import Sketch, softmax_graph
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import counted, tuned

STEPS = read_choices("steps=joined")
COLUMNS = read_choices("columns=joined")


def rows_graph(steps=16, depth=1024, columns=1024):
    """The rows of a matrix, each times another matrix on its own: the second is read once per row."""
    build = Sketch("rows")
    x, w = build.arg(f"f32[{steps},{depth}]"), build.arg(f"f32[{depth},{columns}]", "w")
    results = []
    for t in range(steps):
        row = build.op("slice", x, start_indices=(t, 0), limit_indices=(t + 1, depth), strides=(1, 1))
        results.append(build.op("tanh", build.dot(build.reshape(row, depth), w)))
    return clean(build.finish(results))


def heads_graph(heads=4, rows=32, width=48):
    """Some products of one input: joining them gains little."""
    build = Sketch("heads")
    x = build.arg(f"f32[{rows},{width}]")
    return clean(build.finish([build.dot(x, build.arg(f"f32[{width},{width}]", f"w{n}")) for n in range(heads)]))


# ---- which there are -------------------------------------------------------------------------------------------------


def test_a_program_that_no_choice_concerns_has_no_variants():
    context = context_of(clean(softmax_graph()))
    assert not has_variants(context.program)
    found = price_variants(context)
    assert (found.others, found.left_out, found.notes()) == ((), (), ())
    assert found.predicted() is found.usual
    assert not found.finalists()


def test_each_distinct_graph_is_priced_once():
    found = price_variants(context_of(heads_graph()))
    assert [variant.choices.label for variant in found.others] == ["columns=joined"]
    assert has_variants(found.usual.context.program)


def test_choices_that_help_are_combined():
    """Rows of one array with two matrices: steps can be joined, and what they give side by side."""
    build = Sketch("both")
    x = build.arg("f32[6,128]")
    ws = [build.arg("f32[128,24]", f"w{n}") for n in range(2)]
    results = []
    for t in range(6):
        row = build.reshape(build.op("slice", x, start_indices=(t, 0), limit_indices=(t + 1, 128), strides=(1, 1)), 128)
        results += [build.op("tanh", build.dot(row, w)) for w in ws]
    found = price_variants(context_of(clean(build.finish(results))))
    words = [variant.choices.label for variant in found.others]
    assert words[:2] == ["columns=joined", "steps=joined"]
    assert words[2:] in ([], ["columns=joined,steps=joined"])
    helpful = [variant for variant in found.others[:2] if variant.price_us < found.usual.price_us]
    assert len(words) == 3 or len(helpful) < 2


def test_the_product_of_short_iterations_leaves_the_loop():
    """One row in each, so that the matrix is read again for every one of them."""
    build = Sketch("cell")
    h, x = build.arg("f32[1,64]", "h"), build.arg("f32[256,1,1024]")
    w, u = build.arg("f32[1024,64]", "w"), build.arg("f32[64,64]", "u")
    body = Sketch("body", build)
    given, row = body.arg("f32[1,64]"), body.arg("f32[1,1024]")
    after = body.op("tanh", body.op("add", body.dot(row, w), body.dot(given, u)))
    region = body.finish([after, after])
    results = build.emit_many("scan", [h, x], regions=[region], length=256, carries=1, reverse=False)
    target = CpuTarget(server(2), replace(TARGET.limits, iteration_us=0.1))
    context = context_of(clean(build.finish(results)), target=target)
    drive(context, Analytical(), None)
    assert price_variants(context).predicted().choices.label == "loops=distributed"


def test_a_variant_knows_where_it_comes_from_and_computes_the_same():
    graph = rows_graph(4, 8, 6)
    program = varied(context_of(graph).program, STEPS)
    assert program.variant.choices == "steps=joined"
    assert program.variant.origin == digest(graph) != digest(program.graph)
    assert program.notes == ("graph variant: steps=joined",)
    arrays = random_inputs(graph, np.random.default_rng(0))
    for old, new in zip(interpret(graph, *arrays), interpret(program.graph, *arrays), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)  # sums of 8 f32, perhaps in another order


def test_each_has_a_part_of_the_time_for_enumeration():
    context = context_of(heads_graph(), bounds=Bounds(seconds=60.0))
    found = price_variants(context)
    assert found.usual.context.kernels.bounds.seconds == 60.0
    assert [v.context.kernels.bounds.seconds for v in found.others] == [60.0 / len(alternatives())]


def test_when_the_time_is_up_no_further_graph_is_priced():
    ticks = iter([0.0, 5.0])
    found = price_variants(context_of(heads_graph()), 5.0, lambda: next(ticks))
    assert found.others == ()
    assert found.notes() == ("graph variant columns=joined was not priced: the time was up",)


def test_large_programs_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(variants, "LARGE", 3)
    found = price_variants(context_of(heads_graph()))
    assert found.others == ()
    assert found.notes() == ("graph variants were not priced: 4 nodes, the limit is 3",)


def test_a_graph_that_cannot_be_planned_is_left_out_with_the_reason(monkeypatch):
    context = context_of(heads_graph())
    real = Analytical.partition

    def partition(self, context):
        if context.program.variant is not None:
            raise variants.SearchError("no cover")
        return real(self, context)

    monkeypatch.setattr(Analytical, "partition", partition)
    found = price_variants(context)
    assert found.others == ()
    assert found.left_out == ("graph variant columns=joined cannot be planned: no cover",)


# ---- what the model says ---------------------------------------------------------------------------------------------


def test_a_variant_that_is_clearly_cheaper_is_predicted():
    """Sixteen products with a vector read four megabytes sixteen times; one product reads them once."""
    found = price_variants(context_of(rows_graph()))
    (steps,) = [variant for variant in found.others if variant.choices == STEPS]
    assert steps.price_us < 0.5 * found.usual.price_us
    assert found.predicted().price_us <= steps.price_us
    assert found.predicted().choices.steps == "joined"
    plan = document_of(steps.context, steps.partition, identity_here())
    verify(plan)
    assert plan.program_digest == digest(found.usual.context.program.graph) != plan.graph_digest
    assert "graph variant: steps=joined" in plan.notes


def test_a_gain_within_the_noise_of_the_model_is_not_taken():
    found = price_variants(context_of(heads_graph()))
    (columns,) = found.others
    for gain in (-0.1, 0.0, 0.01, 0.05):
        nearly = replace(columns.partition, price_us=(1 - gain) * found.usual.price_us)
        variant = replace(columns, partition=nearly)
        assert not is_clearly_cheaper(variant, found.usual)
        assert Variants(found.usual, (variant,), ()).predicted() is found.usual


def test_kernels_that_both_have_add_no_noise():
    """Of a partition and itself at a lower price, nothing is apart: the least gain alone decides."""
    usual = price_variants(context_of(heads_graph())).usual
    for gain, is_cheaper in ((0.5 * variants.LEAST_GAIN, False), (2 * variants.LEAST_GAIN, True)):
        cheaper = replace(usual, partition=replace(usual.partition, price_us=(1 - gain) * usual.price_us))
        assert is_clearly_cheaper(cheaper, usual) is is_cheaper


def test_finalists_are_the_cheapest_few_that_are_close_to_the_best():
    usual = price_variants(context_of(clean(softmax_graph()))).usual

    def at(price):
        return Variant(DEFAULT, usual.context, replace(usual.partition, price_us=price * usual.price_us))

    others = tuple(map(at, (1.05, 0.97, 1.2, 1.0, 1.01)))
    assert Variants(usual, others, ()).finalists() == [others[1], others[3]]
    assert Variants(usual, (at(0.5),), ()).finalists()
    assert not Variants(usual, (at(1.2),), ()).finalists()
    assert not Variants(usual, (), ()).finalists()


def test_notes_give_every_price():
    found = price_variants(context_of(heads_graph()))
    (note,) = found.notes()
    assert note.startswith("graph variants priced: default ")
    assert "columns=joined" in note


# ---- measured --------------------------------------------------------------------------------------------------------


class Machine:
    """Benches of several graphs, and a record of what was measured on which."""

    def __init__(self, joined=1.0):
        """`joined`: what the plan of a graph with fewer products costs, by the sum of its kernels."""
        self.joined = joined
        self.benches, self.budgets = {}, []

    @contextmanager
    def bench_for(self, context):
        words = DEFAULT.label if context.program.variant is None else context.program.variant.choices
        factor = 1.0 if words == "default" else self.joined

        def cost(kernel, schedule, ns):
            return factor * ns

        self.benches[words] = CountedBench(context.program.graph, cost, self.plan_cost)
        yield self.benches[words]

    def plan_cost(self, plan, ns):
        return 1e3 * self.plan_us(plan)

    def plan_us(self, plan):
        if self.joined == math.inf and plan.variant is not None:
            raise DeathError
        total = sum(kernel.measured_us or 0.0 for kernel in plan.kernels)
        return total or 1e6

    def tune(self, context, bench, budget):
        self.budgets.append(budget)
        return tuned(context.program.graph, bench, budget=budget, context=context)

    def plan(self, found, budget=Budget(1000.0)):  # noqa: B008 - frozen
        return tune_variants(found, self.tune, self.bench_for, budget, 0)


@pytest.fixture(scope="module")
def heads():
    """Priced so that the variant is close to the usual graph."""
    found = price_variants(counted(heads_graph()))
    (columns,) = found.others
    nearly = replace(columns, partition=replace(columns.partition, price_us=found.usual.price_us))
    return Variants(found.usual, (nearly,), ())


def test_the_variant_that_is_measured_to_be_faster_is_kept(heads):
    machine = Machine(joined=0.1)
    plan = machine.plan(heads)
    verify(plan)
    assert set(machine.benches) == {"default", "columns=joined"}
    assert plan.variant.choices == "columns=joined"
    assert plan.certificate is not None
    assert plan.program_digest == digest(heads.usual.context.program.graph)
    assert any(note.startswith("graph variants measured: columns=joined ") for note in plan.notes)


def test_the_usual_graph_is_kept_where_the_variant_is_slower(heads):
    plan = Machine(joined=3.0).plan(heads)
    assert plan.variant is None
    assert any(note.startswith("graph variants measured: ") for note in plan.notes)


def test_ties_go_to_the_usual_graph(heads):
    machine = Machine()
    machine.plan_us = lambda plan: 50_000.0
    assert machine.plan(heads).variant is None


def test_a_variant_whose_kernels_fail_is_out_with_a_note(heads):
    plan = Machine(joined=math.inf).plan(heads)
    assert plan.variant is None
    assert any(note.startswith("graph variant columns=joined cannot be measured: ") for note in plan.notes)


def test_a_failure_of_the_usual_graph_is_an_error(heads):
    machine = Machine()
    machine.tune = lambda context, bench, budget: (_ for _ in ()).throw(MeasureError("no worker"))
    with pytest.raises(MeasureError, match="no worker"):
        machine.plan(heads)


def test_without_finalists_the_usual_graph_has_the_whole_budget():
    found = price_variants(counted(clean(softmax_graph(32, 32))))
    machine = Machine()
    plan = machine.plan(found, Budget(7.0, 30))
    assert machine.budgets == [Budget(7.0, 30)]
    assert plan.variant is None
    assert not any("graph variant" in note for note in plan.notes)


def test_finalists_share_half_of_the_budget(heads):
    machine = Machine()
    machine.plan(heads, Budget(60.0, 41))
    assert machine.budgets == [Budget(28.5, 20), Budget(28.5, 20)]  # 3 s are kept for running their plans
    assert budget_shares(Budget(60.0, None), 2) == (Budget(30.0, None), Budget(15.0, None))


def test_a_finalist_for_which_no_measurement_is_left_is_out_with_a_note(heads):
    machine = Machine()
    plan = machine.plan(heads, Budget(60.0, 1))
    assert machine.budgets == [Budget(60.0, 1)]
    assert "graph variant columns=joined was not measured: max_trials is too small" in plan.notes
    machine.plan(heads, Budget(60.0, 2))
    assert machine.budgets[1:] == [Budget(28.5, 1), Budget(28.5, 1)]
