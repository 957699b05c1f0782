"""Element-wise kernels: sizes that leave tails, every dtype, every way to address memory."""

import subprocess
import sys

import numpy as np
import pytest

from autofuse.ir.dtypes import ALL, BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U64
from autofuse.ir.index import Element, Quotient, Remainder, Symbol, of
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Constant, Load, Map, Position, Store
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.devices import SERVER_MACHINE
from tests.fixtures.tilekernels import generated
from tests.fixtures.tileprograms import buffers, check, phase, program, stage


def added(extent, dtype=F32, lane=True, schedule=None):
    """z = x + y over one dimension."""
    i = Symbol("i0", extent)
    body = stage(
        Load(0, dtype, "x", of(i)),
        Load(1, dtype, "y", of(i)),
        Map(2, dtype, "add", (0, 1)),
        Store("z", of(i), 2),
    )
    spec = f"{dtype}[{extent}]"
    listed = buffers(f"x={spec} y={spec}", f"z={spec}")
    return program("add", listed, phase([i], body, vectorised=i if lane else None), schedule=schedule)


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 129, 5003])
def test_every_size_of_tail(extent):
    check(added(extent), exact=True)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("extent", [5, 203])
def test_every_dtype(dtype, extent):
    check(added(extent, dtype), exact=True)


@pytest.mark.parametrize("bits", [64, 128, 256, 512])
@pytest.mark.parametrize("unroll", [1, 3, 8])
def test_every_vector_width_and_unrolling_gives_the_same_bits(bits, unroll):
    i = Symbol("i0", 777)
    body = stage(Load(0, F32, "x", of(i)), Map(1, F32, "exp", (0,)), Store("z", of(i), 1))
    schedules = cpu_schedule(vector_bits=bits, unroll=unroll), Schedule()
    listed = buffers("x=f32[777]", "z=f32[777]")
    ours, plain = (check(program("exp", listed, phase([i], body, vectorised=i), schedule=s)) for s in schedules)
    assert ours["z"].tobytes() == plain["z"].tobytes()


def test_without_lanes_the_loop_is_scalar():
    check(added(37, lane=False), exact=True)


def test_no_dimension_is_one_element():
    body = stage(Load(0, F64, "x", of(0)), Map(1, F64, "negate", (0,)), Store("z", of(0), 1))
    check(program("scalar", buffers("x=f64[]", "z=f64[]"), phase([], body)), exact=True)


def test_outer_dimensions_carry_over():
    """Blocks start in the middle of rows and end in others."""
    a, b, i = Symbol("a", 3), Symbol("b", 5), Symbol("i0", 70)
    at = of(a) * 350 + of(b) * 70 + of(i)
    body = stage(Load(0, F32, "x", at), Load(1, F32, "y", of(b)), Map(2, F32, "multiply", (0, 1)), Store("z", at, 2))
    listed = buffers("x=f32[3,5,70] y=f32[5]", "z=f32[3,5,70]")
    check(program("scale", listed, phase([a, b, i], body, vectorised=i)), exact=True)
    check(program("scale", listed, phase([a, b, i], body, vectorised=i)), exact=True, task_us=0)


def addressed(offset, over, shape, lane_is_stage, dtype=F32):
    """z = x[offset] over two dimensions."""
    a, i = over
    out = of(a) * i.extent + of(i)
    body = (Load(0, dtype, "x", offset), Store("z", out, 0))
    listed = buffers(f"x={dtype}{shape}", f"z={dtype}[{a.extent},{i.extent}]")
    if lane_is_stage:
        return program("move", listed, phase([a], stage(*body, over=[i], vectorised=i)))
    return program("move", listed, phase([a, i], stage(*body), vectorised=i))


A, J = Symbol("a", 6), Symbol("i0", 45)


@pytest.mark.parametrize("lane_is_stage", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16, BOOL, I8, F16, U64], ids=str)
@pytest.mark.parametrize(
    ("offset", "shape"),
    [
        (of(A), "[6]"),
        (of(J) * 6 + of(A), "[45,6]"),
        (of(A) * 45 + 44 - of(J), "[6,45]"),
        (of(J) * -1 + 44, "[45]"),
        (of(A) * 90 + of(J) * 2 + 1, "[6,90]"),
        (of(A) * 90 + of(J) * 2, "[6,90]"),
        (of(A) * 133 + of(J) * 3, "[798]"),
        (of(A) * 177 + of(J) * 4, "[1062]"),
        (of(A) * 135 + 134 - of(J) * 3, "[6,135]"),
        (of(Quotient(of(A) * 45 + of(J), 7)), "[39]"),
        (of(Remainder(of(A) * 45 + of(J), 8)), "[8]"),
        (of(Remainder(of(J) * -1, 11)) * 2 + of(Quotient(of(A), 4)), "[22]"),
        (of(Quotient(of(J) - of(A) * 3, 4)) + 4, "[16]"),
    ],
    ids=[
        "broadcast",
        "transpose",
        "reverse",
        "reverse_row",
        "odd",
        "even",
        "third",
        "fourth",
        "stride_back",
        "div",
        "mod",
        "mod_neg",
        "div_neg",
    ],
)
def test_every_way_to_address(offset, shape, dtype, lane_is_stage):
    check(addressed(offset, (A, J), shape, lane_is_stage, dtype), exact=True)


AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
import autofuse as af

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None, use_errno=True).mprotect
protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert protect(begin + page, page, 0) == 0

def check(extent, stride):
    x = np.frombuffer(memory, np.float32, extent, page - 4 * extent)
    x[:] = np.arange(1, extent + 1)
    plan = af.compile(lambda x: x[::stride] * np.float32(2), x)
    np.testing.assert_array_equal(plan(x), x[::stride] * 2)

for extent, stride in [(5, 4), (4, 3), (3, 2), (13, 4), (29, 4)]:
    check(extent, stride)
"""


def test_strided_loads_touch_nothing_behind_the_last_element():
    subprocess.run([sys.executable, "-c", AT_THE_END_OF_MEMORY], check=True, timeout=600)


@pytest.mark.parametrize("index_dtype", [I32, I64, U8, I8, U64], ids=str)
@pytest.mark.parametrize("lane_is_stage", [False, True])
def test_gather_clamps_its_indices(index_dtype, lane_is_stage):
    """Rows of a table by index: contiguous where the lane walks a row, a gather where it walks the indices."""
    rows, columns = Symbol("r", 20), Symbol("c", 9)
    body = (
        Load(0, index_dtype, "index", of(rows)),
        Load(1, F32, "table", of(Element(0, (), 0, 12)) * 9 + of(columns)),
    )
    listed = buffers(f"table=f32[13,9] index={index_dtype}[20]", "z=f32[20,9]")
    out = Store("z", of(rows) * 9 + of(columns), 1)
    if lane_is_stage:
        built = phase([rows], stage(*body, out, over=[columns], vectorised=columns))
    else:
        built = phase([columns, rows], stage(*body, out), vectorised=rows)
    check(program("gather", listed, built), exact=True)


def test_scattered_stores_write_a_transpose():
    a, i = Symbol("a", 11), Symbol("i0", 40)
    body = stage(Load(0, F32, "x", of(a) * 40 + of(i)), Store("z", of(i) * 11 + of(a), 0))
    check(program("turn", buffers("x=f32[11,40]", "z=f32[40,11]"), phase([a, i], body, vectorised=i)), exact=True)


@pytest.mark.parametrize("backward", [False, True])
def test_reversed_stores(backward):
    i = Symbol("i0", 53)
    value = Map(1, F32, "negate", (0,))
    load = Load(0, F32, "x", of(i) if backward else of(i) * -1 + 52)
    body = stage(load, value, Store("z", of(i) * -1 + 52 if backward else of(i), 1))
    check(program("flip", buffers("x=f32[53]", "z=f32[53]"), phase([i], body, vectorised=i)), exact=True)


@pytest.mark.parametrize("dtype", [I32, I64, U8], ids=str)
def test_positions_and_constants(dtype):
    a, i = Symbol("a", 3), Symbol("i0", 39)
    body = stage(
        Position(0, dtype, of(i) * 2 + of(a)),
        Constant(1, dtype, 5),
        Map(2, dtype, "multiply", (0, 1)),
        Position(3, dtype, of(a)),
        Map(4, dtype, "add", (2, 3)),
        Store("z", of(a) * 39 + of(i), 4),
    )
    check(program("iota", buffers("", f"z={dtype}[3,39]"), phase([a, i], body, vectorised=i)), exact=True)


def test_types_of_different_width_share_a_loop():
    i = Symbol("i0", 101)
    body = stage(
        Load(0, I8, "x", of(i)),
        Map(1, F64, "convert", (0,)),
        Load(2, F32, "y", of(i)),
        Map(3, F64, "convert", (2,)),
        Map(4, BOOL, "lt", (1, 3)),
        Map(5, F64, "select", (4, 1, 3)),
        Store("z", of(i), 5),
        Store("m", of(i), 4),
    )
    listed = buffers("x=i8[101] y=f32[101]", "z=f64[101] m=bool[101]")
    check(program("mixed", listed, phase([i], body, vectorised=i)), exact=True)


def test_integer_division_by_zero_in_the_tail_does_not_trap():
    i = Symbol("i0", 21)
    body = stage(
        Load(0, I32, "x", of(i)), Load(1, I32, "y", of(i)), Map(2, I32, "divide", (0, 1)), Store("z", of(i), 2)
    )
    y = np.arange(21, dtype=np.int32) - 3
    listed = buffers("x=i32[21] y=i32[21]", "z=i32[21]")
    check(program("div", listed, phase([i], body, vectorised=i)), {"x": np.full(21, 100, np.int32), "y": y}, exact=True)


@pytest.mark.parametrize("dtype", [F32, F64, BF16, BOOL, I8], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (64, 128), (37, 150), (100, 33)])
def test_transposes_by_squares(rows, columns, dtype):
    """One operand is read along columns, one along rows: squares are turned in registers, edges are gathered."""
    a, i = Symbol("a", rows), Symbol("i0", columns)
    at = of(a) * columns + of(i)
    body = stage(
        Load(0, dtype, "x", of(i) * rows + of(a)),
        Load(1, dtype, "y", at),
        Map(2, dtype, "maximum", (0, 1)),
        Store("z", at, 2),
    )
    listed = buffers(f"x={dtype}[{columns},{rows}] y={dtype}[{rows},{columns}]", f"z={dtype}[{rows},{columns}]")
    check(program("turn", listed, phase([a, i], body, vectorised=i)), exact=True)


def test_squares_inside_a_batch_store_turned_too():
    b, a, i = Symbol("b", 3), Symbol("a", 40), Symbol("i0", 70)
    turned = of(b) * 2800 + of(i) * 40 + of(a)
    body = stage(
        Load(0, F32, "x", turned),
        Map(1, F32, "negate", (0,)),
        Store("y", turned, 1),
        Store("z", of(b) * 2800 + of(a) * 70 + of(i), 0),
    )
    listed = buffers("x=f32[3,70,40]", "y=f32[3,70,40] z=f32[3,40,70]")
    check(program("turn3", listed, phase([b, a, i], body, vectorised=i)), exact=True)


@pytest.mark.parametrize("dtype", [F32, F64, BF16, I8, BOOL], ids=str)
@pytest.mark.parametrize("lane_is_stage", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(3, 999), (7, 1024), (1, 5), (40, 321)])
def test_streamed_stores_start_at_any_address(dtype, lane_is_stage, rows, columns):
    """Rows of odd length begin at every residue of a vector."""
    a, i = Symbol("a", rows), Symbol("i0", columns)
    at = of(a) * columns + of(i)
    body = (
        Load(0, dtype, "x", at),
        Load(1, dtype, "y", of(i)),
        Map(2, dtype, "maximum", (0, 1)),
        Store("z", at, 2),
        Store("w", at, 0),
    )
    shape = f"{dtype}[{rows},{columns}]"
    listed = buffers(f"x={shape} y={dtype}[{columns}]", f"z={shape} w={shape}")
    if lane_is_stage:
        built = phase([a], stage(*body, over=[i], vectorised=i))
    else:
        built = phase([a, i], stage(*body), vectorised=i)
    tested = program("stream", listed, built, schedule=cpu_schedule(stream_stores=True, unroll=2))
    check(tested, exact=True)
    assert "nontemporal" in generated(tested, SERVER_MACHINE).ir or columns < 900


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(64, 48), (16, 16), (33, 1000), (100, 17), (80, 250)])
def test_turned_squares_are_stored_a_line_here_and_a_line_there(dtype, bias, rows, columns):
    """Rows of whole lines bypass the caches, others do not; either way every element is written once."""
    i, j = Symbol("i0", rows), Symbol("i1", columns)
    at = of(i) * columns + of(j)
    more = (Load(1, dtype, "b", at), Map(2, dtype, "add", (0, 1))) if bias else (Map(2, dtype, "negate", (0,)),)
    body = stage(Load(0, dtype, "x", of(j) * rows + of(i)), *more, Store("y", at, 2))
    listed = buffers(f"x={dtype}[{columns},{rows}] b={dtype}[{rows},{columns}]", f"y={dtype}[{rows},{columns}]")
    tested = program("turn", listed, phase([i, j], body, vectorised=j), schedule=cpu_schedule(stream_stores=True))
    check(tested, exact=True)
    whole_lines = columns * dtype.itemsize % 64 == 0 and dtype != BF16
    assert ("nontemporal" in generated(tested, SERVER_MACHINE).ir) == whole_lines
