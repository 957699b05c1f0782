"""Sorts as generated code, to the bit of the interpreter: dtypes, axes, zeros, NaN, what goes along, computed keys."""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType, of_array
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.runtime.planlowering import is_generated
from autofuse.targets.cpu.codegen.sortloops import SortLoops
from autofuse.testing.fusions import LIMITS, kernel_inputs, whole_kernel
from tests.fixtures.kernelchecks import fused, run_native

SPECIAL = (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40)


def values(rng, dtype, shape):
    """Numbers with many that are equal, and the extremes of their dtype."""
    if dtype.kind == "bool":
        return rng.random(shape) < 0.5
    if not dtype.is_float:
        limits = np.iinfo(dtype.numpy)
        found = rng.integers(0, 9, shape).astype(dtype.numpy)
        wide = rng.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True)
        return np.where(rng.random(shape) < 0.5, found, wide)
    found = np.round(rng.standard_normal(shape) * 3).astype(dtype.numpy)
    flat = found.reshape(-1)
    for number in SPECIAL:
        flat[rng.integers(0, flat.size, max(1, flat.size // 12))] = number
    return found


def check_exact(kernel, inputs):
    """Check a kernel that is a sort; it, lowered."""
    program = lower(kernel, Schedule(), "kernel", LIMITS)
    assert program.is_coded
    right = interpret(program.graph, *inputs)
    for result, value in zip(run_native(kernel, inputs), right, strict=True):
        np.testing.assert_array_equal(result.view(np.uint8), value.view(np.uint8))
    return program


def sorting(operands, wanted, *, counting=None, **attrs):
    """A sort of arrays, and of positions of a dtype, whose results of these numbers are asked for."""
    builder = GraphBuilder("sorting")
    given = [builder.input(of_array(array), f"x{number}") for number, array in enumerate(operands)]
    if counting is not None:
        shape, axis = operands[0].shape, attrs["dimension"]
        given.append(builder.emit("iota", (), shape=shape, dtype=counting, iota_dimension=axis))
    results = builder.emit_many("sort", given, **{"descending": False, "stable": True} | attrs)
    kernel = whole_kernel(builder.finish([results[number] for number in wanted]))
    return check_exact(kernel, kernel_inputs(kernel, operands))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_keys_of_every_dtype(dtype):
    """A short row and a long one, alone and with what goes along, in both directions."""
    rng = np.random.default_rng(dtype.bits)
    sorting([values(rng, dtype, (3, 45))], [0], dimension=1)
    sorting([values(rng, dtype, (500, 2))], [0], dimension=0, descending=True)
    keys, along = values(rng, dtype, (2, 300)), values(rng, dtype, (2, 300))
    sorting([keys, along], [0, 2], dimension=1, counting=dtypes.I32)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_bits_of_every_dtype_go_along(dtype):
    rng = np.random.default_rng(dtype.bits)
    keys, along = values(rng, dtypes.I32, (40, 3)), values(rng, dtype, (40, 3))
    sorting([keys if dtype.bits < 64 else keys.astype(np.int64), along], [1], dimension=0)


ROWS = {
    "of one": ((5, 1), 1),
    "none": ((0, 7), 1),
    "of nothing": ((3, 0), 1),
    "the longest that are ranked": ((192,), 0),
    "the shortest that are not": ((193,), 0),
    "in the middle": ((3, 17, 2), 1),
    "few values": ((2, 4000), 1),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    shape, axis = ROWS[name]
    rng = np.random.default_rng(1)
    keys, along = rng.integers(0, 3, shape).astype(np.float32), rng.standard_normal(shape)
    sorting([keys, along], [0, 1], dimension=axis, counting=dtypes.I64)
    sorting([keys], [0], dimension=axis)


def test_what_is_computed():
    def ordered(x, w, i):
        keys = np.sqrt(np.abs(x[i])) * w[:, None]
        return np.take_along_axis(x + 1, np.argsort(keys, axis=0, kind="stable"), 0)

    def order(x, w, i):
        return np.argsort(x[i] * w[:, None], axis=1, kind="stable")

    def alone(x, w, i):
        return np.sort(np.concatenate([x[i] - 0.0, -x[::-1]]) * w[0], axis=0, kind="stable")

    rng = np.random.default_rng(2)
    arguments = rng.standard_normal((30, 70)).round(), rng.random(30), rng.integers(0, 30, 30)
    for fn in (order, alone):
        kernel = fused(fn, *arguments)
        assert len(check_exact(kernel, kernel_inputs(kernel, arguments)).graph.nodes) > 2
    np.testing.assert_array_equal(af.compile(ordered, *arguments)(*arguments), ordered(*arguments))


BEHIND = {
    "keys": lambda x, w: np.sort(x, axis=-1, kind="stable") * 2 + w,
    "keys as another type, twice": lambda x, w: (
        np.sort(x, axis=-1, kind="stable").astype(np.float64),
        np.sort(x, axis=-1, kind="stable") < w,
    ),
    "keys and more": lambda x, w: (np.sort(x, axis=-1, kind="stable"), np.sort(x, axis=-1, kind="stable") - x),
    "along rows": lambda x, w: np.sort(x + w, axis=0, kind="stable") * np.arange(len(x), dtype=np.float32)[:, None],
    "positions": lambda x, w: np.argsort(x * w, axis=-1, kind="stable").astype(np.int16) - 3,
}


@pytest.mark.parametrize("columns", [37, 311])
@pytest.mark.parametrize("name", BEHIND)
def test_what_is_made_of_results(name, columns):
    """Of keys alone with zeros and NaN, of positions, of rows along any axis."""
    rng = np.random.default_rng(columns)
    x, w = values(rng, dtypes.F32, (5, columns)), rng.random(columns).astype(np.float32)
    kernel = fused(BEHIND[name], x, w)
    check_exact(kernel, kernel_inputs(kernel, [x, w]))


def test_what_is_made_of_what_goes_along():
    rng = np.random.default_rng(6)
    keys, along = values(rng, dtypes.F32, (40, 300)), values(rng, dtypes.F32, (40, 300))
    builder = GraphBuilder("behind")
    x, y = (builder.input(of_array(array), name) for array, name in ((keys, "x"), (along, "y")))
    first, second = builder.emit_many("sort", (x, y), dimension=1, descending=False, stable=True)
    for outputs in ((("multiply", first, second),), (("abs", second),), (("abs", second), ("subtract", x, first))):
        kernel = whole_kernel(builder.finish([builder.emit(op, operands) for op, *operands in outputs]))
        check_exact(kernel, kernel_inputs(kernel, [keys, along]))


def test_what_lies_in_records():
    f32, f64, i32 = (np.ones((2, 300), dtype) for dtype in (np.float32, np.float64, np.int32))
    cases = (([f32], [0], "nothing"), ([f32, i32], [1], "bits"), ([i32, f64], [1], "number"), ([f64, f64], [1], "bits"))
    for operands, wanted, goes in (*cases, ([f32, i32], [0, 1], "number")):
        program = sorting(operands, wanted, dimension=1)
        assert SortLoops(program, coded_in(program.graph), 512).records.goes == goes


def test_long_rows_in_any_order_are_numpys():
    x = np.random.default_rng(3).standard_normal((64, 512)).astype(np.float32)
    cases = (
        (np.sort, x, False),
        (lambda a: np.sort(a, kind="stable"), x, True),
        (np.argsort, x, True),
        (np.argsort, x.astype(np.float64), False),
        (lambda a: np.sort(a, kind="stable"), x.astype(np.int32), False),
        (np.sort, x[:8], True),
        (np.sort, x.reshape(-1, 64), True),
    )
    for fn, array, is_coded in cases:
        program = lower(fused(fn, array), Schedule(), "kernel", LIMITS)
        assert program.is_coded == is_coded
    with pytest.raises(LegalityError, match="opaque call"):
        lower(fused(lambda a: np.sort(a * 2), x), Schedule(), "kernel", LIMITS)


def test_a_loop_with_sorts_calls_no_interpreter():
    def steps(x):
        def step(state, _):
            return np.sort(state * np.float32(0.5) - state[::-1]), None

        return af.scan(step, x, None, length=4)[0]

    x = np.random.default_rng(4).standard_normal(300).astype(np.float32)
    plan = af.compile(steps, x)
    inner = [kernel for region in plan.lowered[0].regions for kernel in region.kernels]
    assert inner
    assert all(is_generated(kernel.program) for kernel in inner)
    np.testing.assert_array_equal(plan(x), steps(x))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_sorts(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(rank))
    shape = [int(rng.choice([1, 2, 3, 5])) for _ in range(rank)]
    extents = [1, 2, 3, 7, 16, 17, 33, 64, 100, 191, 192, 193, 300]
    shape[axis] = 1000 if seed % 10 == 0 else int(rng.choice(extents))  # more in all may be NumPy's
    keys = values(rng, dtypes.ALL[seed % len(dtypes.ALL)], tuple(shape))
    along = [values(rng, dtypes.ALL[int(n)], tuple(shape)) for n in rng.integers(0, len(dtypes.ALL), rng.integers(4))]
    counting = dtypes.I64 if rng.random() < 0.3 else None
    count = 1 + len(along) + (counting is not None)
    wanted = [n for n in range(count) if rng.random() < 0.6] or [count - 1]
    sorting([keys, *along], wanted, dimension=axis, descending=bool(rng.random() < 0.5), counting=counting)


def test_an_extent_of_more_than_records_can_count_is_the_librarys():
    builder = GraphBuilder("long")
    x = builder.input(TensorType((1 << 32,), dtypes.U8), "x")
    (result,) = builder.emit_many("sort", [x], dimension=0, descending=False, stable=True)
    assert not lower(whole_kernel(builder.finish([result])), Schedule(), "kernel", LIMITS).is_coded
