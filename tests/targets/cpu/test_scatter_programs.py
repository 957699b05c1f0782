"""Programs with scatters: what is one kernel, what is updated where it lies, and that no interpreter is called."""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.runtime.planlowering import is_generated
from autofuse.targets.cpu.executable import build_executable
from autofuse.testing.fusions import LIMITS, run_executable
from autofuse.testing.partitions import plan_of, unfused_plan
from autofuse.testing.sketches import Sketch
from tests.fixtures.kernelchecks import fused
from tests.fixtures.scatters import ELEMENTS, at


def test_what_is_not_one_kernel():
    def updated(x, i, u):
        return at(np.add, np.sqrt(x), i, u)

    def moved(x, i, u):
        return at(np.add, x, i, u)[::-1] * 2

    arrays = np.ones(9), np.arange(4), np.ones(4)
    for fn, reason in ((updated, "another kernel has to write first"), (moved, "opaque call")):
        with pytest.raises(LegalityError, match=reason):
            lower(fused(fn, *arrays), Schedule(), "kernel", LIMITS)
    with pytest.raises(LegalityError, match="opaque call"):
        lower(
            fused(lambda x, i, u: at(np.add, x, i, u * 2), *arrays), Schedule(), "k", replace(LIMITS, prologues=False)
        )


def test_a_loop_with_scatters_calls_no_interpreter():
    def steps(h, source, target):
        def step(state, _):
            return at(np.add, np.zeros_like(state), target, np.tanh(state[source]) * np.float32(0.5)), None

        return af.scan(step, h, None, length=5)[0]

    rng = np.random.default_rng(7)
    h = rng.standard_normal((40, 16)).astype(np.float32)
    source, target = rng.integers(0, 40, 90), rng.integers(0, 40, 90)
    plan = af.compile(steps, h, source, target)
    inner = [kernel for region in plan.lowered[0].regions for kernel in region.kernels]
    assert all(is_generated(kernel.program) for kernel in inner)
    np.testing.assert_allclose(plan(h, source, target), steps(h, source, target), rtol=1e-5, atol=1e-6)


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
