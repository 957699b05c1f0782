"""Reductions with too few grid points are split into parts that a second launch combines."""

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.splitting import AUTOMATIC_PARTS
from autofuse.lower.tile import Space
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import LIMITS, kernel_inputs
from tests.fixtures.kernelchecks import check_fused, check_kernel, fused, run_native


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def total(x):
    return np.exp(x).sum()


def test_a_long_sum_is_split_by_itself_into_parts_that_do_not_depend_on_the_machine():
    program = lower(fused(total, normal(1 << 15)), Schedule(), "k", LIMITS)
    assert len(program.launches) == 2
    (partial,) = [buffer for buffer in program.buffers if buffer.space is Space.WORKSPACE]
    assert partial.type.shape == (AUTOMATIC_PARTS, 1)


def test_a_short_sum_is_not():
    assert len(lower(fused(total, normal(100)), Schedule(), "k", LIMITS).launches) == 1


@pytest.mark.parametrize("parts", [2, 3, 7, 50])
@pytest.mark.parametrize("extent", [64, 61, 5])
def test_any_number_of_parts_and_a_ragged_last_one(parts, extent):
    program = check_fused(total, normal(extent), schedule=cpu_schedule(split=parts))
    assert len(program.launches) == 2


def test_what_follows_the_sum_stays_in_the_second_launch():
    check_fused(lambda x: x / np.abs(x).sum(), normal(41), schedule=cpu_schedule(split=3))


@pytest.mark.parametrize("placement", ["scratch", "recompute"])
@pytest.mark.parametrize("lane", ["auto", "grid", "stream"])
def test_every_long_loop_gets_a_launch_of_its_own(lane, placement):
    def softmax(x):
        e = np.exp(x - x.max(0))
        return e / e.sum(0), e.sum(0)

    schedule = cpu_schedule(lane=lane, placement=placement)
    assert len(check_fused(softmax, normal(40_003), schedule=schedule).launches) >= 3
    assert len(check_fused(softmax, normal(9_001, 5), schedule=schedule).launches) >= 3


def test_a_long_loop_after_a_short_one_reads_both_sums():
    def program(x, y):
        scale = x.sum() + np.tanh(y).sum()
        return x / scale + y.max()

    found = check_fused(program, normal(40_001), normal(1))
    assert len(found.launches) >= 2


@pytest.mark.parametrize("reduction", [np.argmax, np.argmin])
def test_a_position_found_between_two_long_loops_reaches_the_second(reduction):
    def program(x):
        y = x - x.mean()
        return y * reduction(y)

    assert len(check_fused(program, normal(40_003)).launches) >= 3


def with_at(where, value, dtype=np.float32, extent=40_003):
    x = normal(extent).astype(dtype)
    x[where] = value
    return x


@pytest.mark.parametrize("reduction", [np.argmax, np.argmin])
@pytest.mark.parametrize(
    "x",
    [
        with_at([40_002], np.nan),
        with_at([17, 39_000, 40_002], np.nan),
        with_at([30_000, 30_001, 200], np.inf),
        with_at([30_000, 200], -np.inf, np.float16),
        with_at(slice(None), np.inf),
        with_at(slice(None), -np.inf, np.float64),
        np.arange(50_007) // 3,
        -np.arange(50_007) // 3,
    ],
    ids=["a NaN", "many NaN", "infinities", "16 bits", "all greatest", "all least", "ascending", "descending"],
)
def test_the_first_of_equals_is_found_in_parts(reduction, x):
    assert len(check_fused(reduction, x).launches) == 3


def test_positions_and_other_reductions_of_what_is_computed_are_split_together():
    def program(x):
        y = np.exp(x - x.mean())
        return y.argmax(), y.argmin(), y.sum(), y

    assert len(check_fused(program, normal(40_003)).launches) >= 4


@pytest.mark.parametrize("shape", [(300, 301), (3, 40_001), (40_001, 3)], ids=str)
def test_positions_in_tables(shape):
    x = normal(*shape)
    for reduction in (np.argmax, lambda x: x.argmax(0), lambda x: x.argmin(1)):
        check_fused(reduction, x)


def test_positions_of_bools_are_not_split():
    assert len(check_fused(lambda x: (x > 2).argmax(), normal(40_003)).launches) == 1


@pytest.mark.parametrize("shape", [(4, 50_257), (1, 100_000)], ids=str)
def test_a_softmax_without_its_peak(shape):
    def program(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        return np.where(np.arange(shape[1]) == p.argmax(-1)[:, None], np.float32(0), p)

    check_fused(program, normal(*shape))


def test_a_short_part_of_many_is_not_lost():
    """40 parts of 1000 and one of 7; all of them are reduced in the same order on each run."""
    x = np.arange(40_007, dtype=np.int64)
    check_fused(lambda x: (x.sum(), x - x.max()), x, schedule=cpu_schedule(split=40))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint32, np.bool_], ids=str)
def test_neutral_elements_of_every_kind(dtype):
    x = (normal(43) * 9 - 4).astype(dtype)
    if x.dtype == np.bool_:
        check_fused(lambda x: (x.any(), x.all()), x, schedule=cpu_schedule(split=4))
    else:
        check_fused(lambda x: (x.sum(dtype=x.dtype), x.max(), x.min()), x, schedule=cpu_schedule(split=4))


@pytest.mark.parametrize("dtype", [dtypes.U16, dtypes.I64], ids=str)
@pytest.mark.parametrize("combiner", ["and", "or", "multiply"])
def test_a_ragged_part_changes_no_bit_of_an_integer_reduction(combiner, dtype):
    build = GraphBuilder("g")
    x = build.input(TensorType((23,), dtype), "x")
    graph = build.finish([build.emit("reduce", [x], dimensions=(0,), combiner=combiner)])
    check_kernel(graph, [np.random.default_rng(0).integers(1, 60, 23).astype(dtype.numpy) | 1], cpu_schedule(split=4))


def test_columns_over_lanes_are_split_too():
    check_fused(lambda x: x.sum(0), normal(37, 6), schedule=cpu_schedule(split=5, lane="grid"))


def test_scans_are_left_whole():
    assert len(check_fused(np.cumsum, normal(50), schedule=cpu_schedule(split=4)).launches) == 1


def test_a_sum_of_minus_zeros_is_plus_zero_as_in_numpy():
    x = np.full(21, -0.0, np.float32)
    for parts in (1, 4):
        kernel = fused(lambda x: x.sum(), x)
        (found,) = run_native(kernel, kernel_inputs(kernel, [x]), cpu_schedule(split=parts))
        assert not np.signbit(found)
