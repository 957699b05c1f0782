"""Scatters as generated code, against the interpreter: odd sizes, repeated and missing positions, all dtypes."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType, of_array
from autofuse.targets.cpu.executable import build_executable
from autofuse.testing.fusions import LIMITS, run_executable
from autofuse.testing.partitions import plan_of, unfused_plan
from autofuse.testing.sketches import Sketch
from tests.fixtures.kernelchecks import check_kernel

COMBINERS = ("set", "add", "multiply", "minimum", "maximum")
ELEMENTS = {
    "update_window_dims": (),
    "inserted_window_dims": (0,),
    "input_batching_dims": (),
    "scatter_indices_batching_dims": (),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
    "combiner": "set",
}
ROWS = ELEMENTS | {"update_window_dims": (1,)}


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


RNG = np.random.default_rng(1)
X, AT, V = RNG.random((50, 70)), RNG.integers(-50, 50, 90), RNG.random((90, 70))


def put(x, i, v):
    x = x.copy()
    x[i] = v
    return x


PROGRAMS = {
    "rows": (put, X, AT, V),
    "one row for all": (put, X, AT, V[0]),
    "one number": (put, X, AT, 2.5),
    "columns": (lambda x, i, v: put(x.T, i, v), X, AT, V[:, :50]),
    "turned updates": (lambda x, i, v: put(x, i, v[::-1, ::-1]), X, AT, V),
    "a reshape": (lambda x, i, v: put(x.reshape(-1), i, v), X, AT, V[:, 0]),
    "two indices": (lambda x, i, v: put(x, (i, i[::-1]), v), X, AT, V[:, 0]),
    "counting": (lambda x, i, v: put(x, i, np.arange(70) + 0 * v), X, AT, V[0]),
    "into nothing but zeros": (lambda x, i, v: put(np.zeros(50), i, v), X, AT, V[:, 0]),
    "into ones": (lambda x, i, v: put(np.ones((50, 3)), i, v), X, AT, V[:, :3]),
    "into columns": (lambda x, i, v: put(x, (slice(None), i), v), X, AT, V[:50].T[:1].repeat(90, 0).T),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function, *arguments = PROGRAMS[name]
    plan = af.compile(function, *arguments)
    np.testing.assert_array_equal(plan(*arguments), function(*arguments))
    assert any("scatter" in kernel.name for kernel in plan.kernels)


def scattering(writebacks=()):
    """`x` with `u` put at `i`, after whatever else."""
    sketch = Sketch("scattering")
    x, i, u = sketch.arg("f32[70]"), sketch.arg("i64[9]", "i"), sketch.arg("f32[9]", "u")
    new = sketch.op("scatter", x, i, u, name="new", **ELEMENTS)
    return plan_of(sketch.finish([new]), [["new"]], writebacks=writebacks)


def test_no_scatter_calls_the_interpreter():
    assert build_executable(scattering(), LIMITS).opaque == ()


def test_an_argument_is_updated_where_it_lies():
    executable = build_executable(scattering(writebacks=(0,)), LIMITS)
    assert executable.memory.aliases == ((0, 0),)
    x, i, u = np.zeros(70, np.float32), np.arange(9) * 7, np.ones(9, np.float32)
    executable.run([x, i, u])
    np.testing.assert_array_equal(np.nonzero(x)[0], i)


def test_a_result_that_is_not_the_arguments_memory_leaves_it_alone():
    executable = build_executable(scattering(), LIMITS)
    x, i, u = np.zeros(70, np.float32), np.arange(9) * 7, np.ones(9, np.float32)
    (result,) = run_executable(executable, [x, i, u])
    assert not x.any()
    np.testing.assert_array_equal(np.nonzero(result)[0], i)


def test_an_argument_that_is_also_put_into_itself_is_not_updated_where_it_lies():
    def doubled(x, i):
        np.add.at(x, i, x)

    x, i = np.arange(20.0), np.arange(20) // 2
    plan, right = af.compile(doubled, x, i), x.copy()
    plan(x, i)
    doubled(right, i)
    np.testing.assert_array_equal(x, right)


def test_equal_scatters_share_code():
    builder = GraphBuilder("twice")
    x, i, u = (
        builder.input(TensorType(s, d), n)
        for s, d, n in (((9,), dtypes.F32, "x"), ((4,), dtypes.I64, "i"), ((4,), dtypes.F32, "u"))
    )
    first = builder.emit("scatter", (x, i, u), **ELEMENTS)
    graph = builder.finish([builder.emit("scatter", (first, i, u), **ELEMENTS | {"combiner": "set"})])
    executable = build_executable(unfused_plan(graph), LIMITS)
    assert len(executable.native.program.kernels) == 1
    inputs = [np.arange(9, dtype=np.float32), np.array([8, 0, -1, 9]), np.ones(4, np.float32)]
    np.testing.assert_array_equal(run_executable(executable, inputs)[0], interpret(graph, *inputs)[0])
