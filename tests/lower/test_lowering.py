"""Lowering of loops: each kernel is what it should be, and gives the right answer.

`check_fused` runs the kernel by the reference executor, which checks every access, and as native code on poisoned
outputs, and compares both with the interpreter.
"""

from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.ir.dtypes import F32, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.limits import as_it_is
from autofuse.lower.lowering import lower
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Constant, Load, Map, Reduce
from autofuse.testing.fusions import LIMITS, whole_kernel
from tests.fixtures.kernelchecks import check_fused, check_kernel
from tests.fixtures.loweredkernels import count, normal, phase_of, scratch_of


def test_elementwise_work_over_contiguous_memory_is_one_loop():
    program = check_fused(lambda x, y: np.tanh(x) * y + 1, normal(6, 7, 5), normal(6, 7, 5, seed=1))
    assert [symbol.extent for symbol in phase_of(program).grid] == [6 * 7 * 5]
    assert count(program, Load) == 2


def test_broadcast_rows_keep_two_loops():
    program = check_fused(lambda x, b: x + b, normal(9, 40), normal(40))
    assert [symbol.extent for symbol in phase_of(program).grid] == [9, 40]


def test_data_movement_is_only_index_arithmetic():
    def moved(x):
        t = np.pad(x[1:, ::2].T, ((1, 2), (0, 1)), constant_values=3)
        return np.concatenate([t, np.flip(t, 0) * 2, t[:1]], axis=0)

    program = check_fused(moved, normal(7, 10))
    assert not scratch_of(program)


def test_a_value_and_its_transpose():
    program = check_fused(lambda x: x + x.T, normal(13, 13))
    assert count(program, Load) == 2


def test_reshape_that_does_not_divide_uses_quotients():
    check_fused(lambda x: x.reshape(6, 10) * 2, normal(4, 15))


def test_run_time_indices_are_clamped_as_the_interpreter_clamps_them():
    build = GraphBuilder("g")
    x = build.input(TensorType((5, 6), F32), "x")
    i = build.input(TensorType((), I32), "i")
    j = build.input(TensorType((), I32), "j")
    block = build.emit("dynamic_slice", [x, i, j], slice_sizes=(2, 3))
    graph = build.finish([build.emit("dynamic_update_slice", [x, block, j, i])])
    for begin in ((0, 0), (2, 1), (-4, 9), (100, -1), (2**31 - 1, -(2**31))):
        check_kernel(graph, [normal(5, 6), *(np.int32(n) * np.ones((), np.int32) for n in begin)])


def updated(start, shape):
    """`x` with a block that begins at a constant row and a column that is an argument."""
    build = GraphBuilder("updated")
    x, y = build.input(TensorType((7, 11), F32), "x"), build.input(TensorType(shape, F32), "y")
    row, column = build.constant(np.asarray(start, np.int32)), build.input(TensorType((), I32), "column")
    return build.finish([build.emit("dynamic_update_slice", (x, y, row, column))])


def test_a_block_that_another_kernel_made_is_stored_beside_a_sum():
    build = GraphBuilder("state")
    x, y = build.input(TensorType((7, 11), F32), "x"), build.input(TensorType((3, 4), F32), "y")
    row, column = (build.constant(np.asarray(at, np.int32)) for at in (2, 5))
    state = build.emit("dynamic_update_slice", (x, y, row, column), overwrites=True)
    total = build.emit("reduce", (x,), dimensions=(0, 1), combiner="add")
    limits = replace(LIMITS, overwrites=True)
    check_kernel(build.finish([state, total]), (normal(7, 11), normal(3, 4, seed=1)), limits=limits)


@pytest.mark.parametrize("shape", [(3, 4), (7, 4), (1, 11), (0, 4)])
@pytest.mark.parametrize("start", [-3, 0, 2, 4, 9])
def test_positions_that_the_graph_holds_are_numbers(start, shape):
    graph = updated(start, shape)
    check_kernel(graph, (normal(7, 11), normal(*shape, seed=1), np.asarray(5, np.int32)))
    limits = replace(LIMITS, passes=as_it_is)
    program = lower(whole_kernel(graph), Schedule(), "k", limits)
    made = [s for phase in program.phases() for _, s in statements(phase.steps) if isinstance(s, Constant)]
    assert not [s for s in made if s.dtype == I32], "no scalar holds where the block begins"


