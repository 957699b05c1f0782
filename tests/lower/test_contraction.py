"""Lowering of dots and convolutions: operands read in place or packed, results written directly or worked on."""

import itertools

import numpy as np
import pytest

from autofuse.ir.dtypes import F32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Dot, OpaqueProgram, Space
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from tests.fixtures.kernelchecks import check_fused, check_kernel


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def dots_of(program):
    return [step for phase in program.phases() for step in phase.steps if isinstance(step, Dot)]


def space_of(program, name):
    return next(buffer.space for buffer in program.buffers if buffer.name == name)


ROW_BLOCKS = cpu_schedule(panel_rows=4)


def test_a_plain_product_reads_and_writes_in_place():
    program = check_fused(lambda x, w: x @ w, normal(10, 16), normal(16, 6), schedule=ROW_BLOCKS)
    (dot,) = dots_of(program)
    assert [space_of(program, m.buffer) for m in (dot.lhs, dot.rhs, dot.out)] == [
        Space.INPUT,
        Space.INPUT,
        Space.OUTPUT,
    ]
    (phase,) = program.phases()
    assert phase.row_block.size == 4  # 10 rows: the last row block is shorter
    assert len(phase.steps) == 1


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 256])
def test_epilogue_works_on_the_row_block_while_it_is_warm(rows):
    program = check_fused(
        lambda x, w, b: np.maximum(x @ w + b, 0),
        normal(10, 16),
        normal(16, 6),
        normal(6),
        schedule=cpu_schedule(panel_rows=rows),
    )
    (dot,) = dots_of(program)
    assert space_of(program, dot.out.buffer) is Space.SCRATCH


def test_prologue_packs_the_rows_it_computes():
    program = check_fused(lambda x, w: np.tanh(x) @ w, normal(10, 16), normal(16, 6), schedule=ROW_BLOCKS)
    (dot,) = dots_of(program)
    assert space_of(program, dot.lhs.buffer) is Space.SCRATCH


def test_a_right_side_that_is_computed_is_packed_once_by_an_earlier_launch():
    program = check_fused(lambda x, w: x @ np.tanh(w), normal(10, 16), normal(16, 6), schedule=ROW_BLOCKS)
    assert len(program.launches) == 2
    (dot,) = dots_of(program)
    assert space_of(program, dot.rhs.buffer) is Space.WORKSPACE


@pytest.mark.parametrize("equation", ["ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji"])
def test_every_layout_of_a_product(equation):
    left, right = equation.split("->")[0].split(",")
    sizes = {"i": 9, "k": 14, "j": 5}
    a, b = (normal(*(sizes[c] for c in side), seed=n) for n, side in enumerate((left, right)))
    program = check_fused(lambda a, b: np.einsum(equation, a, b), a, b, schedule=ROW_BLOCKS)
    assert len(dots_of(program)) == 1


@pytest.mark.parametrize("equation", ["bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bqhd,hde->bqe"])
def test_products_of_heads_need_no_copies(equation):
    sizes = {"b": 2, "h": 3, "q": 7, "k": 8, "d": 4, "e": 5}
    left, right = equation.split("->")[0].split(",")
    a, b = (normal(*(sizes[c] for c in side), seed=n) for n, side in enumerate((left, right)))
    check_fused(lambda a, b: np.einsum(equation, a, b), a, b, schedule=ROW_BLOCKS)


def test_merged_heads_are_written_where_they_belong():
    def values(p, v):
        o = np.einsum("bhqk,bhkd->bhqd", p, v)
        return o.transpose(0, 2, 1, 3).reshape(2, 7, 12)

    program = check_fused(values, normal(2, 3, 7, 8), normal(2, 3, 8, 4), schedule=ROW_BLOCKS)
    (dot,) = dots_of(program)
    assert space_of(program, dot.out.buffer) is Space.OUTPUT
    assert dot.out.row_stride == 12


