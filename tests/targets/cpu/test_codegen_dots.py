"""Matrix products inside kernels: row blocks, prologues and epilogues, every layout, every dtype."""

import numpy as np
import pytest

from autofuse.ir.dtypes import BF16, F16, F32, F64, I32, U8
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Load, Map, Reduce, Store
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Dot, Matrix, RowBlock
from autofuse.targets.cpu.codegen.matmul.tiling import plan_tiling
from autofuse.targets.cpu.decisions import VECTOR_BITS, cpu_schedule
from tests.fixtures.tilekernels import Kernel
from tests.fixtures.tileprograms import buffers, check, engine, phase, program, stage


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I32, U8], ids=str)
@pytest.mark.parametrize(("rows", "columns", "depth"), [(5, 3, 2), (40, 33, 21), (1, 17, 300), (23, 1, 1), (4, 5, 0)])
def test_a_dot_alone(dtype, rows, columns, depth):
    lhs = Matrix("a", Affine(), depth, 1)
    rhs = Matrix("b", Affine(), columns, 1)
    out = Matrix("c", Affine(), columns, 1)
    dot = Dot(out, lhs, rhs, rows, columns, depth, dtype)
    listed = buffers(f"a={dtype}[{rows},{depth}] b={dtype}[{depth},{columns}]", f"c={dtype}[{rows},{columns}]")
    check(program("dot", listed, phase([], dot)))


@pytest.mark.parametrize("bits", [100, 500])
def test_vectors_have_a_power_of_two_of_elements_whatever_width_is_asked_for(bits):
    """Of 100 bits three elements would fit: no square of those can be transposed."""
    m, n, k = 5, 20, 40
    dot = Dot(Matrix("c", Affine(), n, 1), Matrix("a", Affine(), k, 1), Matrix("b", Affine(), 1, k), m, n, k, F32)
    listed = buffers(f"a=f32[{m * k}] b=f32[{k * n}]", f"c=f32[{m * n}]")
    check(program("dot", listed, phase([], dot), schedule=Schedule.of({VECTOR_BITS: bits})))


@pytest.mark.parametrize("size", [(5, 4, 3), (30, 20, 40)])
@pytest.mark.parametrize("flags", [(bool(n & 2), bool(n & 1)) for n in range(4)], ids=str)
def test_every_layout(flags, size):
    m, n, k = size
    (ta, tb) = flags
    lhs = Matrix("a", Affine(), *((1, m) if ta else (k, 1)))
    rhs = Matrix("b", Affine(), *((1, k) if tb else (n, 1)))
    out = Matrix("c", Affine(), n, 1)
    listed = buffers(f"a=f32[{m * k}] b=f32[{k * n}]", f"c=f32[{m * n}]")
    check(program("dot", listed, phase([], Dot(out, lhs, rhs, m, n, k, F32))))


@pytest.mark.parametrize("narrow", [F32, BF16], ids=str)
@pytest.mark.parametrize(("rows", "columns", "gap"), [(32, 32, 0), (29, 40, 3), (5, 16, 0)])
def test_long_products_of_short_rows_read_both_operands_where_they_lie(rows, columns, gap, narrow):
    """`x.T @ g` over two thousand rows, as gradients of weights are: many rows are on a page. 16 bits are converted."""
    depth = 2100
    across, along = rows + gap, columns + gap
    dot = Dot(Matrix("c", Affine(), columns, 1), Matrix("a", Affine(), 1, across), Matrix("b", Affine(), along, 1),
              rows, columns, depth, narrow)  # fmt: skip
    tiling = plan_tiling(dot, narrow, narrow, 512, 32)
    assert (tiling.copy_left, tiling.pack_right) == (narrow is BF16, narrow is BF16)
    listed = buffers(f"a={narrow}[{depth * across}] b={narrow}[{depth * along}]", f"c={narrow}[{rows},{columns}]")
    check(program("dot", listed, phase([], dot)))


def test_long_products_of_far_rows_copy_both_operands():
    depth, step = 2100, 100
    dot = Dot(Matrix("c", Affine(), 32, 1), Matrix("a", Affine(), 1, step), Matrix("b", Affine(), step, 1),
              32, 32, depth, F32)  # fmt: skip
    tiling = plan_tiling(dot, F32, F32, 512, 32)
    assert tiling.copy_left
    assert tiling.pack_right


