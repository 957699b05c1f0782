"""Reductions, scans and arg-reductions, in both lane modes."""

import numpy as np
import pytest

from autofuse.ir.dtypes import ALL, BF16, BOOL, F16, F32, F64, I8, I32, I64, U8
from autofuse.ir.index import Symbol, of
from autofuse.lower.merging import merge_scans
from autofuse.lower.rewrite import statements
from autofuse.lower.statements import ArgReduce, Constant, Load, Map, Reduce, Scan, Store
from autofuse.lower.tile import Space
from autofuse.targets.cpu.decisions import cpu_schedule
from tests.fixtures.tileprograms import buffers, check, phase, program, stage


def row_reduction(rows, columns, dtype=F32, combiner="add", lane="stage", into=None, schedule=None):
    i, k = Symbol("i0", rows), Symbol("k0", columns)
    into = into or dtype
    reduction = (Load(0, dtype, "x", of(i) * columns + of(k)), Reduce(1, into, combiner, 0))
    stages = stage(*reduction, over=[k], vectorised=k if lane == "stage" else None), stage(Store("y", of(i), 1))
    listed = buffers(f"x={dtype}[{rows},{columns}]", f"y={into}[{rows}]")
    return program(
        "reduction", listed, phase([i], *stages, vectorised=i if lane == "grid" else None), schedule=schedule
    )


@pytest.mark.parametrize("lane", ["stage", "grid", "none"])
@pytest.mark.parametrize("columns", [0, 1, 3, 16, 31, 64, 100, 1000])
def test_sums_of_rows(columns, lane):
    check(row_reduction(5, columns, lane=lane))


FOLDS = [
    (dtype, combiner)
    for dtype in ALL
    for combiner in ("add", "multiply", "minimum", "maximum", "and", "or")
    if not (combiner in ("and", "or") and dtype.is_float) and not (combiner in ("add", "multiply") and dtype is BOOL)
]


@pytest.mark.parametrize(("dtype", "combiner"), FOLDS, ids=str)
@pytest.mark.parametrize("lane", ["stage", "grid"])
def test_every_combiner_of_every_dtype(dtype, combiner, lane):
    check(row_reduction(3, 77, dtype, combiner, lane))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_narrow_floats_accumulate_wide(dtype):
    check(row_reduction(3, 200, dtype, into=F32))


@pytest.mark.parametrize("lane", ["stage", "grid", "none"])
@pytest.mark.parametrize("combiner", ["minimum", "maximum", "add"])
def test_nan_and_infinity_pass_through(lane, combiner):
    x = np.random.default_rng(0).standard_normal((6, 90)).astype(np.float32)
    x[0, 3] = x[1, 89] = x[2, :] = np.nan
    x[3, 0], x[4, 50] = np.inf, -np.inf
    check(row_reduction(6, 90, combiner=combiner, lane=lane), {"x": x})


def test_unrolling_is_part_of_the_order_but_the_split_is_not():
    for unroll in (1, 2, 5, 16):
        check(row_reduction(7, 555, schedule=cpu_schedule(unroll=unroll)))


@pytest.mark.parametrize("columns", [5, 64, 200])
def test_sums_of_columns_run_down_contiguous_lanes(columns):
    j, k = Symbol("j0", columns), Symbol("k0", 33)
    reduction = stage(Load(0, F32, "x", of(k) * columns + of(j)), Reduce(1, F32, "add", 0), over=[k])
    listed = buffers(f"x=f32[33,{columns}]", f"y=f32[{columns}]")
    check(program("columns", listed, phase([j], reduction, stage(Store("y", of(j), 1)), vectorised=j)))


@pytest.mark.parametrize("lane", ["inner", "outer", None])
def test_two_stream_symbols(lane):
    i, a, b = Symbol("i0", 4), Symbol("a", 5), Symbol("b", 37)
    load = Load(0, F32, "x", of(i) * 185 + of(a) * 37 + of(b))
    reduction = stage(
        load, Reduce(1, F32, "add", 0), over=[a, b], vectorised={"inner": b, "outer": a, None: None}[lane]
    )
    listed = buffers("x=f32[4,5,37]", "y=f32[4]")
    check(program("reduction2", listed, phase([i], reduction, stage(Store("y", of(i), 1)))))