def attention(q, k, v):
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * np.float32(0.25)
    rows, columns = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
    scores = np.where(columns <= rows, scores, np.float32(-1e30))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", e / e.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("rows", [1, 4, 10, 256])
def test_causal_attention_is_one_kernel(rows):
    q, k, v = (normal(2, 3, 10, 16, seed=n) for n in range(3))
    program = check_fused(attention, q, k, v, schedule=cpu_schedule(panel_rows=rows))
    assert len(program.launches) == 1
    assert len(dots_of(program)) == 2


def test_a_chain_of_layers_is_one_kernel():
    def chain(x, a, b, c):
        h = np.maximum(x @ a, 0)
        h = np.tanh(h @ b) + h
        return (h @ c).sum(-1)

    program = check_fused(
        chain, normal(11, 8), normal(8, 12), normal(12, 12, seed=1), normal(12, 3), schedule=ROW_BLOCKS
    )
    assert len(dots_of(program)) == 3


def test_two_products_of_one_left_side():
    def gated(x, w, u):
        g = x @ w
        return g / (1 + np.exp(-g)) * (x @ u)

    assert (
        len(dots_of(check_fused(gated, normal(9, 6), normal(6, 10), normal(6, 10, seed=1), schedule=ROW_BLOCKS))) == 2
    )


def test_nearest_centre_is_the_argmin_of_a_product():
    def nearest(x, centres):
        d = (x * x).sum(1)[:, None] - 2 * (x @ centres.T) + (centres * centres).sum(1)
        return d.argmin(1)

    x, centres = np.round(normal(13, 6) * 4), np.round(normal(5, 6, seed=1) * 4)  # whole numbers: no ties by rounding
    centre_norms = (centres * centres).sum(1)
    check_fused(lambda x, c, n: ((x * x).sum(1)[:, None] - 2 * (x @ c.T) + n).argmin(1), x, centres, centre_norms)
    assert nearest(x, centres).shape == (13,)


def test_gram_matrices_read_one_value_in_two_ways():
    check_fused(lambda x: x.T @ x, normal(9, 5), schedule=ROW_BLOCKS)
    check_fused(lambda x: x @ x.T, normal(9, 5), schedule=ROW_BLOCKS)
    check_fused(lambda x: (lambda t: t @ t)(x.T), normal(6, 6), schedule=ROW_BLOCKS)


@pytest.mark.parametrize("extents", list(itertools.product((0, 1, 3), repeat=3)), ids=str)
def test_every_extent(extents):
    i, k, j = extents
    check_fused(lambda x, w: (x @ w) * 2 + 1, normal(i, k), normal(k, j), native=0 not in extents)
    check_fused(lambda x, w: x @ w, normal(i, k), normal(k, j))


def test_rows_that_overlap_in_memory_are_packed():
    def repeated(v, w):
        return np.broadcast_to(v, (70, 48)) @ w

    def sliding(v, w):
        return np.stack([v[i : i + 48] for i in range(70)]) @ w

    w = normal(48, 33)
    program = check_fused(repeated, normal(48), w, schedule=cpu_schedule(panel_rows=64))
    assert space_of(program, dots_of(program)[0].lhs.buffer) is Space.SCRATCH
    check_fused(sliding, normal(117), w, schedule=cpu_schedule(panel_rows=64))


def test_vectors_and_scalars():
    check_fused(lambda x, y: x @ y, normal(9), normal(9, seed=1))
    check_fused(lambda x, w: x @ w, normal(9), normal(9, 4))
    check_fused(lambda w, x: np.tanh(w @ x), normal(4, 9), normal(9))
    check_fused(np.outer, normal(4), normal(5))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int32, np.int64, np.uint16, np.bool_], ids=str)
def test_products_of_other_dtypes(dtype):
    rng = np.random.default_rng(0)
    x, w = ((rng.standard_normal(shape) * 3).astype(dtype) for shape in ((6, 9), (9, 7)))
    check_fused(lambda x, w: x @ w, x, w, schedule=ROW_BLOCKS)
    check_fused(lambda x, w: np.where(x @ w > 0, 1, 0), np.abs(x), np.abs(w), schedule=ROW_BLOCKS)


