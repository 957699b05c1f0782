"""Scatters as generated code, against the interpreter: odd sizes, repeated and missing positions, all dtypes."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType, of_array
from autofuse.lazydataclass import replace
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.runtime.planlowering import is_generated
from autofuse.targets.cpu.codegen.scatterloops import ScatterLoops
from autofuse.testing.fusions import LIMITS, kernel_inputs, whole_kernel
from tests.fixtures.kernelchecks import check_kernel, fused, run_native
from tests.fixtures.scatters import ELEMENTS, ROWS, at, exact, way_of

COMBINERS = ("set", "add", "multiply", "minimum", "maximum")


def check_scatter(x, indices, updates, attrs):
    builder = GraphBuilder("scatter")
    operands = [builder.input(of_array(a), name) for a, name in ((x, "x"), (indices, "i"), (updates, "u"))]
    check_kernel(builder.finish([builder.emit("scatter", operands, **attrs)]), [x, indices, updates])


def values(rng, dtype, shape):
    if dtype.kind == "bool":
        return rng.random(shape) < 0.5
    if not dtype.is_float:
        return rng.integers(0, 100, shape).astype(dtype.numpy)
    found = rng.standard_normal(shape).astype(dtype.numpy)
    found.reshape(-1)[:: max(found.size // 5, 1)] = np.nan
    return found


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_elements_and_rows_in_order(dtype):
    """Floats too are combined in the interpreter's order, so the bits are the same."""
    rng = np.random.default_rng(0)
    x, updates = values(rng, dtype, (7, 133)), values(rng, dtype, (40, 133))
    rows = rng.integers(-2, 9, 40)
    reductions = ("minimum", "maximum") if dtype.kind == "bool" else ("add", "maximum")
    check_scatter(x, rows, updates, ROWS | {"combiner": reductions[0]})
    check_scatter(x[0], rows * 17, updates[:, 0], ELEMENTS | {"combiner": reductions[1]})
    check_scatter(x[0], rows * 17, updates[:, 0], ELEMENTS | {"combiner": "set"})


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind in ("int", "uint")], ids=str)
def test_indices_of_every_type(dtype):
    limits = np.iinfo(dtype.numpy)
    indices = np.array([0, 3, limits.max, limits.min, 3, 4, 2], dtype.numpy)
    check_scatter(np.zeros(4, np.float32), indices, np.arange(1, 8, dtype=np.float32), ELEMENTS)
    windows = ELEMENTS | {"update_window_dims": (1,), "inserted_window_dims": ()}
    check_scatter(np.zeros(4, np.float32), indices, np.ones((7, 3), np.float32), windows)


@pytest.mark.parametrize("seed", range(10))
def test_any_dimension_numbers(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, 3))
    mapped, batching, kept = (int(d) for d in rng.permutation(3))
    window = int(rng.integers(0, 3))
    extents = [3, shape[batching]]
    extents.insert(window, int(rng.integers(1, shape[kept] + 1)))
    indices = rng.integers(-1, 5, (3, shape[batching], 1)).astype(np.int32)
    attrs = {
        "update_window_dims": (window,),
        "inserted_window_dims": (mapped,),
        "input_batching_dims": (batching,),
        "scatter_indices_batching_dims": (1,),
        "scatter_dims_to_operand_dims": (mapped,),
        "index_vector_dim": 2,
        "combiner": COMBINERS[seed % 5],
    }
    check_scatter(rng.random(shape), indices, rng.random(extents), attrs)


# ---- updates and indices that are computed in the loops --------------------------------------------------------------


def message_passing(out, h, w, source, target):
    rows = h[np.clip(source, 0, len(h) - 1)] * w[:, None] + h[np.where(target < 0, target + len(h), target)]
    return at(np.add, out, target, rows)


COMPUTED = {
    "elements": (lambda x, t, w, h: at(np.maximum, x[:, 0], np.abs(t) % len(x), w * w + w)),
    "joined windows": (lambda x, t, w, h: at(np.add, x.reshape(-1, 3, 11), t, h[t].reshape(-1, 3, 11)[:, ::-1] * 2)),
    "columns": (lambda x, t, w, h: at(np.subtract, x, (slice(None), t), w * 2)),
    "a concatenation": (
        lambda x, t, w, h: at(np.multiply, x, np.concatenate([t, t[::-1]]), np.concatenate([w, w])[:, None])
    ),
    "positions": (lambda x, t, w, h: at(np.add, x, (np.arange(w.size) * 7) % len(x), h[t] + np.arange(33))),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8], ids=str)
