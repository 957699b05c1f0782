"""XLA:GPU's performance model against the numbers in its own tests (gpu_performance_model_test.cc: RTX A6000)."""

import numpy as np
import pytest

from autofuse.search.rules.grouped_dimensions import GroupedReduction
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.priority.cost_analysis import WorkCount
from autofuse.search.rules.priority.emitters import Emitters, Kind, Launch
from autofuse.search.rules.priority.fusion_queue import fuse
from autofuse.search.rules.priority.gpu_devices import H100
from autofuse.search.rules.priority.gpu_module import Module
from autofuse.search.rules.priority.hero_dimensions import reduction_of
from autofuse.search.rules.priority.kernel_bodies import combined
from autofuse.search.rules.priority.reduction_trees import split_extents
from autofuse.search.rules.priority.run_times import TICKS_PER_NS, XlaTimes
from autofuse.search.rules.priority.vetoes import Vetoes
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch
from tests.fixtures.gpus import A6000

LAUNCH_US = 1


def model(device=A6000):
    return XlaTimes(Emitters(device), WorkCount(device))


def module_of(build, *outputs):
    return Module(Grouping(context_of(build.finish(outputs))))


def kernel(module, opcode):
    """The only kernel that ends with an instruction of this kind."""
    (found,) = (kernel for kernel in module if kernel.first.opcode == opcode)
    return found


def us(ticks):
    return ticks / TICKS_PER_NS / 1000


def cycles(ticks):
    return ticks / TICKS_PER_NS * A6000.clock_ghz


def sum_of_two(size):
    build = Sketch("sum")
    x, y = build.arg(f"f32[{size}]", "x"), build.arg(f"f32[{size}]", "y")
    return kernel(module_of(build, build.op("add", x, y)), "add")


# ---- published numbers -----------------------------------------------------------------------------------------------


def test_a_small_sum_is_throttled_by_its_few_blocks():
    times = model()
    assert times.emitters.launch(sum_of_two(1000)) == Launch(8, 128)
    assert times.alone(sum_of_two(1000)) == 27.25 * TICKS_PER_NS
    assert cycles(times.alone(sum_of_two(1000))) == pytest.approx(38.4, abs=0.1)


def test_a_large_sum_is_bound_by_memory():
    assert cycles(model().alone(sum_of_two(10_000_000))) == pytest.approx(220284, abs=100)


def test_filling_an_array_is_bound_by_writing():
    build = Sketch("fill")
    x = build.arg("f32[10000000]")
    module = module_of(build, build.op("add", x, build.splat(0.0, x)))
    module.inline_constants()
    assert us(model().alone(kernel(module, "broadcast_in_dim"))) + LAUNCH_US == pytest.approx(53, abs=10)


@pytest.mark.parametrize(("rows", "columns", "expected"), [(10_000, 1000, 118), (1_000_000, 10, 123)])
def test_what_is_read_again_comes_from_a_cache(rows, columns, expected):
    build = Sketch("repeated")
    few, many = build.arg(f"f32[{rows}]", "few"), build.arg("f32[10000000]", "many")
    spread = build.emit("broadcast_in_dim", [few], shape=(rows, columns), broadcast_dimensions=(0,))
    module, times = module_of(build, build.op("add", build.reshape(spread, 10_000_000), many)), model()
    fuse(module, times, Vetoes(times.emitters, times.work))
    (only,) = module
    assert us(times.alone(only)) + LAUNCH_US == pytest.approx(expected, abs=12)


def test_a_transpose_in_a_reduction_is_slow():
    build = Sketch("columns")
    x = build.arg("f32[1500,32,128]")
    turned = build.emit("transpose", [x], permutation=(0, 2, 1))
    module, times = module_of(build, build.reduce(turned, 1, combiner="maximum")), model()
    transpose, reduce = kernel(module, "transpose"), kernel(module, "reduce")
    unfused = us(times.alone(transpose) + times.alone(reduce)) + 2 * LAUNCH_US
    fused = us(times.fused(transpose, reduce, combined(transpose, reduce, 0))) + LAUNCH_US
    assert unfused == pytest.approx(105, abs=10)
    assert fused == pytest.approx(514, abs=10)


def test_a_division_after_a_small_reduction_would_compute_it_on_one_thread():
    build = Sketch("small")
    x, y = build.arg("f32[3072]", "x"), build.arg("f32[]", "y")
    module, times = module_of(build, build.op("divide", build.reduce(x, 0), y)), model()
    reduce, divide = kernel(module, "reduce"), kernel(module, "divide")
    fused = times.fused(reduce, divide, combined(reduce, divide, 0))
    assert fused > times.launch + times.alone(reduce) + times.alone(divide)


