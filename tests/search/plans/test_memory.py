"""Plans within a limit on memory."""

from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, SearchError
from autofuse.plan.document import Launch
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.policies.analytical import Analytical, solve_at
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.unfused import Unfused
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import Sketch, layers_graph, softmax_graph
from tests.fixtures.benches import MS, CountedBench
from tests.fixtures.tuning import counted, tuned, tuner_of

FIXED = 2 * 64 * 64 * 4
"""Bytes of the argument and the result of `softmax_graph(64, 64)`."""
ONE = 64 * 64 * 4


def limited(graph, nbytes):
    return context_of(graph, memory=nbytes)


def small_ones_cheap(space):
    """Prices at which nothing is worth fusing."""
    return {c.digest: 1.0 if len(c.atoms) == 1 else 100.0 * len(c.atoms) for c in space.candidates}


def document(context, solution):
    partition = Partition(context.space.atom_graph, solution.kernels, {}, solution.price_us, solution)
    return document_of(context, partition, identity_here())


def peak(context, plan):
    return MemoryLimit(1, context.program, context.limits).memory(plan.kernels, plan.order).peak_bytes


def test_dear_fusions_are_made_where_memory_is_short():
    plenty = limited(softmax_graph(64, 64), 10 * FIXED)
    short = limited(softmax_graph(64, 64), FIXED + ONE // 2)
    apart, fused = (solve_at(c, c.space, small_ones_cheap(c.space)) for c in (plenty, short))
    assert len(apart.kernels) == len(plenty.space.atom_graph.atoms)
    assert fused.price_us > apart.price_us
    assert peak(plenty, document(plenty, apart)) > FIXED + ONE // 2
    assert peak(short, document(short, fused)) <= FIXED + ONE // 2


@pytest.mark.parametrize("seed", range(12))
def test_a_limit_is_kept_or_refused(seed):
    graph = random_graph(np.random.default_rng(seed), 12)
    context = context_of(graph)
    prices = small_ones_cheap(context.space)
    free = document(context, solve_at(context, context.space, prices))
    needed = peak(context, free)
    inputs = MemoryLimit(1, context.program, context.limits).memory(free.kernels, free.order).fixed_bytes
    for share in (0.0, 0.4, 0.8):
        tight = limited(graph, int(inputs + share * (needed - inputs)))
        try:
            solution = solve_at(tight, tight.space, small_ones_cheap(tight.space))
        except SearchError:
            continue
        assert peak(tight, document(tight, solution)) <= tight.memory.nbytes


def test_kernels_run_one_by_one_where_running_together_takes_too_much():
    sketch = Sketch("side by side")
    x = sketch.arg("f32[1024]")
    tops = [sketch.reduce(sketch.op("exp", sketch.op("multiply", x, sketch.splat(n, x))), 0) for n in (1.0, 2.0, 3.0)]
    context = context_of(sketch.finish(tops))
    partition = Unfused().partition(context)
    together = document_of(context, partition, identity_here())
    assert any(launch.group_place for launch in together.order)
    alone = peak(context, together) - 4096
    context = replace(
        context, problem=replace(context.problem, memory=MemoryLimit(alone, context.program, context.limits))
    )
    assert document_of(context, partition, identity_here()).order == tuple(
        Launch(number) for number in range(len(together.kernels))
    )


def test_too_little_memory_says_what_is_needed():
    context = limited(softmax_graph(64, 64), FIXED - 1)
    with pytest.raises(SearchError, match=f"max_memory={FIXED - 1}: arguments, constants and results alone take"):
        Analytical().partition(context)


def test_where_nothing_fits_the_smallest_plan_found_is_named():
    context = limited(softmax_graph(64, 64), FIXED)
    atoms = context.space.atom_graph
    first = solve_at(context_of(softmax_graph(64, 64)), context.space, small_ones_cheap(context.space))

    def solve(constraints, seconds):
        if constraints:
            raise SearchError("infeasible")
        return first

    with pytest.raises(SearchError, match=f"max_memory={FIXED}: no plan was found that takes so little; the smallest"):
        context.memory.solve(atoms, solve, 10.0)


def less_their_peaks(x):
    x -= x.max(axis=1, keepdims=True)


def test_a_result_goes_straight_into_its_argument_where_memory_is_short():
    """One kernel computes peaks and differences in two passes over the argument, which it may not overwrite meanwhile;
    two kernels may."""
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    rows = 512 * 4
    limit = x.nbytes + 4 * rows
    assert len(af.compile(less_their_peaks, x).kernels) == 1
    plan = af.compile(less_their_peaks, x, max_memory=limit)
    assert len(plan.kernels) == 2
    expected, given = x.copy(), x.copy()
    less_their_peaks(expected)
    plan(given)
    np.testing.assert_array_equal(given, expected)
    with pytest.raises(SearchError, match="arguments, constants and results alone take"):
        af.compile(less_their_peaks, x, max_memory=x.nbytes - 1)


def test_beside_a_call_that_may_fail_no_result_goes_into_its_argument():
    def step(s, a):
        s[:] = np.exp(s) + np.linalg.inv(a)

    arrays = np.ones((64, 64)), np.eye(64)
    with pytest.raises(SearchError, match=f"arguments, constants and results alone take {3 * arrays[0].nbytes}"):
        af.compile(step, *arrays, on_unsupported="eager", max_memory=3 * arrays[0].nbytes - 1)


def test_a_limit_far_below_the_size_of_a_value_still_makes_progress():
    """What is missing is a part in a million of what is alive: too little for the solver to see in bytes."""
    graph = softmax_graph(4096, 4096)
    one = 4096 * 4096 * 4
    free = limited(graph, 100 * one)
    apart = document(free, solve_at(free, free.space, small_ones_cheap(free.space)))
    tight = limited(graph, peak(free, apart) - 1)
    solution = solve_at(tight, tight.space, small_ones_cheap(tight.space), deadline_s=20.0)
    assert peak(tight, document(tight, solution)) < peak(free, apart)


def test_what_is_proved_under_a_limit_is_no_bound_for_plans_in_general():
    free, short = (limited(softmax_graph(64, 64), nbytes) for nbytes in (10 * FIXED, FIXED + ONE // 2))
    apart, fused = (solve_at(c, c.space, small_ones_cheap(c.space)) for c in (free, short))
    assert apart.optimal
    assert not fused.optimal
    assert fused.bound_us == pytest.approx(apart.price_us)
    (note,) = [note for note in document(short, fused).notes if note.startswith("the best partition found")]
    assert "of those that keep the limit on memory: under these costs no plan takes less than" in note
    assert not any("partition found" in note for note in document(free, apart).notes)


def test_a_pinned_schedule_counts_with_its_workspace():
    x = np.random.default_rng(0).standard_normal((64, 65536)).astype(np.float32)
    pin = [af.Pin("reduce*", schedule={"split": 32})]
    total = lambda x: x.sum(axis=1)  # noqa: E731
    taken = peak_of(af.compile(total, x, rules=pin))
    assert taken > peak_of(af.compile(total, x))
    plan = af.compile(total, x, rules=pin, max_memory=taken)
    assert [dict(kernel.schedule.to_json()).get("split") for kernel in plan.kernels] == [32]
    with pytest.raises(SearchError, match="no plan was found that takes so little"):
        af.compile(total, x, rules=pin, max_memory=taken - 1)


def peak_of(plan):
    context = context_of(plan.graph)
    return MemoryLimit(1, context.program, context.limits).memory(plan.document.kernels, plan.document.order).peak_bytes


# ---- policies and the tuner ------------------------------------------------------------------------------------------


def softmax(x):
    shifted = x - x.max(axis=1, keepdims=True)
    grown = np.exp(shifted)
    return grown / grown.sum(axis=1, keepdims=True)


def test_policies_that_do_not_look_for_it_are_checked():
    x = np.zeros((64, 64), np.float32)
    assert len(af.compile(softmax, x, max_memory=FIXED + 4096).kernels) < 5
    with pytest.raises(SearchError, match=r"max_memory=36864: the plan of policy='unfused' takes \d+ bytes"):
        af.compile(softmax, x, policy="unfused", max_memory=FIXED + 4096)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1G", True])
def test_a_limit_is_a_number_of_bytes(wrong):
    with pytest.raises(ArgumentError, match="max_memory="):
        af.compile(softmax, np.zeros((8, 8), np.float32), max_memory=wrong)


def test_a_tuned_plan_keeps_the_limit_where_more_memory_would_be_faster():
    graph = softmax_graph(64, 64)
    context = counted(graph, memory=FIXED + ONE // 2)
    bench = CountedBench(graph, lambda kernel, schedule, ns: MS * (0.1 + 10 * (len(kernel.nodes) > 3)))
    plan = tuned(graph, bench, context=context)
    assert peak(context, plan) <= context.memory.nbytes
    assert all(peak(context, raced) <= context.memory.nbytes for raced in bench.raced)


def test_a_fixed_policy_is_refused_before_anything_is_measured():
    graph = layers_graph(2, 64, 64)
    context = counted(graph, memory=sum(value.type.nbytes for value in (*graph.inputs, *graph.outputs)) + 64)
    bench = CountedBench(graph)
    with pytest.raises(SearchError, match="the plan of policy='unfused' takes"):
        tuner_of(graph, bench, context=context).fixed_plan(Unfused())
    assert not bench.records