# ---- convolutions ----------------------------------------------------------------------------------------------------

NHWC = {"lhs": (0, 3, (1, 2)), "rhs": (3, 2, (0, 1)), "out": (0, 3, (1, 2))}
NCHW = {"lhs": (0, 1, (2, 3)), "rhs": (0, 1, (2, 3)), "out": (0, 1, (2, 3))}


PLAIN = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1)}


def convolution(lhs, rhs, layout, *, groups=1, epilogue=True, **options):
    options = PLAIN | options
    build = GraphBuilder("convolution")
    x, w = build.input(TensorType(lhs, F32), "x"), build.input(TensorType(rhs, F32), "w")
    (ib, ic, ispace), (ko, ki, kspace), (ob, oc, ospace) = layout["lhs"], layout["rhs"], layout["out"]
    y = build.emit(
        "convolution",
        [x, w],
        window_strides=options["strides"],
        padding=options["padding"],
        lhs_dilation=options["lhs_dilation"],
        rhs_dilation=options["rhs_dilation"],
        input_batch_dimension=ib,
        input_feature_dimension=ic,
        input_spatial_dimensions=ispace,
        kernel_output_feature_dimension=ko,
        kernel_input_feature_dimension=ki,
        kernel_spatial_dimensions=kspace,
        output_batch_dimension=ob,
        output_feature_dimension=oc,
        output_spatial_dimensions=ospace,
        feature_group_count=groups,
        batch_group_count=1,
    )
    return build.finish([build.emit("tanh", [y]) if epilogue else y])


def shapes(layout, channels=3, features=4, window=(3, 2)):
    by_role = {"lhs": (2, channels, (7, 6)), "rhs": (features, channels, window)}
    found = []
    for side in ("lhs", "rhs"):
        (first, second, space), (a, b, extents) = layout[side], by_role[side]
        shape = [0] * 4
        shape[first], shape[second] = a, b
        for d, n in zip(space, extents, strict=True):
            shape[d] = n
        found.append(tuple(shape))
    return found


@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": ((1, 1), (1, 0))},
        {"strides": (2, 3), "padding": ((0, 1), (2, 1))},
        {"rhs_dilation": (2, 1), "padding": ((2, 2), (0, 0))},
        {"lhs_dilation": (2, 2), "padding": ((1, 1), (1, 1))},
        {"padding": ((-1, 0), (0, -2))},
    ],
    ids=["plain", "padded", "strided", "dilated", "transposed", "cropped"],
)
def test_convolution(layout, options):
    lhs, rhs = shapes(layout)
    for epilogue in (False, True):
        graph = convolution(lhs, rhs, layout, epilogue=epilogue, **options)
        check_kernel(graph, [normal(*lhs), normal(*rhs, seed=1)], ROW_BLOCKS)


@pytest.mark.parametrize(("least", "rows"), [(6, 6), (7, 42), (42, 42), (43, 84), (400, 84)])
@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_rows_of_a_convolution_are_places_in_all_images(layout, least, rows):
    """Rows of an image, whole images, the batch: as many loops as it takes for a row block."""
    lhs, rhs = shapes(layout)
    for epilogue in (False, True):
        graph = convolution(lhs, rhs, layout, epilogue=epilogue, padding=((1, 1), (1, 0)))
        schedule = cpu_schedule(panel_rows=least)
        check_kernel(graph, [normal(*lhs), normal(*rhs, seed=1)], schedule)
        (phase,) = [p for p in lower(whole_kernel(graph), schedule, "k", LIMITS).phases() if p.row_block]
        assert phase.row_block.symbol.extent == rows


@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_a_window_of_one_is_a_product(layout):
    lhs, rhs = shapes(layout, window=(1, 1))
    check_kernel(convolution(lhs, rhs, layout), [normal(*lhs), normal(*rhs, seed=1)], ROW_BLOCKS)