def test_a_pair_costs_what_the_merged_kernel_does():
    build = Sketch("pair")
    x, y = build.arg("f32[4194304]", "x"), build.arg("f32[4194304]", "y")
    module, times = module_of(build, build.op("tanh", build.op("multiply", x, y))), model()
    first, second = kernel(module, "multiply"), kernel(module, "tanh")
    merged = combined(first, second, 0)
    assert times.fused(first, second, merged) == times.alone(merged)


def test_a_costly_operation_rather_joins_its_producer_than_a_reduction():
    build = Sketch("either")
    p, x = build.arg("f32[4,8,8]", "p"), build.arg("f32[1,4,1424,8,8]", "x")
    grown = build.op("exp", build.op("subtract", build.broadcast(p, x, 1, 3, 4), x))
    module = module_of(build, build.reduce(build.reshape(grown, 4, 1424, 8, 8), 1))
    module.inline_constants()
    times, exp = model(), kernel(module, "exp")
    above = combined(kernel(module, "broadcast_in_dim"), kernel(module, "subtract"), 0)
    below = combined(kernel(module, "bitcast"), kernel(module, "reduce"), 1)
    exp_then = times.alone(above) + times.alone(exp) - times.fused(above, exp, combined(above, exp, 2))
    exp_first = times.alone(exp) + times.alone(below) - times.fused(exp, below, combined(exp, below, 3))
    assert exp_first < exp_then


def update_of(build, x, update, *starts):
    indices = [build.constant(np.array(start, np.int32)) for start in starts]
    return build.op("dynamic_update_slice", x, update, *indices)


def test_an_update_in_place_reads_only_what_it_keeps():
    build = Sketch("update")
    x, update = build.arg("f32[8,16]", "x"), build.arg("f32[4,4]", "update")
    module = module_of(build, update_of(build, build.op("log", x), update, 0, 0))
    merged = combined(kernel(module, "log"), kernel(module, "dynamic_update_slice"), 0)
    (read,) = WorkCount(A6000).of(merged).of(kernel(module, "log").parameters[0])
    assert read.nbytes == 448
    assert WorkCount(A6000).of(merged).written_bytes == update.type.nbytes


# ---- its terms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [("exp", "f32", 79), ("tanh", "f32", 467), ("exp", "bf16", 3), ("divide", "i32", 297), ("maximum", "f32", 3)],
)
def test_operations_cost_the_cycles_of_the_device(op, dtype, expected):
    assert H100.cycles(op, dtype) == expected


def test_what_xla_writes_as_several_operations_costs_all_of_them():
    assert H100.cycles("logistic", "f32") == sum(H100.cycles(op, "f32") for op in ("negate", "exp", "add", "divide"))


@pytest.mark.parametrize(("width", "expected"), [(512, 6), (500, 400)])
def test_a_join_within_a_warp_costs_much(width, expected):
    build = Sketch("join")
    x, y = build.arg(f"f32[64,{width}]", "x"), build.arg("f32[64,32]", "y")
    joined = kernel(module_of(build, build.op("concatenate", x, y, dimension=1)), "concatenate")
    assert WorkCount(H100).of(joined).flops == expected * joined.first.type.size


def test_a_number_as_divisor_makes_a_product():
    build = Sketch("mean")
    x = build.arg("f32[1000]")
    module = module_of(build, build.op("divide", x, build.splat(4.0, x)))
    assert WorkCount(H100).of(kernel(module, "multiply")).flops == 3 * 1000


def test_two_ways_to_one_element_count_once_and_two_places_twice():
    build = Sketch("ways")
    x = build.arg("f32[1000]")
    same = build.op("add", build.op("exp", x), build.op("log", x))
    module = module_of(build, same, build.op("multiply", x, build.emit("reverse", [x], dimensions=(0,))))
    both = combined(kernel(module, "exp"), combined(kernel(module, "log"), kernel(module, "add"), 0), 0)
    turned = combined(kernel(module, "reverse"), kernel(module, "multiply"), 0)
    work = WorkCount(H100)
    assert [read.utilisation for read in work.of(both).reads] == [1]
    assert [read.utilisation for read in work.of(turned).reads] == [2]


def test_an_operation_on_a_value_and_itself_reads_it_twice():
    build = Sketch("square")
    x = build.arg("f32[1000]")
    square = kernel(module_of(build, build.op("multiply", x, x)), "multiply")
    assert [read.nbytes for read in WorkCount(H100).of(square).reads] == [4000, 4000]


def test_a_broadcast_in_a_reduction_counts_at_its_full_size():
    build = Sketch("rows")
    x = build.arg("f32[64]")
    spread = build.emit("broadcast_in_dim", [x], shape=(64, 128), broadcast_dimensions=(0,))
    module = module_of(build, build.reduce(spread, 1))
    merged = combined(kernel(module, "broadcast_in_dim"), kernel(module, "reduce"), 0)
    (read,) = WorkCount(H100).of(merged).of(kernel(module, "broadcast_in_dim").parameters[0])
    assert read.nbytes == 64 * 128 * 4


