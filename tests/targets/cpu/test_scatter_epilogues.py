"""What is made of a scatter's result in the same kernel, against the interpreter, to the bit."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from tests.fixtures.kernelchecks import run_native
from tests.fixtures.scatters import ROWS, at, exact, way_of

BEHIND = {
    "a copy of the operand, a row and a column": lambda r, x: r * x + x[0] - x[:, :1],
    "another type": lambda r, x: (np.sqrt(np.abs(r)) > 1) | (r == x),
    "two outputs, and the result": lambda r, x: (r, np.sqrt(r), (r * 2).astype(np.float64)),
    "positions": lambda r, x: r + np.arange(r.shape[-1], dtype=np.float32),
}
TARGETS = {
    "serial": ((9, 8), 20),
    "serial, then shared": ((9000, 8), 20),
    "along": ((64, 128), 2000),
    "along a part": ((64, 100), 2000),
    "elements": ((1, 50), 90),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BEHIND)
def test_what_is_made_of_the_result(name, target):
    def behind(x, i, u):
        r = at(np.add, x, (slice(None), i % x.shape[1]), u[: x.shape[0]]) if u.ndim == 2 and len(x) == 1 else None
        return BEHIND[name](at(np.add, x, i, u) if r is None else r, x)

    rng = np.random.default_rng(11)
    shape, updates = TARGETS[target]
    x, i = rng.random(shape).astype(np.float32), rng.integers(-shape[0], shape[0], updates)
    u = rng.random((updates, shape[1]) if target != "elements" else (1, updates)).astype(np.float32)
    program = exact(behind, x, i, u)
    assert way_of(program) == target.split()[0].rstrip(",") or target == "elements"


@pytest.mark.parametrize("window", [40, 33])
def test_what_is_made_of_batches_and_of_what_no_update_meets(window):
    """Batches are shared; a window that is smaller than the operand leaves elements as they were."""
    rng = np.random.default_rng(12)
    builder = GraphBuilder("behind")
    x = builder.input(TensorType((9, 5, 40), dtypes.F32), "x")
    i = builder.input(TensorType((9, 700), dtypes.I64), "i")
    u = builder.input(TensorType((9, 700, window), dtypes.F32), "u")
    b = builder.input(TensorType((40,), dtypes.F32), "b")
    attrs = ROWS | {"update_window_dims": (2,), "inserted_window_dims": (1,), "input_batching_dims": (0,)}
    attrs |= {"scatter_indices_batching_dims": (0,), "scatter_dims_to_operand_dims": (1,), "index_vector_dim": 2}
    new = builder.emit("scatter", (x, i, u), **attrs | {"combiner": "add"})
    wide = builder.emit("broadcast_in_dim", (b,), shape=(9, 5, 40), broadcast_dimensions=(2,))
    kernel = whole_kernel(builder.finish([builder.emit("multiply", (new, wide))]))
    arrays = [rng.random(v.type.shape).astype(np.float32) for v in kernel.graph.inputs]
    arrays[1] = rng.integers(-2, 7, (9, 700))
    assert way_of(lower(kernel, Schedule(), "kernel", LIMITS)) == "along"
    np.testing.assert_array_equal(run_native(kernel, arrays)[0], interpret(kernel.graph, *arrays)[0])


@pytest.mark.parametrize("shape", [(4, 4000), (3, 2, 1500), (7000,)])
def test_what_is_made_of_a_window_of_several_dimensions(shape):
    rng = np.random.default_rng(13)
    x = rng.random(shape).astype(np.float32)
    i, u = rng.integers(0, shape[0], 9), rng.random(shape[1:]).astype(np.float32)
    row = rng.random(shape[-1:]).astype(np.float32)
    exact(lambda x, i, u, row: (at(np.add, x, i, u * 2) - row) / 3, x, i, u, row)


def test_workers_complete_their_places():
    def behind(x, t, h, w):
        return 1 / at(np.add, x, t, np.sqrt(h[t] * h[t] + 1) / np.sqrt(w[:, None] / (h[t] + 2))) + x[:, :1]

    rng = np.random.default_rng(4)
    x, h, w = (rng.random(shape).astype(np.float32) for shape in ((200, 8), (200, 8), 3000))
    assert way_of(exact(behind, x, rng.integers(0, 200, 3000), h, w)) == "places"


def test_what_is_made_of_a_result_takes_its_place():
    """An argument that is written back holds the sums on the way; nothing else may read it."""

    def step(x, i, u):
        np.add.at(x, i, u)
        x *= 2

    plan = af.compile(step, np.zeros(70, np.float32), np.arange(9), np.ones(9, np.float32))
    assert len(plan.kernels) == 1
    x, right = np.ones(70, np.float32), np.ones(70, np.float32)
    i, u = np.arange(9) * 7 % 14, np.ones(9, np.float32)
    plan(x, i, u)
    step(right, i, u)
    np.testing.assert_array_equal(x, right)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_epilogues(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 5, 17, 64], int(rng.integers(1, 4))))
    dtype = rng.choice([np.float32, np.float64, np.int32, np.uint8])
    x, updates = (rng.standard_normal(shape) * 9).astype(dtype), int(rng.choice([3, 100, 1000]))
    axis = int(rng.integers(0, len(shape)))
    index = tuple([slice(None)] * axis)
    i = rng.integers(-shape[axis], shape[axis], updates)
    u = (rng.standard_normal((*shape[:axis], updates, *shape[axis + 1 :])) * 9).astype(dtype)
    y = (rng.standard_normal(shape[-1:]) * 9).astype(dtype)
    ways = [
        lambda r, x, y: r * r + y,
        lambda r, x, y: (np.where(r > y, r, x), r - x),
        lambda r, x, y: (r.astype(np.float64) * 3, r),
        lambda r, x, y: np.maximum(r, x[..., :1]).astype(np.int16),
    ]
    way = ways[int(rng.integers(0, len(ways)))]
    exact(lambda x, i, u, y: way(at(np.maximum if seed % 2 else np.add, x, (*index, i), u + u), x, y), x, i, u, y)
