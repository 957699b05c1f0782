"""Features of small programs, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from autofuse.cost_models.features import COLUMNS, FarWalk, matrix
from autofuse.ir.dtypes import BOOL, F32, F64
from autofuse.ir.index import Affine, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.lower.statements import Constant, Load, Map, Reduce, Scan, Store
from autofuse.lower.statements import Test as When
from autofuse.lower.tile import Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.passes.prepare import CpuPasses
from autofuse.testing.cost_models import elementwise_kernel, row_sum_kernel
from tests.fixtures.countedprograms import buffer, only_stage, program


def test_an_elementwise_kernel():
    found = features(elementwise_kernel(1000))
    stage = only_stage(found)
    assert (stage.lanes, stage.unroll) == (16, 4)
    assert stage.vectors == 63  # ceil(1000 / 16)
    assert stage.entries == 16  # four vectors at a time
    assert stage.iterations == 1000
    assert stage.operations == {("exp", "f32"): 63}
    assert stage.flops == 1000
    assert stage.accesses.contiguous == 126
    assert stage.accesses.vector_bytes == 126 * 64
    assert stage.live == 2  # the element and its exponential, at the moment the one becomes the other
    assert not stage.loops
    x, y = found.buffers
    assert (x.read_bytes, x.written_bytes, x.floor_read_bytes) == (63 * 64, 0, 4000)
    assert (y.read_bytes, y.written_bytes, y.floor_written_bytes) == (0, 63 * 64, 4000)
    (phase,) = found.phases
    assert (phase.points, phase.shares) == (1000, 1)
    assert phase.reuse.levels == ((512, 4032, 4032),)


def test_narrower_vectors_are_more():
    stage = only_stage(features(elementwise_kernel(1000), vector_bits=256))
    assert (stage.lanes, stage.vectors) == (8, 125)


def test_a_row_sum():
    found = features(row_sum_kernel(100, 1024))
    (phase,) = found.phases
    total, store = phase.stages
    assert phase.points == 100
    assert (total.entries, total.iterations, total.vectors) == (100, 102400, 6400)
    assert total.operations == {("add", "f32"): 6400}
    assert (total.reduces, total.horizontal) == (100, 100)
    assert total.chain == 100 * (1024 // 64 - 1)
    assert total.loops
    assert (store.vectors, store.accesses.uniform, store.accesses.contiguous) == (100, 100, 0)
    # a row of 4096 bytes and a result fit anywhere; then each byte moves once
    assert phase.reuse.traffic(8192) == (409600, 448)
    assert found.buffers[0].floor_read_bytes == 409600


def test_a_sum_of_nothing_waits_for_nothing():
    assert features(row_sum_kernel(100, 0)).phases[0].stages[0].chain == 0


def column_sum(rows, columns):
    j, k = Symbol("i0", columns), Symbol("k0", rows)
    body = (Load(0, F32, "x", of(k) * columns + of(j)), Reduce(1, F32, "add", 0))
    stages = (Stage((k,), body, None), Stage((), (Store("y", of(j), 1),), None))
    phase = Phase((j,), (RowGroup(stages),), j)
    return program(phase, buffer("x", (rows, columns)), buffer("y", (columns,), Space.OUTPUT))


def test_a_column_sum_goes_down_strips_of_columns():
    found = features(column_sum(512, 4096))
    total, store = found.phases[0].stages
    assert total.lanes == 16
    assert total.unroll == 64  # strips of 4096 bytes
    assert (total.vectors, total.iterations) == (512 * 256, 512 * 4096)
    assert total.operations == {("add", "f32"): 512 * 256}
    assert (total.reduces, total.horizontal) == (256, 0)
    assert total.accesses.far_steps == 512 * 4  # each row of each of the four strips is on another page
    assert total.far_walks == (FarWalk(512 * 4, 512, write=False),)
    # loads, and the accumulator fetched and stored once per 8 rows
    assert total.accesses.contiguous == 512 * 256 * (1 + 2 / 8)
    assert store.accesses.contiguous == 256
    assert found.buffers[0].read_bytes == 4 * 512 * 4096


def softmax(rows, columns):
    i, k = Symbol("i0", rows), Symbol("k0", columns)
    at = of(i) * columns + of(k)
    stages = (
        Stage((k,), (Load(0, F32, "x", at), Reduce(1, F32, "maximum", 0)), k),
        Stage(
            (k,),
            (
                Load(2, F32, "x", at),
                Map(3, F32, "subtract", (2, 1)),
                Map(4, F32, "exp", (3,)),
                Store("s", of(k), 4),
                Reduce(5, F32, "add", 4),
            ),
            k,
        ),
        Stage((k,), (Load(6, F32, "s", of(k)), Map(7, F32, "divide", (6, 5)), Store("y", at, 7)), k),
    )
    buffers = (
        buffer("x", (rows, columns)),
        buffer("y", (rows, columns), Space.OUTPUT),
        buffer("s", (columns,), Space.SCRATCH),
    )
    return program(Phase((i,), (RowGroup(stages),)), *buffers)


def test_a_softmax_reads_its_row_twice_but_memory_once():
    found = features(softmax(64, 4096))
    (phase,) = found.phases
    greatest, exponentials, quotients = phase.stages
    vectors = 64 * 4096 / 16
    assert greatest.operations == {("compare", "f32"): 3 * vectors}
    assert exponentials.operations == {("add", "f32"): 2 * vectors, ("exp", "f32"): vectors}
    assert quotients.operations == {("divide", "f32"): vectors}
    assert phase.scratch_bytes == 16384
    assert [stage.first_touch_bytes for stage in phase.stages] == [16384, 0, 16384]
    row = 64 * 16384
    # a cache that holds a row of x, of y and the scratch (48 KiB) moves x and y once
    assert phase.reuse.traffic(48 << 10) == (row, row)
    # one of half the size moves x twice, and the scratch out and in; one between the two, a part of that
    assert phase.reuse.traffic(24 << 10) == (3 * row, 2 * row)
    assert phase.reuse.traffic(32 << 10) == (2 * row, 1.5 * row)
    assert found.buffers[0].read_bytes == row


def row_block_product():
    i, j = Symbol("i0", 1000), Symbol("j0", 512)
    row_block = RowBlock(i, Symbol("row", 128), 128)
    dot = Dot(
        Matrix("s", Affine(), 512, 1),
        Matrix("x", of(i) * 256, 256, 1),
        Matrix("w", Affine(), 512, 1),
        128,
        512,
        256,
        F32,
    )
    body = (
        Load(0, F32, "s", of(row_block.local) * 512 + of(j)),
        Load(1, F32, "b", of(j)),
        Map(2, F32, "add", (0, 1)),
        Store("y", of(i) * 512 + of(j), 2),
    )
    buffers = (
        buffer("x", (1000, 256)),
        buffer("w", (256, 512)),
        buffer("b", (512,)),
        buffer("s", (128, 512), Space.SCRATCH),
        buffer("y", (1000, 512), Space.OUTPUT),
    )
    return program(Phase((i,), (dot, RowGroup((Stage((j,), body, j),))), None, row_block), *buffers)


def test_a_product_in_row_blocks_with_an_epilogue():
    found = features(row_block_product())
    (phase,) = found.phases
    (dot,) = phase.dots
    assert (dot.rows, dot.columns, dot.depth, dot.calls, dot.all_rows) == (128, 512, 256, 8, 1000)
    assert not dot.library
    assert dot.cycles == pytest.approx(128 * 512 / 16 * 256 / 2, rel=0.15)  # two multiply-adds a cycle
    assert dot.flops == 2 * 1000 * 512 * 256
    (epilogue,) = phase.stages
    assert epilogue.iterations == 1000 * 512
    assert epilogue.entries == 1000
    assert epilogue.accesses.contiguous == pytest.approx(3 * 1000 * 512 / 16)
    assert phase.blocks == 8
    assert phase.scratch_bytes == 128 * 512 * 4
    # one row block: 128 KiB of x, 512 KiB of w, 2 KiB of b, 256 KiB of s, 256 KiB of y
    ((needed, read, written),) = phase.reuse.levels
    assert needed == (128 + 512 + 2 + 256 + 256) << 10
    assert read == 1000 * 256 * 4 + 256 * 512 * 4 + 512 * 4
    assert written == 1000 * 512 * 4
    # without room for a row block, each of them reads w again
    assert phase.reuse.traffic(needed // 2)[0] > read + 7 * 256 * 512 * 4
    assert found.panel_rows == 128


def test_a_product_left_to_the_library():
    kernel = row_block_product()
    (phase,) = features(replace(kernel, schedule=cpu_schedule(dots="library"))).phases
    assert phase.dots[0].library
    assert phase.dots[0].packed_elements == 8 * 512 * 256


def test_a_mask_that_cuts_a_loop_costs_nothing_inside():
    j = Symbol("i0", 1024)
    body = (
        Constant(0, F32, 0.0),
        When(1, (Condition(of(j), 256, 1024),)),
        Load(2, F32, "x", of(j) - 256, mask=1, fill=0),
        Store("y", of(j), 2),
    )
    phase = Phase((j,), (RowGroup((Stage((), body, None),)),), j)
    found = features(program(phase, buffer("x", (768,)), buffer("y", (1024,), Space.OUTPUT)))
    stage = only_stage(found)
    assert stage.accesses.masked == 0
    assert stage.accesses.contiguous == 64 * 0.75 + 64
    assert stage.operations == {}
    # x is read, but no bound may count on a masked read
    assert found.buffers[0].read_bytes == 768 * 4
    assert found.buffers[0].floor_read_bytes == 4
    assert found.buffers[1].floor_written_bytes == 4096


def test_each_part_of_a_concatenation_is_computed_where_it_is_chosen():
    j = Symbol("i0", 1024)
    body = (
        Constant(0, F32, 0.0),
        When(1, (Condition(of(j), 0, 256),)),
        Load(2, F32, "x", of(j), mask=1, fill=0),
        Map(3, F32, "exp", (2,)),
        Load(4, F32, "y", of(j)),
        Map(5, F32, "log", (4,)),
        Map(6, F32, "select", (1, 3, 5)),
        Store("z", of(j), 6),
    )
    phase = Phase((j,), (RowGroup((Stage((), body, None),)),), j)
    buffers = (buffer("x", (256,)), buffer("y", (1024,)), buffer("z", (1024,), Space.OUTPUT))
    stage = only_stage(features(program(phase, *buffers)))
    assert stage.operations == {("exp", "f32"): 16, ("log", "f32"): 48}
    assert stage.accesses.contiguous == 16 + 48 + 64


def test_a_mask_over_two_symbols_stays():
    i, j = Symbol("i0", 100), Symbol("i1", 128)
    body = (
        Constant(0, F32, 0.0),
        When(1, (Condition(of(i) - of(j), 0, 100),)),
        Load(2, F32, "x", of(i) * 128 + of(j), mask=1, fill=0),
        Store("y", of(i) * 128 + of(j), 2),
    )
    phase = Phase((i, j), (RowGroup((Stage((), body, None),)),), j)
    stage = only_stage(features(program(phase, buffer("x", (100, 128)), buffer("y", (100, 128), Space.OUTPUT))))
    share = 100 / 227  # of the values -127..99 of i - j
    assert stage.accesses.masked == pytest.approx(800 * share)
    assert stage.operations == {("integer", "f32"): 2 * 800, ("compare", "f32"): 800}
    assert stage.flops == 0


def test_lanes_that_lie_pages_apart_step_far():
    i, k = Symbol("i0", 4096), Symbol("k0", 64)
    body = (Load(0, F32, "x", of(i) * 2080 + of(k)), Reduce(1, F32, "add", 0))
    stages = (Stage((k,), body, None), Stage((), (Store("y", of(i), 1),), None))
    phase = Phase((i,), (RowGroup(stages),), i)
    total, _ = features(program(phase, buffer("x", (4096, 2080)), buffer("y", (4096,), Space.OUTPUT))).phases[0].stages
    # 64 vectors of 16 rows are walked together, 8 elements of each row before the next vector: these lie on one page
    assert total.far_walks == (FarWalk(4096 * 64 / 8, 64 * 16, write=False),)
    assert total.operations[("gather", "f32")] == 4096 * 64 / 16


def test_a_cache_that_holds_no_round_of_a_loop_meets_no_line_again():
    i, k = Symbol("i0", 1024), Symbol("k0", 64)
    body = (Load(0, F32, "x", of(i) * 80 + of(k)), Reduce(1, F32, "add", 0))
    stages = (Stage((k,), body, None), Stage((), (Store("y", of(i), 1),), None))
    phase = Phase((i,), (RowGroup(stages),), i)
    found = features(program(phase, buffer("x", (1024, 80)), buffer("y", (1024,), Space.OUTPUT))).phases[0].reuse
    results = 1024 * 4
    # rows begin on every fifth line: 8 rounds of k, done for each vector in turn, take 64 KB of lines
    assert found.traffic(1 << 20) == (1024 * 64 * 4, results)
    assert found.traffic(16 << 10)[0] == pytest.approx(1024 * 64 * 64 / 8, rel=0.01)


def test_lanes_whose_lines_share_a_set_meet_none_again():
    i, k = Symbol("i0", 1024), Symbol("k0", 64)
    body = (Load(0, F32, "x", of(i) * 1024 + of(k)), Reduce(1, F32, "add", 0))
    stages = (Stage((k,), body, None), Stage((), (Store("y", of(i), 1),), None))
    phase = Phase((i,), (RowGroup(stages),), i)
    found = features(program(phase, buffer("x", (1024, 1024)), buffer("y", (1024,), Space.OUTPUT))).phases[0]
    # rows of 4096 bytes: the 16 lines of a vector are more than a set holds, whatever is done for it at a time
    assert found.reuse.traffic(16 << 10)[0] == pytest.approx(1024 * 64 * 64, rel=0.01)


def test_what_a_loop_of_one_round_moves_is_computed_before_the_loops_around_it():
    i, j = Symbol("i0", 1000), Symbol("i1", 16)
    body = (
        Load(0, F32, "b", of(j)),
        Map(1, F32, "exp", (0,)),
        Load(2, F32, "x", of(i) * 16 + of(j)),
        Map(3, F32, "add", (1, 2)),
        Store("y", of(i) * 16 + of(j), 3),
    )
    phase = Phase((i, j), (RowGroup((Stage((), body, None),)),), j)
    buffers = (buffer("b", (16,)), buffer("x", (1000, 16)), buffer("y", (1000, 16), Space.OUTPUT))
    stage = only_stage(features(program(phase, *buffers)))
    assert stage.operations == {("exp", "f32"): 1, ("add", "f32"): 1000}
    assert stage.accesses.contiguous == 1 + 1000 + 1000


@pytest.mark.parametrize(("opcode", "times"), [("exp", 1), ("cos", 63)])
def test_nothing_moves_out_of_a_loop_that_calls_a_slow_path(opcode, times):
    """A thousand times the same number, in 63 vectors."""
    k = Symbol("k0", 1000)
    body = (
        Load(0, F32, "x", Affine()),
        Map(1, F32, opcode, (0,)),
        Map(2, F32, "negate", (1,)),
        Store("y", of(k), 2),
    )
    phase = Phase((), (RowGroup((Stage((k,), body, k),)),), None)
    stage = only_stage(features(program(phase, buffer("x", ()), buffer("y", (1000,), Space.OUTPUT))))
    assert set(stage.scalar_operations.values()) == {times}
    assert len(stage.scalar_operations) == 2


def test_a_scan_is_a_chain():
    k = Symbol("k0", 1000)
    body = (Load(0, F64, "x", of(k)), Scan(1, F64, "add", 0, False), Store("y", of(k), 1))
    phase = Phase((), (RowGroup((Stage((k,), body, None),)),))
    walked = program(phase, buffer("x", (1000,), dtype=F64), buffer("y", (1000,), Space.OUTPUT, F64))
    found = features(CpuPasses(512)(walked))
    stage = only_stage(found)
    assert (stage.lanes, stage.chain, stage.scan_iterations) == (8, 125, 125)
    assert stage.accesses.contiguous == 250


def test_what_does_not_change_in_a_loop_is_computed_outside():
    i, k = Symbol("i0", 10), Symbol("k0", 160)
    body = (
        Load(0, F32, "m", of(i)),
        Map(1, F32, "exp", (0,)),
        Load(2, F32, "x", of(i) * 160 + of(k)),
        Map(3, F32, "multiply", (1, 2)),
        Store("y", of(i) * 160 + of(k), 3),
    )
    phase = Phase((i,), (RowGroup((Stage((k,), body, k),)),))
    buffers = (buffer("m", (10,)), buffer("x", (10, 160)), buffer("y", (10, 160), Space.OUTPUT))
    stage = only_stage(features(program(phase, *buffers)))
    assert stage.operations == {("multiply", "f32"): 100}
    assert stage.scalar_operations == {("exp", "f32"): 10}
    assert stage.accesses.uniform == 10
    assert stage.flops == 10 + 1600


def test_bools_of_comparisons_are_priced_as_what_they_compare():
    j = Symbol("i0", 64)
    body = (Load(0, F64, "x", of(j)), Map(1, BOOL, "gt", (0, 0)), Store("y", of(j), 1))
    phase = Phase((j,), (RowGroup((Stage((), body, None),)),), j)
    found = features(program(phase, buffer("x", (64,), dtype=F64), buffer("y", (64,), Space.OUTPUT, BOOL)))
    assert only_stage(found).operations == {("compare", "f64"): 8}


def test_matrix_rows():
    kernels = [features(p) for p in (elementwise_kernel(1000), softmax(64, 4096), row_block_product())]
    rows = matrix(kernels)
    assert rows.shape == (3, len(COLUMNS))
    assert np.isfinite(rows).all()
    column = {name: number for number, name in enumerate(COLUMNS)}
    assert rows[0, column["op_exp_f32"]] == pytest.approx(np.log1p(63))
    assert rows[1, column["traffic_768k"]] == pytest.approx(np.log1p(2 * 64 * 16384))
    assert rows[2, column["dot_depth"]] == pytest.approx(np.log1p(256))
    assert rows[0, column["unroll"]] == 4
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert matrix([]).shape == (0, len(COLUMNS))
