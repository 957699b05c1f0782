"""Lowering of loops, reductions and stitched rows: each kernel is what it should be, and gives the right answer.

`check_fused` runs the kernel by the reference executor, which checks every access, and as native code on poisoned
outputs, and compares both with the interpreter.
"""

import gc
import inspect
import sys
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import LegalityError
from autofuse.ir.dtypes import BOOL, F32, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.lowering import Limits, as_it_is, lower, plain_scalars
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Constant, Load, Map, Reduce, Scan, Space
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from tests.fixtures.kernelchecks import check_fused, check_kernel, fused


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def phase_of(program):
    ((phase,),) = program.launches
    return phase


def stages_of(program):
    (group,) = phase_of(program).steps
    return group.stages


def scratch_of(program):
    return [buffer for buffer in program.buffers if buffer.space is Space.SCRATCH]


def count(program, kind, phase=None):
    phases = program.phases() if phase is None else [phase]
    return sum(isinstance(s, kind) for p in phases for _, s in statements(p.steps))


# ---- loops -----------------------------------------------------------------------------------------------------------


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


def test_joining_along_the_last_axis():
    parts = [normal(6, n % 3, seed=n) for n in range(17)]
    check_fused(lambda *xs: np.concatenate(xs, axis=1), *parts)


def test_a_few_parts_stay_one_loop():
    program = check_fused(lambda x, y: np.concatenate([x, y]) * 2, normal(4, 5), normal(3, 5))
    assert len(program.launches[0]) == 1


# ---- reductions ------------------------------------------------------------------------------------------------------


def test_several_reductions_of_one_input_share_a_pass():
    program = check_fused(lambda x: (x.sum(1), np.abs(x).max(1), (x * x).sum(1)), normal(9, 50))
    assert count(program, Reduce) == 3
    assert len([s for s in stages_of(program) if s.symbols]) == 1


def test_rows_walk_the_stream_over_lanes_and_columns_the_grid():
    rows = check_fused(lambda x: x.sum(1), normal(30, 64))
    columns = check_fused(lambda x: x.sum(0), normal(64, 30))
    assert phase_of(rows).vectorised is None
    assert stages_of(rows)[0].vectorised is not None
    assert phase_of(columns).vectorised is not None


@pytest.mark.parametrize("lane", ["grid", "stream"])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), None])
def test_either_lane_gives_the_answer(lane, axis):
    check_fused(lambda x: np.exp(x).sum(axis), normal(5, 19, 6), schedule=cpu_schedule(lane=lane))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("combiner", ["add", "multiply", "maximum", "minimum"])
def test_cumulative_with_work_before_and_after(combiner, reverse):
    build = GraphBuilder("g")
    x = build.input(TensorType((4, 21), F32), "x")
    run = build.emit("cumulative", [build.emit("tanh", [x])], dimension=1, combiner=combiner, reverse=reverse)
    graph = build.finish([build.emit("exp", [run])])
    assert count(lower(whole_kernel(graph), Schedule(), "k"), Scan) == 1
    check_kernel(graph, [normal(4, 21)])


def test_a_running_sum_read_one_step_earlier():
    check_fused(lambda x: np.cumsum(x, 1)[:, :-1] - x[:, 1:], normal(3, 9))


def test_a_running_sum_down_the_columns():
    check_fused(lambda x: np.cumsum(x, 0) * 2, normal(9, 5))


@pytest.mark.parametrize("op", [np.argmin, np.argmax])
@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions_take_the_first_of_equals_and_the_first_nan(op, axis):
    x = np.random.default_rng(0).integers(0, 3, (17, 23)).astype(np.float32)
    check_fused(lambda x: op(x, axis=axis), x)
    x[4, 7] = x[4, 9] = x[9, 7] = np.nan
    check_fused(lambda x: op(x, axis=axis), x)


def test_an_empty_sum_is_plus_zero():
    kernel = whole_kernel(_summed((3, 0)))
    check_kernel(kernel, [np.zeros((3, 0), np.float32)])


def _summed(shape):
    build = GraphBuilder("g")
    x = build.input(TensorType(shape, F32), "x")
    return build.finish(
        [build.emit("divide", [_one(build, 3), build.emit("reduce", [x], dimensions=(1,), combiner="add")])]
    )


