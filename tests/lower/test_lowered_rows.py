"""Lowering of reductions and stitched rows: each kernel is what it should be, and gives the right answer.

`check_fused` runs the kernel by the reference executor, which checks every access, and as native code on poisoned
outputs, and compares both with the interpreter.
"""

import numpy as np
import pytest

from autofuse.ir.dtypes import F32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Map, Reduce, Scan
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import whole_kernel
from tests.fixtures.kernelchecks import check_fused, check_kernel
from tests.fixtures.loweredkernels import count, normal, phase_of, scratch_of, stages_of


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