def test_gather_then_work_on_what_was_gathered():
    rows = np.array([3, -1, 0, 4, 3, 99], np.int32)  # out of bounds: clamped
    build = GraphBuilder("g")
    x, at = build.input(TensorType((5, 6), F32), "x"), build.input(TensorType((6,), I32), "at")
    taken = build.emit(
        "gather",
        [x, at],
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, 6),
    )
    turned = build.emit("transpose", [build.emit("exp", [taken])], permutation=(1, 0))
    check_kernel(build.finish([turned]), [normal(5, 6), rows])


def test_rows_gathered_from_a_transpose_are_read_where_the_index_says():
    """Contiguous along another axis than the lanes, at a position read from memory."""
    build = GraphBuilder("g")
    x, at = build.input(TensorType((3, 40, 24), F32), "x"), build.input(TensorType((20,), I32), "at")
    turned = build.emit("transpose", [build.emit("sin", [x])], permutation=(0, 2, 1))
    taken = build.emit(
        "gather",
        [turned, at],
        offset_dims=(1, 2),
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, 24, 40),
    )
    rows = np.random.default_rng(0).integers(0, 3, 20).astype(np.int32)
    check_kernel(build.finish([taken]), [normal(3, 40, 24), rows])


def test_windows_are_unrolled_when_small():
    def blurred(x):
        return sum(x[1 + i : x.shape[0] - 1 + i] for i in (-1, 0, 1)) / 3

    check_fused(blurred, normal(20, 5))


@pytest.mark.parametrize("extent", [3, 11])
def test_reduce_window(extent):
    build = GraphBuilder("g")
    x = build.input(TensorType((14, 13), F32), "x")
    pooled = build.emit(
        "reduce_window",
        [x],
        window_dimensions=(extent, 2),
        window_strides=(2, 1),
        base_dilations=(1, 2),
        window_dilations=(1, 3),
        padding=((1, 2), (0, 1)),
        combiner="add",
    )
    graph = build.finish([build.emit("tanh", [pooled])])
    program = lower(whole_kernel(graph), Schedule(), "k", LIMITS)
    assert count(program, Map) > extent
    check_kernel(graph, [normal(14, 13)])


def test_a_large_window_is_a_call_and_nothing_joins_it():
    build = GraphBuilder("g")
    x = build.input(TensorType((200,), F32), "x")
    window = {"window_dimensions": (150,), "window_strides": (1,), "base_dilations": (1,), "window_dilations": (1,)}
    pooled = build.emit("reduce_window", [x], **window, padding=((0, 0),), combiner="maximum")
    check_kernel(build.finish([pooled]), [normal(200)])
    graph = build.finish([build.emit("exp", [pooled])])
    with pytest.raises(LegalityError, match="opaque call"):
        lower(whole_kernel(graph), Schedule(), "k")


# ---- several outputs -------------------------------------------------------------------------------------------------


def test_outputs_of_one_shape_share_a_loop():
    program = check_fused(lambda x: (x + 1, x * 2), normal(6, 6))
    assert count(program, Load, phase_of(program)) == 1


def test_outputs_with_nothing_in_common_are_phases():
    program = check_fused(lambda x, y: (x + 1, y * 2, np.arange(3)), normal(5), normal(4, 4))
    assert len(program.launches) == 1
    assert len(program.launches[0]) == 3


def test_a_value_written_and_used():
    program = check_fused(lambda x: ((e := np.exp(x)), e.sum(-1), e / e.sum(-1, keepdims=True)), normal(6, 33))
    assert len(program.launches) == 1
    assert count(program, Reduce) == 1


def test_a_concatenation_of_many_parts_is_a_loop_for_each():
    parts = [normal(1 + n % 4, 5, seed=n) for n in range(20)]
    program = check_fused(lambda *xs: np.concatenate([x * 2 for x in xs]), *parts)
    assert len(program.launches[0]) == 20
    assert count(program, Load) == 20


def test_many_rows_of_what_a_loop_stacks_are_joined_elsewhere():
    def step(total, row):
        return total + row, total * row

    def joined(x):
        _, rows = af.scan(step, x[0], x)
        return np.stack([rows[19 - i] for i in range(20)])

    with pytest.raises(LegalityError, match="read in another loop than the one that makes it"):
        check_fused(joined, normal(20, 3))


def test_joining_along_the_last_axis():
    parts = [normal(6, n % 3, seed=n) for n in range(17)]
    check_fused(lambda *xs: np.concatenate(xs, axis=1), *parts)


def test_a_few_parts_stay_one_loop():
    program = check_fused(lambda x, y: np.concatenate([x, y]) * 2, normal(4, 5), normal(3, 5))
    assert len(program.launches[0]) == 1