@pytest.mark.parametrize("columns", [1, 33, 64])
def test_messages_are_computed_where_they_are_added(dtype, columns):
    rng = np.random.default_rng(columns)
    h, w = (rng.standard_normal((50, columns)) * 9).astype(dtype), (rng.random(170) * 5).astype(dtype)
    source, target = rng.integers(-3, 55, 170).astype(np.int32), rng.integers(-50, 50, 170)
    exact(message_passing, h, h, w, source, target)


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed(name):
    rng = np.random.default_rng(3)
    x, h = rng.random((90, 33)).astype(np.float32), rng.random((90, 33)).astype(np.float32)
    exact(COMPUTED[name], x, rng.integers(0, 33, 140), rng.random(140).astype(np.float32), h)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_messages(seed):
    rng = np.random.default_rng(seed)
    nodes, edges = (int(rng.integers(1, most)) for most in ((60, 300) if seed % 3 else (600, 4000)))
    columns, dtype = int(rng.choice([1, 3, 8, 16, 33, 64, 100, 257])), rng.choice([np.float32, np.float64, np.int64])
    h, w = (rng.standard_normal((nodes, columns)) * 9).astype(dtype), (rng.standard_normal(edges) * 3).astype(dtype)
    source = rng.integers(-3, nodes + 3, edges).astype(rng.choice([np.int32, np.int64]))
    target = rng.integers(-nodes, nodes, edges)
    exact(message_passing, np.zeros_like(h), h, w, source, target)
    exact(lambda x, t, w: at(np.minimum, x[:, 0], np.abs(t) % len(x), w * w + w), h, target, w)
    cube = rng.standard_normal((nodes, 4, 5)).astype(np.float32)
    exact(lambda x, t, s: at(np.add, x, t, x[t][::-1] * s[:, None]), cube, target, cube[0, :, 0].copy())
    exact(lambda x, t: at(np.add, x, (slice(None), t % 4), x[0, 0] * 3), cube, target)


def histogram(w):
    return np.floor(np.sqrt(w * w + 1) * np.log1p(w) * 40).astype(np.int64)


AHEAD = {
    "elements": (np.float32, 1, lambda x, t, w: at(np.add, x, t, np.exp(-w) * np.log1p(w))),
    "few places": (np.float32, 1, lambda x, t, w: at(np.minimum, x, t % 3, np.exp(-w) * np.log1p(w))),
    "indices that are computed": (np.float32, 1, lambda x, t, w: at(np.add, x, np.minimum(histogram(w), 50), w)),
    "both": (np.float32, 1, lambda x, t, w: at(np.maximum, x, np.minimum(histogram(w), 50), np.tanh(w))),
    "columns": (np.float32, 2, lambda x, t, w: at(np.subtract, x, (slice(None), t % 33), np.exp(w) * np.sqrt(w))),
    "pairs": (np.float32, 2, lambda x, t, w: at(np.add, x, (t, np.minimum(histogram(w), 30)), np.tanh(w))),
    "bytes": (np.uint8, 1, lambda x, t, w: at(np.add, x, t, (np.tanh(w) * 9).astype(np.uint8))),
    "truths": (np.bool_, 1, lambda x, t, w: at(np.maximum, x, t, np.exp(w) * np.log1p(w) > 1)),
    "halves": (np.float16, 1, lambda x, t, w: at(np.maximum, x, t, np.tanh(w).astype(np.float16))),
}


@pytest.mark.parametrize("length", [141, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 16))])
@pytest.mark.parametrize("name", AHEAD)
def test_updates_of_single_elements_are_computed_in_vectors(name, length):
    dtype, rank, function = AHEAD[name]
    rng = np.random.default_rng(length)
    x = (rng.random((90, 33)[:rank]) * 2).astype(dtype)
    arrays = x, rng.integers(0, 90, length), rng.random(length).astype(np.float32)
    kernel = fused(function, *arrays)
    check_kernel(kernel, kernel_inputs(kernel, arrays))
    program = lower(kernel, Schedule(), "kernel", LIMITS)
    assert (ScatterLoops(program, coded_in(program.graph), 512).ahead > 1) == (length > 1)


def test_parts_with_copies_of_their_own_compute_vectors():
    rng = np.random.default_rng(0)
    w, t = rng.random(50_001).astype(np.float32), rng.integers(0, 64, 50_001)
    program = exact(lambda t, w: at(np.add, np.zeros(64, np.int64), t, histogram(w) * 3), t, w)
    assert way_of(program) == "copies"


def test_workers_pass_over_the_places_of_others():
    def updates(x, t, h, w):
        return at(np.add, x, t, np.sqrt(h[t] * h[t] + 1) / np.sqrt(w[:, None] / (h[t] + 2)))

    rng = np.random.default_rng(4)
    x, h, w = (rng.random(shape).astype(np.float32) for shape in ((200, 8), (200, 8), 3000))
    assert way_of(exact(updates, x, rng.integers(0, 200, 3000), h, w)) == "places"