def softmax(rows, columns, lane, dtype=F32):
    i, k = Symbol("i0", rows), Symbol("k0", columns)
    at = of(i) * columns + of(k)
    own = k if lane == "stage" else None
    stages = (
        stage(Load(0, dtype, "x", at), Reduce(1, dtype, "maximum", 0), over=[k], vectorised=own),
        stage(
            Load(2, dtype, "x", at),
            Map(3, dtype, "subtract", (2, 1)),
            Map(4, dtype, "exp", (3,)),
            Store("s", of(k), 4),
            Reduce(5, dtype, "add", 4),
            over=[k],
            vectorised=own,
        ),
        stage(Load(6, dtype, "s", of(k)), Map(7, dtype, "divide", (6, 5)), Store("y", at, 7), over=[k], vectorised=own),
    )
    shape = f"{dtype}[{rows},{columns}]"
    listed = buffers(f"x={shape}", f"y={shape}", f"s={dtype}[{columns}]")
    return program("softmax", listed, phase([i], *stages, vectorised=i if lane == "grid" else None))


@pytest.mark.parametrize("lane", ["stage", "grid", "none"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 37), (70, 10), (3, 300)])
def test_softmax_keeps_its_row_in_scratch(rows, columns, lane, dtype):
    check(softmax(rows, columns, lane, dtype))


@pytest.mark.parametrize("lane", ["stage", "grid"])
@pytest.mark.parametrize("dtype", [BOOL, BF16, I8], ids=str)
def test_scratch_of_every_shape_of_element(lane, dtype):
    """Scratch written forward and read backward."""
    i, k = Symbol("i0", 40), Symbol("k0", 21)
    at, own = of(i) * 21 + of(k), k if lane == "stage" else None
    stages = (
        stage(Load(0, dtype, "x", at), Store("s", of(k), 0), over=[k], vectorised=own),
        stage(Load(1, dtype, "s", of(k) * -1 + 20), Store("y", at, 1), over=[k], vectorised=own),
    )
    listed = buffers(f"x={dtype}[40,21]", f"y={dtype}[40,21]", f"s={dtype}[21]")
    check(program("flip", listed, phase([i], *stages, vectorised=i if lane == "grid" else None)), exact=True)


