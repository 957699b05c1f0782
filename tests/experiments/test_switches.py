"""Searches without one of their parts, that they say so, and searches limited to given kernels."""

from pathlib import Path

import numpy as np
import pytest

from autofuse.fusion.kind import kind_of
from autofuse.lower.schedule import Schedule
from autofuse.search.policies.analytical import Analytical, solve_at
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.unfused import Unfused
from autofuse.search.rules.xla.gpu_pipeline import XlaClassic
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.testing.fusions import check_plan
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.search_policies import decisions
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, layers_graph, softmax_graph
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import tuner_of

GRAPHS = {
    "softmax": softmax_graph(16, 16),
    "attention": attention_graph(16, 8),
    "diamond": diamond_graph(1024),
    "layers": layers_graph(2, 8, 16),
    **{f"random {seed}": random_graph(np.random.default_rng(seed), 14) for seed in range(4)},
}
PARTS = ("recompute", "stitch", "multi_output", "horizontal")
STUDY = Path(__file__).resolve().parents[2] / "experiments" / "rules_vs_search"
MODULES = ("reachable", "switches")


@pytest.fixture
def without(study):
    """The context of a graph, without a part of the search."""
    return lambda graph, part: study["switches"].PARTS[part](context_of(graph))


@pytest.fixture
def limited_to(study):
    return study["reachable"].limited_to


def test_there_are_four_parts(study):
    assert tuple(study["switches"].PARTS) == PARTS


def fused(context):
    """The candidates of several atoms."""
    return [candidate for candidate in context.space.candidates if len(candidate.atoms) > 1]


@pytest.mark.parametrize("switch", PARTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_without_a_part_of_the_search_there_is_still_a_right_plan(name, switch, without):
    graph = GRAPHS[name]
    context = without(graph, switch)
    plan = document_of(context, Analytical().partition(context), identity_here())
    check_plan(plan, random_inputs(graph, np.random.default_rng(0)))


def test_without_stitching_no_kernel_has_stages_that_wait_for_one_another(without):
    free, context = context_of(GRAPHS["softmax"]), without(GRAPHS["softmax"], "stitch")
    assert "stitch" in {kind_of(candidate.kernel) for candidate in fused(free)}
    assert "stitch" not in {kind_of(candidate.kernel) for candidate in fused(context)}
    assert any("switched off: stages" in reason for reason in context.space.refused.values())


def test_without_several_outputs_every_kernel_writes_one_value(without):
    free, context = context_of(GRAPHS["diamond"]), without(GRAPHS["diamond"], "multi_output")
    assert any(len(candidate.outputs) > 1 for candidate in fused(free))
    assert fused(context)
    assert all(len(candidate.outputs) == 1 for candidate in fused(context))
    assert any("switched off: kernels that write" in reason for reason in context.space.refused.values())


def test_without_several_outputs_a_kernel_of_a_value_and_its_reader_writes_what_is_read_last(without):
    context = without(GRAPHS["diamond"], "multi_output")
    found = {
        frozenset(node.name for atom in candidate.atoms for node in atom.nodes): candidate.outputs
        for candidate in fused(context)
    }
    assert [value.name for value in found[frozenset(("grown", "columns"))]] == ["columns"]


def prices_for(context, *cheap):
    """One for the kernels of these nodes, ten for all others."""
    wanted = [frozenset(names.split()) for names in cheap]
    return {
        candidate.digest: 1.0
        if frozenset(node.name for atom in candidate.atoms for node in atom.nodes) in wanted
        else 10.0
        for candidate in context.space.candidates
    }


@pytest.mark.parametrize(("switch", "times"), [("horizontal", 2), ("recompute", 1)])
def test_a_value_is_computed_twice_only_where_that_is_allowed(switch, times, without):
    context = without(GRAPHS["diamond"], switch)
    prices = prices_for(context, "grown columns", "grown rows share")
    solution = solve_at(context, context.space, prices)
    names = [node.name for k in solution.kernels for atom in k.candidate.atoms for node in atom.nodes]
    assert names.count("grown") == times
    assert solution.optimal


def test_without_computing_twice_no_kernel_keeps_a_value_to_itself(without):
    sketch = Sketch("centred")
    x = sketch.arg("f32[64,64]")
    y = sketch.op("exp", x, name="y")
    graph = sketch.finish([sketch.op("divide", y, sketch.broadcast(sketch.reduce(y, 0, name="t"), x, 1), name="z")])

    def named(context):
        return {frozenset(n.name for atom in c.atoms for n in atom.nodes) for c in fused(context)}

    assert frozenset(("y", "z")) in named(context_of(graph))
    assert frozenset(("y", "z")) not in named(without(graph, "recompute"))


def test_without_sharing_launches_every_kernel_has_the_first_place(without):
    sketch = Sketch("side by side")
    graph = sketch.finish([sketch.op("exp", sketch.arg("f32[8]", f"x{n}")) for n in range(3)])
    lanes = {}
    for switch in ("stitch", "horizontal"):
        context = without(graph, switch)
        plan = document_of(context, Unfused().partition(context), identity_here())
        lanes[switch] = [launch.group_place for launch in plan.order]
    assert lanes == {"stitch": [0, 1, 2], "horizontal": [0, 0, 0]}


def test_without_schedules_tuning_tries_none(study):
    graph = GRAPHS["softmax"]
    tried = {}
    for schedules in (True, False):
        bench = CountedBench(graph)
        kind = ScheduleTuner if schedules else study["switches"].DefaultSchedules
        tuner = tuner_of(graph, bench, schedules=kind)
        plan = tuner.measured_plan()
        tried[schedules] = plan.certificate.schedules_tried
        assert schedules or all(kernel.schedule == Schedule() for kernel in plan.kernels)
    assert tried[True] > tried[False] == 0


# ---- limited to given kernels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_a_search_among_the_kernels_of_rules_costs_no_more_than_the_rules(name, limited_to):
    context = context_of(GRAPHS[name])
    rules = XlaClassic().partition(context)
    limited = limited_to(context, [rules])
    found = Analytical().partition(limited)
    assert found.price_us <= rules.price_us * (1 + 1e-6)
    check_plan(document_of(limited, found, identity_here()), random_inputs(GRAPHS[name], np.random.default_rng(0)))


def test_the_limited_space_holds_the_given_kernels_and_the_single_operations(limited_to):
    context = context_of(GRAPHS["softmax"])
    whole = Analytical().partition(context)
    limited = limited_to(context, [whole])
    assert limited.space.atom_graph.graph is context.program.graph
    sizes = sorted(len(candidate.atoms) for candidate in limited.space.candidates)
    kernels = [nodes for nodes, _ in decisions(whole) if len(nodes) > 1]
    assert sizes == sorted([1] * 5 + [len(nodes) for nodes in kernels])


def test_kernels_of_several_partitions_can_be_mixed(limited_to):
    context = context_of(GRAPHS["layers"])
    one, other = Analytical().partition(context), XlaClassic().partition(context)
    both = Analytical().partition(limited_to(context, [one, other]))
    alone = [Analytical().partition(limited_to(context, [partition])) for partition in (one, other)]
    assert both.price_us <= min(partition.price_us for partition in alone) * (1 + 1e-6)


def test_nothing_given_leaves_the_single_operations(limited_to):
    context = context_of(GRAPHS["softmax"])
    empty = Analytical().partition(limited_to(context, list[Partition]()))
    assert [nodes for nodes, _ in decisions(empty)] == [["peak"], ["shifted"], ["grown"], ["total"], ["share"]]