SHARED = {
    "serial": ((9, 8), (20,), 0),
    "along": ((64, 128), (2000,), 0),
    "along a part": ((64, 100), (2000,), 0),
    "along batches": ((9, 5, 40), (9, 700), 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_how_workers_share(name):
    shape, indices, batches = SHARED[name]
    rng = np.random.default_rng(5)
    builder = GraphBuilder("shared")
    x = builder.input(TensorType(shape, dtypes.F32), "x")
    i = builder.input(TensorType(indices, dtypes.I64), "i")
    u = builder.input(TensorType((*indices, shape[-1]), dtypes.F32), "u")
    attrs = {
        "update_window_dims": (len(indices),),
        "inserted_window_dims": (batches,),
        "input_batching_dims": tuple(range(batches)),
        "scatter_indices_batching_dims": tuple(range(batches)),
        "scatter_dims_to_operand_dims": (batches,),
        "index_vector_dim": len(indices),
        "combiner": "add",
    }
    graph = builder.finish([builder.emit("scatter", (x, i, u), **attrs)])
    kernel = whole_kernel(graph)
    program = lower(kernel, Schedule(), "kernel", LIMITS)
    assert way_of(program) == name.split()[0]
    arrays = [rng.random(shape).astype(np.float32), rng.integers(-2, shape[batches] + 2, indices)]
    arrays.append(rng.random((*indices, shape[-1])).astype(np.float32))
    np.testing.assert_array_equal(run_native(kernel, arrays)[0], interpret(graph, *arrays)[0])


def counted(bins, dtype, combiner="add", windows=()):
    """A kernel that combines 60,000 computed updates into few places of x."""
    builder = GraphBuilder("counted")
    x = builder.input(TensorType((bins, *windows), dtype), "x")
    i = builder.input(TensorType((60_000,), dtypes.I64), "i")
    u = builder.input(TensorType((60_000, *windows), dtype), "u")
    attrs = (ROWS if windows else ELEMENTS) | {"combiner": combiner}
    if dtype.is_float:
        attrs["numerics"] = "fast"
    return whole_kernel(builder.finish([builder.emit("scatter", (x, i, u), **attrs)]))


FREE = [
    *((dtypes.I64, c) for c in ("add", "multiply", "minimum", "maximum")),
    *((d, "add") for d in (dtypes.U8, dtypes.I16, dtypes.U32, dtypes.F32, dtypes.F64)),
    (dtypes.BOOL, "maximum"),
]


@pytest.mark.parametrize(("dtype", "combiner"), FREE, ids=str)
def test_copies_of_few_places(dtype, combiner):
    """Integers keep their bits; sums of floats are within their bound, the same in every run, for any workers."""
    rng = np.random.default_rng(21)
    kernel = counted(33, dtype, combiner)
    x, u = values(rng, dtype, 33), values(rng, dtype, 60_000)
    inputs = [x, rng.integers(-1, 35, 60_000), u]
    assert way_of(lower(kernel, Schedule(), "kernel", LIMITS)) == "copies"
    check_kernel(kernel, inputs)
    (first,) = run_native(kernel, inputs)
    for workers in (3, 5):
        again = run_native(kernel, inputs, limits=replace(LIMITS, workers=workers))[0]
        np.testing.assert_array_equal(again.view(np.uint8), first.view(np.uint8))


def test_what_is_made_of_copies():
    def shares(x, i, w):
        counts = np.bincount(np.clip(i, 0, 100), minlength=101)
        sums = at(np.add, x, i % 101, (w * 3).astype(np.int64))
        return counts / i.size, sums, np.maximum(sums, 7)

    rng = np.random.default_rng(22)
    x, i, w = rng.integers(0, 9, 101), rng.integers(0, 10**6, 90_000), rng.random(90_000)
    plan = af.compile(shares, x, i, w)
    for result, right in zip(plan(x, i, w), shares(x, i, w), strict=True):
        np.testing.assert_array_equal(result, right)
    ways = [way_of(k.program) for k in plan.lowered if is_generated(k.program) and not hasattr(k.program, "launches")]
    assert ways == ["copies", "copies"]


def test_windows_in_copies():
    rng = np.random.default_rng(23)
    kernel = counted(7, dtypes.I32, windows=(3,))
    inputs = [values(rng, dtypes.I32, (7, 3)), rng.integers(0, 7, 60_000), values(rng, dtypes.I32, (60_000, 3))]
    assert way_of(lower(kernel, Schedule(), "kernel", LIMITS)) == "copies"
    check_kernel(kernel, inputs)


def test_sums_of_floats_keep_their_order_unless_numerics_are_fast():
    def sums(i, w):
        return np.bincount(np.clip(i, 0, 63), w, 64), at(np.add, np.zeros(64, np.float32), i, w.astype(np.float32))

    rng = np.random.default_rng(24)
    i, w = rng.integers(0, 64, 90_000), rng.standard_normal(90_000)
    for result, right in zip(af.compile(sums, i, w)(i, w), sums(i, w), strict=True):
        np.testing.assert_array_equal(result, right)
    plan = af.compile(sums, i, w, numerics="fast")
    assert all(way_of(kernel.program) == "copies" for kernel in plan.lowered if "scatter" in kernel.planned.name)
    for result, right, digits in zip(plan(i, w), sums(i, w), (1e-11, 2e-3), strict=True):
        np.testing.assert_allclose(result, right, atol=digits)