@pytest.mark.parametrize("lane", ["grid", "none"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("combiner", "dtype"), [("add", F32), ("maximum", F64), ("multiply", I64), ("add", U8)])
def test_scans(lane, reverse, combiner, dtype):
    i, k = Symbol("i0", 37), Symbol("k0", 19)
    at = of(i) * 19 + of(k)
    body = stage(Load(0, dtype, "x", at), Scan(1, dtype, combiner, 0, reverse), Store("y", at, 1), over=[k])
    listed = buffers(f"x={dtype}[37,19]", f"y={dtype}[37,19]")
    check(program("scan", listed, phase([i], body, vectorised=i if lane == "grid" else None)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 64, 65, 300])
@pytest.mark.parametrize(("combiner", "dtype"), [("add", I32), ("minimum", F32), ("add", F64), ("add", BF16)])
def test_scans_along_the_lanes(combiner, dtype, length, reverse):
    """Whole vectors in flight, single ones and a masked one; a sum that other iterations of the stage read too."""
    i, k = Symbol("i0", 3), Symbol("k0", length)
    at = of(i) * length + of(k)
    wide = F32 if dtype == BF16 else dtype
    body = stage(
        Load(0, dtype, "x", at),
        Map(1, wide, "convert", (0,)),
        Scan(2, wide, combiner, 1, reverse),
        Map(3, wide, "add", (2, 1)),
        Store("y", at, 3),
        over=[k],
    )
    listed = buffers(f"x={dtype}[3,{length}]", f"y={wide}[3,{length}]")
    check(program("scan", listed, phase([i], body)))


def test_a_scan_keeps_what_it_met():
    """NaN and infinities go on to all later elements, and the sign of zeros stays."""
    k = Symbol("k0", 40)
    x = np.full((40,), -0.0, np.float32)
    x[21], x[33] = np.inf, np.nan
    body = stage(Load(0, F32, "x", of(k)), Scan(1, F32, "add", 0, False), Store("y", of(k), 1), over=[k])
    found = check(program("scan", buffers("x=f32[40]", "y=f32[40]"), phase([], body)), {"x": x})["y"]
    assert np.signbit(found[:21]).all()
    assert np.isinf(found[21:33]).all()
    assert np.isnan(found[33:]).all()


def test_a_running_value_is_read_by_a_reduction_beside_it():
    k = Symbol("k0", 150)
    body = stage(Load(0, I64, "x", of(k)), Scan(1, I64, "add", 0, False), Reduce(2, I64, "maximum", 1), over=[k])
    listed = buffers("x=i64[150]", "y=i64[]")
    check(program("peak", listed, phase([], body, stage(Store("y", of(0), 2)))), exact=True)


def arg_reduction(rows, columns, direction, lane, dtype=F32, backward=False, into=I32):
    i, k = Symbol("i0", rows), Symbol("k0", columns)
    place = of(k) * -1 + (columns - 1) if backward else of(k)
    best = ArgReduce(1, into, direction, 0, place)
    own = k if lane == "stage" else None
    stages = (
        stage(Load(0, dtype, "x", of(i) * columns + of(k)), best, over=[k], vectorised=own),
        stage(Store("y", of(i), 1)),
    )
    listed = buffers(f"x={dtype}[{rows},{columns}]", f"y={into}[{rows}]")
    return program("arg", listed, phase([i], *stages, vectorised=i if lane == "grid" else None))


@pytest.mark.parametrize("direction", ["argmin", "argmax"])
@pytest.mark.parametrize("lane", ["stage", "grid", "none"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("columns", [1, 9, 100, 321])
def test_argreduce_with_ties_and_nan(direction, lane, backward, columns):
    generator = np.random.default_rng(columns)
    x = generator.integers(-3, 3, (20, columns)).astype(np.float32)
    x[5], x[6], x[7] = np.inf, -np.inf, np.nan
    x[8:14][generator.random((6, columns)) < 0.03] = np.nan
    check(arg_reduction(20, columns, direction, lane, backward=backward), {"x": x})


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("direction", ["argmin", "argmax"])
def test_argreduce_of_every_dtype(dtype, direction):
    check(arg_reduction(4, 50, direction, "stage", dtype, into=I64))


def test_argreduce_over_two_symbols_is_row_major():
    a, b = Symbol("a", 7), Symbol("b", 19)
    place = of(a) * 19 + of(b)
    reduction = stage(Load(0, F32, "x", place), ArgReduce(1, I64, "argmax", 0, place), over=[a, b], vectorised=b)
    x = np.random.default_rng(1).integers(0, 4, (7, 19)).astype(np.float32)
    listed = buffers("x=f32[7,19]", "y=i64[]")
    check(program("arg2", listed, phase([], reduction, stage(Store("y", of(0), 1)))), {"x": x})


def test_several_reductions_share_a_pass():
    i, k = Symbol("i0", 3), Symbol("k0", 130)
    reduction = stage(
        Load(0, F32, "x", of(i) * 130 + of(k)),
        Map(1, F32, "multiply", (0, 0)),
        Reduce(2, F32, "add", 0),
        Reduce(3, F32, "add", 1),
        Reduce(4, F32, "maximum", 0),
        over=[k],
        vectorised=k,
    )
    done = stage(
        Constant(5, F32, 130.0),
        Map(6, F32, "divide", (2, 5)),
        Store("mean", of(i), 6),
        Store("square", of(i), 3),
        Store("top", of(i), 4),
    )
    listed = buffers("x=f32[3,130]", "mean=f32[3] square=f32[3] top=f32[3]")
    check(program("moments", listed, phase([i], reduction, done)))


def test_a_value_that_all_lanes_share_is_reduced_once_per_iteration():
    k = Symbol("k0", 45)
    reduction = stage(Constant(0, I32, 2), Reduce(1, I32, "add", 0), over=[k], vectorised=k)
    found = check(program("count", buffers("", "y=i32[]"), phase([], reduction, stage(Store("y", of(0), 1)))))
    assert found["y"] == 90


@pytest.mark.parametrize("lane", ["grid", "none"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("columns", "shift"), [(90, 0), (90, 3), (300, 0)])
def test_what_reads_a_running_sum_where_it_is_made_needs_no_scratch(lane, reverse, columns, shift):
    """Two scans and the loop that reads both; where it reads another place of one, that one stays in scratch."""
    i, k, j = Symbol("i0", 70), Symbol("k0", columns), Symbol("k1", columns)
    m = Symbol("k2", columns - shift)
    at = of(i) * columns
    stages = (
        stage(Load(0, F64, "x", at + of(k)), Scan(1, F64, "add", 0, reverse), Store("s", of(k), 1), over=[k]),
        stage(
            Load(2, F64, "x", at + of(j)),
            Map(3, F64, "multiply", (2, 2)),
            Scan(4, F64, "add", 3, reverse),
            Store("t", of(j), 4),
            over=[j],
        ),
        stage(
            Load(5, F64, "s", of(m) + shift),
            Load(6, F64, "t", of(m)),
            Map(7, F64, "subtract", (5, 6)),
            Reduce(8, F64, "add", 7),
            Store("y", of(i) * (columns - shift) + of(m), 7),
            over=[m],
        ),
        stage(Store("z", of(i), 8)),
    )
    outputs = f"y=f64[70,{columns - shift}] z=f64[70]"
    listed = buffers(f"x=f64[70,{columns}]", outputs, f"s=f64[{columns}] t=f64[{columns}]")
    tested = program("window", listed, phase([i], *stages, vectorised=i if lane == "grid" else None))
    check(tested)
    kept = {b.name for b in merge_scans(tested).buffers if b.space is Space.SCRATCH}
    assert kept == (set() if shift == 0 else {"s", "t"})


def test_a_loop_that_needs_the_total_waits_for_the_scan():
    k, m = Symbol("k0", 100), Symbol("k1", 100)
    stages = (
        stage(
            Load(0, F32, "x", of(k)),
            Reduce(1, F32, "add", 0),
            Scan(2, F32, "add", 0, False),
            Store("s", of(k), 2),
            over=[k],
        ),
        stage(Load(3, F32, "s", of(m)), Map(4, F32, "divide", (3, 1)), Store("y", of(m), 4), over=[m], vectorised=m),
    )
    check(program("share", buffers("x=f32[100]", "y=f32[100]", "s=f32[100]"), phase([], *stages)))


@pytest.mark.parametrize("lane", ["stage", "grid", "none"])
def test_loops_over_the_same_elements_become_one(lane):
    """Three sums that share a root: it is computed once per element; a loop that needs a sum stays behind it."""
    i, k, m, n = Symbol("i0", 40), Symbol("k0", 75), Symbol("k1", 75), Symbol("k2", 75)

    def reduction(first, symbol, *more):
        x, root = Load(first, F32, "x", of(i) * 75 + of(symbol)), Map(first + 1, F32, "sqrt", (first,))
        own = symbol if lane == "stage" else None
        return stage(x, root, *more, over=[symbol], vectorised=own)

    stages = (
        reduction(0, k, Reduce(2, F32, "add", 1)),
        reduction(3, m, Map(5, F32, "multiply", (3, 4)), Reduce(6, F32, "maximum", 5)),
        reduction(7, n, Map(9, F32, "divide", (8, 2)), Reduce(10, F32, "add", 9)),
        stage(Store("a", of(i), 2), Store("b", of(i), 6), Store("c", of(i), 10)),
    )
    listed = buffers("x=f32[40,75]", "a=f32[40] b=f32[40] c=f32[40]")
    tested = program("sums", listed, phase([i], *stages, vectorised=i if lane == "grid" else None))
    x = np.random.default_rng(0).uniform(0.5, 2.0, (40, 75)).astype(np.float32)
    check(tested, {"x": x})
    roots = [s for p in merge_scans(tested).phases() for _, s in statements(p.steps) if isinstance(s, Map)]
    assert [s.opcode for s in roots].count("sqrt") == 2