def test_a_batch_of_dots_is_the_grid():
    b = Symbol("b", 6)
    dot = Dot(Matrix("z", of(b) * 63, 9, 1), Matrix("x", of(b) * 35, 5, 1), Matrix("y", of(b) * 45, 9, 1), 7, 9, 5, F32)
    check(program("batch", buffers("x=f32[6,7,5] y=f32[6,5,9]", "z=f32[6,7,9]"), phase([b], dot)))


@pytest.mark.parametrize("size", [1, 8, 20, 53, 64])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_row_block_with_prologue_and_epilogue(size, dtype):
    """softmax(relu(x) @ w + b) by row blocks, the last of them ragged."""
    rows, depth, columns = 53, 24, 31
    i, k, j = Symbol("i0", rows), Symbol("k0", depth), Symbol("j0", columns)
    row_block = RowBlock(i, Symbol("l0", size), size)
    local = of(row_block.local)
    prologue = stage(
        Load(0, dtype, "x", of(i) * depth + of(k)),
        Map(1, dtype, "abs", (0,)),
        Store("p", local * depth + of(k), 1),
        over=[k],
        vectorised=k,
    )
    dot = Dot(
        Matrix("q", Affine(), columns, 1),
        Matrix("p", Affine(), depth, 1),
        Matrix("w", Affine(), columns, 1),
        size,
        columns,
        depth,
        dtype,
    )
    at = local * columns + of(j)
    epilogue = (
        stage(
            Load(2, dtype, "q", at),
            Load(3, dtype, "b", of(j)),
            Map(4, dtype, "add", (2, 3)),
            Store("r", at, 4),
            Reduce(5, dtype, "maximum", 4),
            over=[j],
            vectorised=j,
        ),
        stage(
            Load(6, dtype, "r", at),
            Map(7, dtype, "subtract", (6, 5)),
            Store("z", of(i) * columns + of(j), 7),
            over=[j],
            vectorised=j,
        ),
    )
    listed = buffers(
        f"x={dtype}[{rows},{depth}] w={dtype}[{depth},{columns}] b={dtype}[{columns}]",
        f"z={dtype}[{rows},{columns}]",
        f"p={dtype}[{size},{depth}] q={dtype}[{size},{columns}] r={dtype}[{size},{columns}]",
    )
    check(program("layer", listed, phase([i], prologue, dot, *epilogue, row_block=row_block)))


def test_row_blocks_within_a_batch_write_through_to_the_output():
    """The dot reads and writes global memory at the row block's first row; an outer grid symbol picks the matrix."""
    b, i = Symbol("b", 3), Symbol("i0", 50)
    row_block = RowBlock(i, Symbol("l0", 16), 16)
    dot = Dot(
        Matrix("z", of(b) * 1000 + of(i) * 20, 20, 1),
        Matrix("x", of(b) * 600 + of(i) * 12, 12, 1),
        Matrix("w", of(b) * 240, 1, 12),
        16,
        20,
        12,
        F32,
    )
    listed = buffers("x=f32[3,50,12] w=f32[3,20,12]", "z=f32[3,50,20]")
    check(program("heads", listed, phase([b, i], dot, row_block=row_block)))


def test_stages_around_a_dot_without_a_row_block():
    """Per grid point: negate a small matrix into scratch, multiply, reduce the product to one number."""
    b, r, c, k = Symbol("b", 5), Symbol("r", 4), Symbol("c", 6), Symbol("k", 3)
    dot = Dot(Matrix("q", Affine(), 6, 1), Matrix("p", Affine(), 3, 1), Matrix("y", of(b) * 18, 6, 1), 4, 6, 3, F32)
    before = stage(
        Load(0, F32, "x", of(b) * 12 + of(r) * 3 + of(k)),
        Map(1, F32, "negate", (0,)),
        Store("p", of(r) * 3 + of(k), 1),
        over=[r, k],
        vectorised=k,
    )
    after = stage(Load(2, F32, "q", of(r) * 6 + of(c)), Reduce(3, F32, "add", 2), over=[r, c], vectorised=c)
    done = stage(Store("z", of(b), 3))
    listed = buffers("x=f32[5,4,3] y=f32[5,3,6]", "z=f32[5]", "p=f32[4,3] q=f32[4,6]")
    check(program("trace", listed, phase([b], before, dot, after, done)))