# ---- launches --------------------------------------------------------------------------------------------------------


def row_reduction(rows, width, dtype="f32"):
    build = Sketch("rows")
    return kernel(module_of(build, build.reduce(build.arg(f"{dtype}[{rows},{width}]"), 1)), "reduce")


def column_reduction(height, width):
    build = Sketch("columns")
    return kernel(module_of(build, build.reduce(build.arg(f"f32[{height},{width}]"), 0)), "reduce")


def test_a_loop_has_one_element_per_thread_until_the_device_is_full():
    build = Sketch("loop")
    x = build.arg("f32[8,16,128]")
    assert Emitters(A6000).launch(kernel(module_of(build, build.op("exp", x)), "exp")) == Launch(128, 128)
    full = A6000.multiprocessors * A6000.threads
    assert Emitters(A6000).launch(sum_of_two(full)) == Launch(full // 4 // 128, 128)
    assert Emitters(A6000).launch(sum_of_two(full - 128)) == Launch(full // 128 - 1, 128)


@pytest.mark.parametrize(
    ("rows", "width", "expected"),
    [
        (4096, 1024, Launch(1024, 256)),  # 64 threads for a row, four rows to a block
        (4096, 4096, Launch(4096, 256)),
        (65536, 64, Launch(8192, 256)),  # half a warp reads a row two by two
        (64, 16384, Launch(64, 1024)),
    ],
)
def test_a_row_reduction_has_blocks_by_rows(rows, width, expected):
    assert Emitters(H100).kind(row_reduction(rows, width)) is Kind.REDUCTION
    assert Emitters(H100).launch(row_reduction(rows, width)) == expected


def test_a_column_reduction_has_blocks_by_columns_alone():
    assert Emitters(H100).launch(column_reduction(4096, 1024)) == Launch(1024 // 64, 1024)


def test_a_transpose_has_a_block_per_tile():
    build = Sketch("turn")
    module = module_of(build, build.op("exp", build.transpose(build.arg("f32[1000,320]"))))
    assert Emitters(H100).launch(kernel(module, "transpose")) == Launch(32 * 10, 256)


# ---- kinds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "expected"), [(32, Kind.REDUCTION), (31, Kind.LOOP), (16, Kind.REDUCTION)])
def test_short_rows_are_a_loop_unless_they_divide_a_warp(width, expected):
    assert Emitters(H100).kind(row_reduction(64, width)) is expected


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(31, 4096, Kind.LOOP), (32, 32, Kind.REDUCTION), (63, 31, Kind.LOOP), (128, 7, Kind.REDUCTION)],
)
def test_low_columns_are_a_loop(height, width, expected):
    assert Emitters(H100).kind(column_reduction(height, width)) is expected


@pytest.mark.parametrize(
    ("shape", "permutation", "expected"),
    [
        ((64, 64), (1, 0), Kind.TRANSPOSE),
        ((16, 15), (1, 0), Kind.LOOP),
        ((64, 64, 2), (1, 0, 2), Kind.TRANSPOSE),
        ((64, 64, 3), (1, 0, 2), Kind.LOOP),
        ((64, 8, 8), (1, 2, 0), Kind.TRANSPOSE),
    ],
)
def test_a_transpose_is_tiled_if_enough_is_exchanged(shape, permutation, expected):
    build = Sketch("turn")
    x = build.arg(f"f32[{','.join(map(str, shape))}]")
    module = module_of(build, build.op("exp", build.emit("transpose", [x], permutation=permutation)))
    assert Emitters(H100).kind(kernel(module, "transpose")) is expected
    merged = combined(kernel(module, "transpose"), kernel(module, "exp"), 0)
    assert Emitters(H100).kind(merged) is expected


def test_single_dimensions_do_not_count():
    build = Sketch("turn")
    x = build.arg("f32[64,1,64]")
    module = module_of(build, build.op("exp", build.emit("transpose", [x], permutation=(1, 0, 2))))
    assert kernel(module, "bitcast")


# ---- very long reductions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "is_row", "expected"),
    [
        (100_000, False, (250, 400)),  # 250 divides it; the longer pieces are reduced first
        (1 << 23, True, (2048, 4096)),
        (4097, False, (50, 82)),  # nothing near its root divides it, and 50 * 82 is three more
    ],
)
def test_a_dimension_is_cut_near_its_root_with_little_padding(extent, is_row, expected):
    outer, inner = split_extents(extent, is_row)
    assert (outer, inner) == expected
    assert extent <= outer * inner


def test_a_sum_of_everything_has_two_steps():
    build = Sketch("whole")
    module = module_of(build, build.op("exp", build.reduce(build.arg("f32[4096,2048]"), 0, 1)))
    reductions = [reduction_of(kernel.first) for kernel in module if kernel.first.opcode == "reduce"]
    assert reductions == [GroupedReduction(True, 1, 2048, 4096), GroupedReduction(True, 1, 1, 2048)]
