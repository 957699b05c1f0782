"""The arena: buffers that live at the same time never overlap, and it is no larger than it must be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.ir.ops.calls import register_call
from autofuse.plan.document import Launch
from autofuse.runtime.memory import ALIGNMENT, Lifetime, plan_arena, plan_memory
from autofuse.runtime.planlowering import lower_plan
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch
from tests.fixtures.examples import examples


@pytest.fixture
def sketch():
    return Sketch("sketch")


LIVES = st.lists(
    st.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        st.integers(0, 1000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=24,
)


def padded(nbytes):
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


@examples(100)
@given(LIVES)
def test_what_lives_at_the_same_time_lies_apart(lifetimes):
    offsets, total = plan_arena(lifetimes)
    assert len(offsets) == len(lifetimes)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    places = [(o, o + padded(life.nbytes), life) for o, life in zip(offsets, lifetimes, strict=True)]
    assert all(high <= total for _, high, _ in places)
    for number, (low, high, life) in enumerate(places):
        for other_low, other_high, other in places[:number]:
            if life.first <= other.last and other.first <= life.last:
                assert high <= other_low or other_high <= low


@examples(100)
@given(LIVES)
def test_the_arena_is_no_smaller_than_any_moment_needs_and_no_larger_than_the_sum(lifetimes):
    _, total = plan_arena(lifetimes)
    steps = range(20)
    needed = [sum(padded(x.nbytes) for x in lifetimes if x.first <= step <= x.last) for step in steps]
    assert max(needed, default=0) <= total <= sum(padded(x.nbytes) for x in lifetimes)


def test_a_chain_needs_two_buffers():
    lifetimes = [Lifetime(640, step, step + 1) for step in range(10)]
    offsets, total = plan_arena(lifetimes)
    assert total == 2 * 640
    assert set(offsets) == {0, 640}


def test_a_small_buffer_takes_a_hole():
    lifetimes = [Lifetime(128, 0, 3), Lifetime(1024, 0, 0), Lifetime(64, 2, 3)]
    offsets, total = plan_arena(lifetimes)
    assert total == 1024 + 128
    assert offsets[2] == 0


def test_equal_sizes_are_placed_in_order():
    assert plan_arena([Lifetime(64, 0, 1)] * 3)[0] == (0, 64, 128)


@pytest.mark.parametrize("lifetimes", [[], [Lifetime(0, 0, 0)]])
def test_little_needs_little(lifetimes):
    _, total = plan_arena(lifetimes)
    assert total == ALIGNMENT * len(lifetimes)


# ---- a whole call ----------------------------------------------------------------------------------------------------


def memory_of(plan, lanes=None):
    order = tuple(Launch(number, lane) for number, lane in enumerate(lanes or [0] * len(plan.kernels)))
    lowered = lower_plan(replace(plan, order=order), LIMITS)
    return plan_memory(plan.graph, plan.writebacks, lowered)


def fan(sketch):
    """a -> b, c -> d, every value of 4096 bytes."""
    a = sketch.op("exp", sketch.arg("f32[1024]"), name="a")
    b, c = sketch.op("sin", a, name="b"), sketch.op("cos", a, name="c")
    return sketch.finish([sketch.op("add", b, c, name="d")])


def test_the_peak_is_all_that_exists_at_a_time(sketch):
    plan = plan_of(fan(sketch), [["a"], ["b"], ["c"], ["d"]])
    memory = memory_of(plan)
    assert memory.used == (4096, 2 * 4096, 3 * 4096, 2 * 4096)
    assert {value.name for value in memory.moment(2).values} == {"a", "b", "c"}
    assert memory.moment(2).nbytes == memory.arena_bytes == 3 * 4096
    assert (memory.argument_bytes, memory.constant_bytes, memory.result_bytes) == (4096, 0, 4096)
    assert memory.peak_bytes == 5 * 4096
    assert memory.launches == 4


def test_kernels_that_run_together_are_one_launch(sketch):
    memory = memory_of(plan_of(fan(sketch), [["a"], ["b"], ["c"], ["d"]]), lanes=(0, 0, 1, 0))
    assert memory.launches == 3
    assert memory.used == (4096, 3 * 4096, 2 * 4096)


def test_stored_constants_count_and_inlined_ones_do_not(sketch):
    table = sketch.constant(np.arange(1024, dtype=np.float32), "table")
    scaled = sketch.op("multiply", sketch.arg("f32[1024]"), table)
    graph = sketch.finish([sketch.op("add", scaled, sketch.splat(1.0, scaled))])
    assert memory_of(plan_of(graph)).constant_bytes == 4096


def test_a_result_in_the_memory_of_an_argument_takes_none(sketch):
    x = sketch.arg("f32[1024]")
    graph = sketch.finish([sketch.op("exp", x, name="y")])
    memory = memory_of(plan_of(graph, writebacks=(0,)))
    assert memory.aliases == ((0, 0),)
    assert (memory.result_bytes, memory.peak_bytes) == (0, 4096)


def test_no_argument_is_written_before_a_call_that_may_fail(sketch):
    register_call("tests.memory.fails", np.exp, replace=True)
    x, y = sketch.arg("f32[1024]"), sketch.arg("f32[1024]", "y")
    called = sketch.op("custom_call", y, name="called", call_target_name="tests.memory.fails", results=(y.type,))
    graph = sketch.finish([called, sketch.op("exp", x, name="new")])
    assert memory_of(plan_of(graph, [["new"], ["called"]], writebacks=(0,))).aliases == ()


def test_an_argument_may_be_written_beside_a_sort(sketch):
    x, y = sketch.arg("f32[1024]"), sketch.arg("f32[1024]", "y")
    ordered = sketch.op("sort", y, name="ordered", dimension=0, descending=False, stable=True)
    graph = sketch.finish([ordered, sketch.op("exp", x, name="new")])
    assert memory_of(plan_of(graph, [["ordered"], ["new"]], writebacks=(0,))).aliases == ((1, 0),)


def test_workspaces_live_while_their_kernel_runs(sketch):
    graph = sketch.finish([sketch.reduce(sketch.arg("f32[65536]"), 0, name="total")])
    plan = plan_of(graph, [["total"]])
    split = replace(plan.kernels[0], schedule=cpu_schedule(split=8))
    memory = memory_of(replace(plan, kernels=(split,)))
    assert memory.moment(0).values == {}
    assert memory.moment(0).workspaces == {0: memory.arena_bytes}
    assert memory.arena_bytes >= 8 * 4


def test_a_program_of_views_needs_no_arena(sketch):
    graph = sketch.finish([sketch.op("reshape", sketch.arg("f32[8]"), shape=(2, 4), name="y")])
    memory = memory_of(plan_of(graph))
    assert (memory.arena_bytes, memory.peak_bytes) == (0, 64)