def test_a_pointwise_convolution_of_channels_last_reads_in_place():
    lhs, rhs = shapes(NHWC, window=(1, 1))
    program = lower(whole_kernel(convolution(lhs, rhs, NHWC)), ROW_BLOCKS, "k", LIMITS)
    (dot,) = dots_of(program)
    assert space_of(program, dot.lhs.buffer) is Space.INPUT


@pytest.mark.parametrize("groups", [2, 4])
def test_grouped_convolutions_are_calls(groups):
    lhs, _ = shapes(NCHW, channels=4)
    graph = convolution(lhs, (8, 4 // groups, 3, 2), NCHW, groups=groups, epilogue=False)
    assert isinstance(lower(whole_kernel(graph), ROW_BLOCKS, "k", LIMITS), OpaqueProgram)
    check_kernel(graph, [normal(*lhs), normal(8, 4 // groups, 3, 2, seed=1)])


@pytest.mark.parametrize("rows", [3, 64])
def test_products_that_are_added_up_gather_in_one_place(rows):
    def gates(x, w, h, u, b):
        return np.tanh(x @ w + h @ u + b)

    program = check_fused(
        gates,
        normal(7, 5),
        normal(5, 6),
        normal(7, 4),
        normal(4, 6),
        normal(6),
        schedule=cpu_schedule(panel_rows=rows),
    )
    dots = [step for phase in program.phases() for step in phase.steps if isinstance(step, Dot)]
    assert [dot.accumulate for dot in dots] == [False, True]
    assert len({dot.out.buffer for dot in dots}) == 1


@pytest.mark.parametrize(("rows", "width", "hidden"), [(512, 64, 256), (32, 64, 128), (1, 8, 16)])
def test_the_product_of_a_sum_that_runs_first_overwrites(rows, width, hidden):
    """The chain of two products is traced before the single one, which runs a level earlier."""

    def residual(x, w1, w2, w3):
        out = np.maximum(x @ w1, 0) @ w2
        return x @ w3 + out

    shapes = [(rows, width), (width, hidden), (hidden, width), (width, width)]
    program = check_fused(residual, *(normal(*shape, seed=seed) for seed, shape in enumerate(shapes)))
    sums = [dot.accumulate for dot in dots_of(program) if dot.out == dots_of(program)[-1].out]
    assert sums == [False, True]


def test_a_sum_of_products_goes_straight_to_the_output():
    program = check_fused(
        lambda a, b, c, d, e, f: a @ b + c @ d + e @ f, *(normal(5, 5) for _ in range(6)), schedule=ROW_BLOCKS
    )
    assert [b.space for b in program.buffers if b.space in (Space.OUTPUT, Space.SCRATCH)] == [Space.OUTPUT]


def test_a_product_with_another_use_is_not_added_in_place():
    def twice(a, b, c):
        first = a @ b
        return first + a @ c, np.exp(first)

    program = check_fused(twice, normal(6, 5), normal(5, 4), normal(5, 4), schedule=ROW_BLOCKS)
    assert not any(isinstance(s, Dot) and s.accumulate for phase in program.phases() for s in phase.steps)


def test_a_prologue_that_others_read_is_stored_once():
    def shared(x, w):
        h = np.tanh(x)
        return h, np.exp(h @ w)

    program = check_fused(shared, normal(6, 20), normal(20, 64), schedule=Schedule())
    assert not any(symbol.name == "column_tile" for phase in program.phases() for symbol in phase.grid)


def test_few_rows_share_their_work_by_columns():
    program = check_fused(lambda x, w, b: np.exp(x @ w + b), normal(6, 20), normal(20, 64), normal(64))
    (phase,) = program.phases()
    assert phase.row_block.size == 6
    assert next(symbol.extent for symbol in phase.grid if symbol.name == "column_tile") == 2
    assert {buffer.type.shape for buffer in program.buffers if buffer.space is Space.SCRATCH} == {(6, 32)}