def test_nan_in_the_output_memory_does_not_survive():
    """Outputs start as garbage; a product with beta = 0 must not read them."""
    dot = Dot(Matrix("c", Affine(), 64, 1), Matrix("a", Affine(), 64, 1), Matrix("b", Affine(), 64, 1), 64, 64, 64, F32)
    found = check(program("dot", buffers("a=f32[64,64] b=f32[64,64]", "c=f32[64,64]"), phase([], dot)))
    assert np.isfinite(found["c"]).all()


@pytest.mark.parametrize("columns", [130, 400])
def test_a_product_has_the_same_bits_however_it_is_cut(columns):
    """A right operand of 400 columns is packed for many rows, and read as it lies, 16 rows at a time, for few."""
    rng = np.random.default_rng(0)
    given = {"a": rng.standard_normal((40, 700), np.float32), "b": rng.standard_normal((700, columns), np.float32)}
    listed = buffers(f"a=f32[40,700] b=f32[700,{columns}]", f"c=f32[40,{columns}]")
    found = []
    for rows, bits in ((40, 512), (7, 512), (1, 256), (16, 128)):
        i = Symbol("i0", 40)
        row_block = RowBlock(i, Symbol("l0", rows), rows)
        dot = Dot(
            Matrix("c", of(i) * columns, columns, 1), Matrix("a", of(i) * 700, 700, 1),
            Matrix("b", Affine(), columns, 1), rows, columns, 700, F32,
        )  # fmt: skip
        tile = program("cut", listed, phase([i], dot, row_block=row_block), schedule=cpu_schedule(vector_bits=bits))
        found.append(Kernel(tile, engine()).run(given)["c"])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(("rows", "depth", "gain"), [(24, 4096, 3.0), (24, 16384, 5.0), (2, 4096, 3.0)])
def test_a_deep_product_is_far_more_exact_than_a_sum_in_order(rows, depth, gain):
    """By how much: blocks of 256 leave sqrt(depth / 256) of the error, nearly."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    b = rng.standard_normal((depth, 64)).astype(np.float32)
    dot = Dot(
        Matrix("c", Affine(), 64, 1),
        Matrix("a", Affine(), depth, 1),
        Matrix("b", Affine(), 64, 1),
        rows,
        64,
        depth,
        F32,
    )
    listed = buffers(f"a=f32[{rows},{depth}] b=f32[{depth},64]", f"c=f32[{rows},64]")
    found = Kernel(program("deep", listed, phase([], dot)), engine()).run({"a": a, "b": b})["c"]
    exact = a.astype(np.float64) @ b
    in_order = np.zeros_like(found)
    for left, right in zip(a.T, b, strict=True):
        in_order += np.outer(left, right)
    assert gain * np.abs(found - exact).mean() < np.abs(in_order - exact).mean()


def test_blocks_of_the_depth_are_even_and_depend_on_nothing_else():
    assert [sum_block(depth) for depth in (0, 1, 256, 257, 700, 1024, 4096)] == [1, 1, 256, 144, 240, 256, 256]


@pytest.mark.parametrize(("rows", "sizes"), [(512, [8]), (256, [8]), (128 * 13, [13]), (100, [13, 12])])
def test_rows_that_a_tile_of_one_row_less_divides_need_one_function(rows, sizes):
    dot = Dot(
        Matrix("c", Affine(), 192, 1), Matrix("a", Affine(), 768, 1), Matrix("b", Affine(), 192, 1), rows, 192, 768, F32
    )
    tiling = plan_tiling(dot, F32, F32, 512, 32)
    assert [run.size for run in tiling.row_runs(rows)] == sizes


def test_phases_with_row_blocks_of_different_height_share_no_work_memory():
    """32 rows are a whole row block of one phase and the rest of the other's, whose copies need more memory."""
    depth, columns = (
        512,
        80,
    )  # rows a multiple of 2 KiB apart: the left operand is copied; w is too wide to be read in place
    launches = []
    for name, rows, size in (("y", 96, 64), ("z", 32, 32)):
        i = Symbol("i0", rows)
        row_block = RowBlock(i, Symbol("l0", size), size)
        out, lhs = Matrix(name, of(i) * columns, columns, 1), Matrix("x", of(i) * depth, depth, 1)
        dot = Dot(out, lhs, Matrix("w", Affine(), 400, 1), size, columns, depth, F32)
        launches.append(phase([i], dot, row_block=row_block))
    listed = buffers("x=f32[96,512] w=f32[512,400]", "y=f32[96,80] z=f32[32,80]")
    check(program("two", listed, *launches, schedule=cpu_schedule(dots="generated")))