def _one(build, extent):
    one = build.constant(np.ones((), np.float32))
    return build.emit("broadcast_in_dim", [one], shape=(extent,), broadcast_dimensions=())  # 1 / -0 would be -inf


# ---- stitch ----------------------------------------------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return np.tanh((x - mean) / np.sqrt(variance + np.float32(1e-5)) * gain + bias)


def test_softmax_is_one_phase_of_three_stages_and_keeps_the_exponentials():
    program = check_fused(softmax, normal(7, 45))
    assert [len(stage.symbols) for stage in stages_of(program)] == [1, 1, 1]
    (kept,) = scratch_of(program)
    assert kept.type.shape == (45,)


def test_recomputing_instead_of_keeping():
    program = check_fused(softmax, normal(7, 45), schedule=cpu_schedule(placement="recompute"))
    assert not scratch_of(program)
    assert sum(isinstance(s, Map) and s.opcode == "exp" for _, s in statements(phase_of(program).steps)) == 2


def test_a_kept_value_is_recomputed_by_loops_over_something_else():
    def program(x, w, a):
        e = np.exp(a)
        total = np.abs(x - (e + 1)[:, None]).max(1) + np.abs(w - e[:, None]).max(1)
        return total[:, None] * (x + e[:, None]), total[:, None] * (w - e[:, None])

    check_fused(lambda x, w, a: program(x, w, a)[0], normal(64, 1000), normal(64, 50, seed=1), normal(64, seed=2))
    check_fused(program, normal(6, 40), normal(6, 9, seed=1), normal(6, seed=2))


def test_what_does_not_fit_on_chip_is_recomputed():
    program = check_fused(softmax, normal(3, 600), limits=Limits(scratch_bytes=1000))
    assert not scratch_of(program)


def test_a_value_needed_by_loops_of_other_depth_is_computed_by_each():
    def work(x, w):
        v = np.exp(w)
        return v / (x * v[:, :, None]).sum((1, 2))[:, None]

    program = check_fused(work, normal(4, 9, 7), normal(4, 9))
    assert not scratch_of(program)


@pytest.mark.parametrize("lane", ["auto", "grid", "stream"])
@pytest.mark.parametrize("placement", ["scratch", "recompute"])
def test_layer_norm(lane, placement):
    x, gain, bias = normal(6, 70), normal(70, seed=1), normal(70, seed=2)
    check_fused(layer_norm, x, gain, bias, schedule=cpu_schedule(lane=lane, placement=placement))


def test_softmax_down_the_columns_spreads_them_over_lanes():
    program = check_fused(lambda x: softmax(x.T).T, normal(12, 40))
    assert phase_of(program).vectorised is not None


def test_normalised_rows_of_a_window_view():
    check_fused(lambda x: softmax(x.reshape(4, 3, 8).transpose(1, 0, 2)), normal(12, 8))


# ---- shapes and dtypes -----------------------------------------------------------------------------------------------

SHAPES = [(), (1,), (0,), (1, 1, 1), (0, 5), (5, 0), (1, 7), (7, 1), (2, 0, 3), (3, 1, 4, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_of_a_loop(shape):
    check_fused(lambda x: (np.exp(x) + 1, x.reshape(-1) * 2, np.transpose(x)), normal(*shape))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s], ids=str)
def test_every_shape_of_a_sum_and_what_follows(shape):
    check_fused(lambda x: x - x.sum(-1, keepdims=True), normal(*shape))
    check_fused(lambda x: x.sum(0), normal(*shape))
    check_fused(lambda x: np.cumsum(x, -1) * 2, normal(*shape))


