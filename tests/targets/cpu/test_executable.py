"""Executables: shared code, memory, constants, workspaces, and write-backs straight into arguments."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from autofuse.api.plan import Plan
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import Leaf
from autofuse.plan.document import Launch
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.executable import build_executable
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.fusions import LIMITS, check_plan
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch, layers_graph, softmax_graph


@pytest.fixture
def sketch():
    return Sketch("sketch")


def chain(sketch, length, size=1024):
    """`length` kernels of one loop each: values of `size` floats that live for one step."""
    value = sketch.arg(f"f32[{size}]")
    for number in range(length):
        value = sketch.op("sin" if number % 2 else "cos", value, name=f"v{number}")
    return plan_of(sketch.finish([value]), [[f"v{number}"] for number in range(length)])


def test_limits_come_from_the_description():
    description = replace(detect(1), l2_bytes=3 << 20)
    assert CpuTarget(description).limits.scratch_bytes == 3 << 19
    assert CpuTarget(description).limits.workers == 1
    assert CpuTarget(replace(description, l2_bytes=0)).limits.scratch_bytes == 128 << 10


def test_a_plan_uses_the_threads_that_it_was_made_for(sketch):
    plan = chain(sketch, 1)
    for threads in (1, 2):
        identity = replace(plan.identity, threads=threads)
        assert build_executable(replace(plan, identity=identity), LIMITS).native.program.threads == threads


# ---- code and memory -------------------------------------------------------------------------------------------------


def test_equal_kernels_share_code(sketch):
    executable = build_executable(chain(sketch, 6), LIMITS)
    assert len(executable.kernels) == 6
    assert len(executable.native.source()) == 2


def test_kernels_with_zeros_of_either_sign_do_not_share_code(sketch):
    inputs = sketch.arg("f32[1000]"), sketch.arg("f32[1000]", "y")
    results = [
        sketch.op("multiply", value, sketch.splat(zero, value), name=name)
        for value, zero, name in zip(inputs, (0.0, -0.0), ("plus", "minus"), strict=True)
    ]
    plan = plan_of(sketch.finish(results), [["plus"], ["minus"]])
    ones = np.ones(1000, np.float32)
    plus, minus = build_executable(plan, LIMITS).run([ones, ones])
    assert not np.signbit(plus).any()
    assert np.signbit(minus).all()


def test_intermediates_share_memory(sketch):
    plan = chain(sketch, 6)
    executable = build_executable(plan, LIMITS)
    assert executable.memory.arena_bytes == 2 * 4096
    check_plan(plan, random_inputs(plan.graph, np.random.default_rng(0)))


def test_kernels_that_run_together_do_not_share_memory(sketch):
    x = sketch.arg("f32[1024]")
    first, second = sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="b")
    c, d = sketch.op("sin", first, name="c"), sketch.op("cos", second, name="d")
    graph = sketch.finish([sketch.op("add", c, d, name="e")])
    plan = plan_of(graph, [[name] for name in "abcde"])
    lanes = tuple(Launch(number, lane) for number, lane in zip(range(5), (0, 1, 0, 1, 0), strict=True))
    alone = tuple(Launch(number) for number in range(5))
    sizes = [build_executable(replace(plan, order=order), LIMITS).memory.arena_bytes for order in (lanes, alone)]
    assert sizes == [4 * 4096, 3 * 4096]
    inputs = random_inputs(graph, np.random.default_rng(0))
    for order in (lanes, alone):
        check_plan(replace(plan, order=order), inputs)


def test_dependent_kernels_of_a_group_still_run_one_after_another(sketch):
    plan = chain(sketch, 5)
    order = tuple(Launch(number, number) for number in range(5))
    check_plan(replace(plan, order=order), random_inputs(plan.graph, np.random.default_rng(0)))


def test_constants_are_read_from_the_plan(sketch):
    x = sketch.arg("f32[32]")
    table = sketch.constant(np.linspace(0, 1, 32, dtype=np.float32), "table")
    first = sketch.op("add", x, table, name="first")
    graph = sketch.finish([first, sketch.op("multiply", first, table, name="second")])
    plan = plan_of(graph, [["first"], ["second"]])
    executable = build_executable(plan, LIMITS)
    assert sum(constant.shape == (32,) for constant in executable.native.program.constants) == 1
    check_plan(plan, random_inputs(graph, np.random.default_rng(0)))


def test_split_reductions_have_workspaces_in_the_arena(sketch):
    graph = sketch.finish([sketch.reduce(sketch.arg("f32[65536]"), 0, name="total")])
    plan = plan_of(graph, [["total"]])
    split = replace(plan.kernels[0], schedule=cpu_schedule(split=8))
    plan = replace(plan, kernels=(split,))
    executable = build_executable(plan, LIMITS)
    assert executable.kernels[0].workspaces
    assert executable.memory.arena_bytes >= 8 * 4
    check_plan(plan, random_inputs(graph, np.random.default_rng(0)))


def test_an_output_that_others_read_is_read_from_its_array(sketch):
    first = sketch.op("exp", sketch.arg("f32[64]"), name="first")
    graph = sketch.finish([first, sketch.op("tanh", first, name="second")])
    plan = plan_of(graph, [["first"], ["second"]])
    assert build_executable(plan, LIMITS).memory.arena_bytes == 0
    check_plan(plan, random_inputs(graph, np.random.default_rng(0)))


def test_several_threads_may_run_one_executable():
    plan = plan_of(layers_graph(2, 16, 32))
    executable = build_executable(plan, LIMITS)

    def work(seed):
        inputs = random_inputs(plan.graph, np.random.default_rng(seed))
        (result,) = executable.run(inputs)
        np.testing.assert_allclose(result, interpret(plan.graph, *inputs)[0], rtol=1e-5)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(20)))


def test_profile_times_every_kernel_in_running_order():
    plan = plan_of(softmax_graph(64, 64), [["peak"], ["shifted"], ["grown"], ["total"], ["share"]])
    executable = build_executable(plan, LIMITS)
    nanoseconds = executable.profile(random_inputs(plan.graph, np.random.default_rng(0)))
    assert len(nanoseconds) == 5
    assert all(ns >= 0 for ns in nanoseconds)


def test_arrays_that_do_not_fit_are_refused_with_nothing_done(sketch):
    executable = build_executable(chain(sketch, 1, 8), LIMITS)
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    for bad in (x[::-1], x.astype(np.float64), np.ones(9, np.float32), [1.0] * 8):
        assert executable.run([bad]) is NotImplemented
        assert not executable.run_into([bad], [out])
    assert not executable.run_into([x], [np.zeros(9, np.float32)])
    assert not out.any()


# ---- write-backs -----------------------------------------------------------------------------------------------------


def run_written(plan, arrays):
    """Run on copies; the returned arrays, the copies afterwards, and which outputs were written in place."""
    executable = build_executable(plan, LIMITS)
    held = [array.copy() for array in arrays]
    outputs = executable.run(held)
    return outputs, held, executable.aliased


def check_write_backs(plan, aliased):
    """The new values of the arguments are right, and those outputs were written in place."""
    inputs = random_inputs(plan.graph, np.random.default_rng(0))
    expected = interpret(plan.graph, *inputs)
    outputs, held, found = run_written(plan, inputs)
    assert found == frozenset(aliased)
    for output, right in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, right, rtol=1e-6)  # 8 ulp: transcendental functions and short sums
    first = len(expected) - len(plan.writebacks)
    for number, source in enumerate(plan.writebacks):
        if first + number in found:
            assert outputs[first + number] is held[source]
    for number, array in enumerate(inputs):
        if number not in {plan.writebacks[k - first] for k in found}:
            np.testing.assert_array_equal(held[number], array)


def test_an_update_is_written_where_it_was_read(sketch):
    x, y = sketch.arg("f32[64]"), sketch.arg("f32[64]", "y")
    graph = sketch.finish([sketch.op("add", x, y, name="new")])
    check_write_backs(plan_of(graph, writebacks=(0,)), {0})


def test_a_reader_before_the_update_does_not_matter(sketch):
    x = sketch.arg("f32[64]")
    total = sketch.reduce(x, 0, name="total")
    graph = sketch.finish([total, sketch.op("exp", x, name="new")])
    check_write_backs(plan_of(graph, [["total"], ["new"]], writebacks=(0,)), {1})


def test_a_reader_after_the_update_gets_the_old_value(sketch):
    x = sketch.arg("f32[64]")
    total = sketch.reduce(x, 0, name="total")
    graph = sketch.finish([total, sketch.op("exp", x, name="new")])
    check_write_backs(plan_of(graph, [["new"], ["total"]], writebacks=(0,)), ())


def test_a_reader_beside_the_update_gets_the_old_value(sketch):
    x = sketch.arg("f32[64]")
    other = sketch.op("tanh", x, name="other")
    graph = sketch.finish([other, sketch.op("exp", x, name="new")])
    plan = plan_of(graph, [["other"], ["new"]], writebacks=(0,))
    check_write_backs(replace(plan, order=(Launch(0, 0), Launch(1, 1))), ())
    check_write_backs(replace(plan, order=(Launch(0, 0), Launch(1, 0))), {1})


def test_a_value_that_moves_is_not_written_in_place(sketch):
    x = sketch.arg("f32[8,8]")
    check_write_backs(plan_of(sketch.finish([sketch.transpose(x)]), writebacks=(0,)), ())


def test_two_arguments_updated_from_each_other_in_one_kernel(sketch):
    a, b, c = (sketch.arg("f32[4096]", name) for name in "abc")
    new_a = sketch.op("add", sketch.op("multiply", b, b), c, name="new_a")
    new_b = sketch.op("add", a, c, name="new_b")
    graph = sketch.finish([new_a, new_b])
    plan = plan_of(graph, writebacks=(0, 1))
    assert len(plan.kernels) == 1
    inputs = random_inputs(graph, np.random.default_rng(0))
    outputs, _, aliased = run_written(plan, inputs)
    assert aliased == {1}
    for output, right in zip(outputs, interpret(graph, *inputs), strict=True):
        np.testing.assert_array_equal(output, right)


def test_outputs_that_are_arguments_constants_or_returned_twice_have_memory_of_their_own(sketch):
    """As `return x, c, y, y` of a plan file; autofuse's own plans have each output written by a kernel."""
    x = sketch.arg("f32[32]")
    table = sketch.constant(np.linspace(0, 1, 32, dtype=np.float32), "table")
    first = sketch.op("add", x, table, name="first")
    graph = sketch.finish([x, table, first, first])
    plan = plan_of(graph, [["first"]])
    check_plan(plan, random_inputs(graph, np.random.default_rng(0)))
    executable = build_executable(plan, LIMITS)
    outputs = executable.run(random_inputs(graph, np.random.default_rng(0)))
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(outputs, 2))
    assert len(executable.profile(random_inputs(graph, np.random.default_rng(0)))) == 1


def test_arguments_that_are_written_back_into_one_another_are_swapped(sketch):
    """`x[:], y[:] = y, x`: neither is written before the other was read."""
    x, y = sketch.arg("f32[8]", "x"), sketch.arg("f32[8]", "y")
    kept = sketch.op("add", x, y, name="total")
    plan = replace(plan_of(sketch.finish([kept, y, x]), [["total"]]), writebacks=(0, 1), out_tree=Leaf())
    a, b = (np.full(8, number, np.float32) for number in (1.0, 2.0))
    total = Plan(plan)(a, b)
    assert (total[0], a[0], b[0]) == (3.0, 2.0, 1.0)


def test_a_value_that_is_written_back_into_two_arguments_reaches_both(sketch):
    x, y = sketch.arg("f32[8]", "x"), sketch.arg("f32[8]", "y")
    new = sketch.op("multiply", x, y, name="new")
    plan = replace(plan_of(sketch.finish([new, new, new]), [["new"]]), writebacks=(0, 1), out_tree=Leaf())
    a, b = (np.full(8, number, np.float32) for number in (3.0, 2.0))
    assert (Plan(plan)(a, b)[0], a[0], b[0]) == (6.0, 6.0, 6.0)