FLOATS = [np.float16, "bfloat16", np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def array_of(dtype, *shape):
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    if dtype.kind in "iu":
        return np.random.default_rng(0).integers(0, 120, shape).astype(dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_float_dtype_in_a_stitched_row(dtype):
    from autofuse.ir import dtypes

    x = array_of(dtype, 5, 37)
    kind = dtypes.from_numpy(x.dtype)
    build = GraphBuilder("g")
    value = build.input(TensorType(x.shape, kind), "x")
    e = build.emit("exp", [value])
    total = build.emit("reduce", [e], dimensions=(1,), combiner="add")
    spread = build.emit("broadcast_in_dim", [total], shape=x.shape, broadcast_dimensions=(0,))
    check_kernel(build.finish([build.emit("divide", [e, spread]), total]), [x])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_every_integer_dtype_wraps_and_reduces(dtype):
    def work(x):
        y = x * x + x
        return y, y.max(1), y.sum(1, dtype=x.dtype), np.cumsum(y, 1, dtype=x.dtype), y.argmax(1)

    check_fused(work, array_of(dtype, 4, 19))


def test_bool_masks():
    def work(x, m):
        small = x < 0.5
        return small & ~m, (small | m).any(1), (small ^ m).all(1), np.where(m, x, 0)

    check_fused(work, normal(5, 17), normal(5, 17, seed=1) > 0)


@pytest.mark.parametrize("combiner", ["and", "or", "minimum", "maximum"])
def test_bool_reductions(combiner):
    build = GraphBuilder("g")
    x = build.input(TensorType((4, 9), BOOL), "x")
    graph = build.finish([build.emit("reduce", [x], dimensions=(1,), combiner=combiner)])
    check_kernel(graph, [np.random.default_rng(0).random((4, 9)) < 0.8])


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_long_chain_is_legal_as_it_computes_nothing_twice():
    def chain(x):
        for _ in range(400):
            x = x * np.float32(0.99) + np.float32(0.1)
        return x

    kernel = fused(chain, normal(3, 5))
    with pytest.raises(LegalityError, match="more than 500 scalar values"):
        lower(kernel, Schedule(), "k", Limits(scalars=500))
    check_fused(chain, normal(3, 5), limits=Limits(scalars=plain_scalars(kernel)), native=False)


def test_a_kernel_that_writes_nothing_is_refused():
    build = GraphBuilder("g")
    build.emit("exp", [build.input(TensorType((3,), F32), "x")])
    with pytest.raises(LegalityError, match="writes nothing"):
        lower(whole_kernel(build.finish([])), Schedule(), "k")


def _deepest(function):
    """What a function returns that is called with hardly any recursion left."""
    left = sys.getrecursionlimit() - len(inspect.stack(0)) - 80

    def down(frames):
        return function() if frames == 0 else down(frames - 1)

    return down(left)


@pytest.mark.slow
def test_chains_are_lowered_whatever_the_recursion_limit_is():
    def chain(x):
        for _ in range(3000):
            x = x * np.float32(0.99) + np.float32(0.1)
        return x

    kernel = fused(chain, normal(3, 5))
    limits = Limits(scalars=plain_scalars(kernel))
    limit = sys.getrecursionlimit()
    program = _deepest(lambda: lower(kernel, Schedule(), "k", limits))
    assert sys.getrecursionlimit() == limit
    assert program == lower(kernel, Schedule(), "k", limits)


@pytest.mark.slow
def test_chains_of_views_gathers_and_reductions_are_lowered_at_any_depth():
    def chain(x, places):
        for _ in range(100):
            x = (x / x.sum(axis=1, keepdims=True))[:, places[::-1]]
        return x

    arguments = normal(3, 5), np.array([4, 2, 0, 1, 3])
    check_fused(chain, *arguments, limits=Limits(scalars=1 << 17), native=False)


def test_a_sum_of_many_products_is_lowered():
    def total(x, w):
        sum_of_products = x @ w
        for _ in range(1200):
            sum_of_products = sum_of_products + x @ w
        return sum_of_products

    kernel = fused(total, normal(3, 2), normal(2, 4))
    assert lower(kernel, Schedule(), "k", Limits(scalars=plain_scalars(kernel)))


def test_nothing_of_lowering_is_left_to_the_garbage_collector():
    def attention(q, k, v):
        e = np.exp(q @ k.T)
        return (np.cumsum(e, -1) / e.sum(-1, keepdims=True)) @ v

    kernel = fused(attention, normal(8, 4), normal(6, 4), normal(6, 4))
    of_lowering = {"PhaseBuilder", "PhaseDraft", "StageDraft", "BufferTable"}
    gc.collect()
    gc.disable()
    try:
        assert count(lower(kernel, Schedule(), "k"), Scan) == 1
        left = of_lowering & {type(found).__name__ for found in gc.get_objects()}
    finally:
        gc.enable()
    assert left == set()
