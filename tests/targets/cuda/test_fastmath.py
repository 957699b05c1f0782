"""Functions and divisions that may be approximated: within what is allowed, edges as documented, few instructions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.ir.dtypes import BF16, F16, F32, F64, I32, DType
from autofuse.ir.graph import Graph
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.cuda import nvrtc, scalars
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.fastmath import FAST_FORMS
from autofuse.targets.cuda.prelude import Prelude
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.instructions import functions

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SUBNORMAL = np.float32(2.0**-130)
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, SUBNORMAL, -SUBNORMAL, 2.0**-126, 2.0**126, 1.5 * 2.0**127, -(2.0**127)]
POINTS = [1, -1, 0.5, 2, 88.7, 88.73, -87.3, -104, 128, -126.5, 1e-4, 3.14159265, 1e5, -1e6, 1 + 2.0**-20, 3e38]
OPS = sorted(FAST_FORMS)
MATRIX, SPECIAL = 0x23C, 0x308


def numbers(dtype: DType) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs of all edges and points, then numbers of all sizes."""
    rng = np.random.default_rng(dtype.bits)
    x, y = (pair.ravel() for pair in np.meshgrid(EDGES + POINTS, EDGES + POINTS))
    spread = [rng.standard_normal(4096) * np.exp2(rng.integers(-20, 20, 4096)) for _ in "xy"]
    near = [rng.uniform(0.4, 2.2, 1024), rng.uniform(-90, 90, 1024)]
    whole = [np.concatenate([a, b, c]).astype(np.float32) for a, b, c in zip((x, y), spread, near, strict=True)]
    with np.errstate(over="ignore"):
        first, second = (array.astype(dtype.numpy) for array in whole)
    return first, second


def every_op(dtype: DType, size: int) -> Graph:
    """One result for each opcode that can be approximated."""
    build = GraphBuilder("functions")
    x, y = (build.input(TensorType((size,), dtype), name) for name in "xy")
    one = build.emit("constant", [], value=np.ones((), dtype.numpy))
    ones = build.emit("broadcast_in_dim", [one], shape=(size,), broadcast_dimensions=())
    made = [build.emit(op, [x, y] if op == "divide" else [x], numerics="fast") for op in OPS]
    return build.finish([*made, build.emit("divide", [ones, x], numerics="fast")])


def kernel_of(graph: Graph) -> CudaKernel:
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    program = lower(kernel, Schedule(), "functions", backend_named("cuda").target(device="h200").limits)
    assert isinstance(program, TileProgram)
    return generate(program, "sm_90")


DTYPES = [F32, F16, BF16]
GRAPHS = {dtype: every_op(dtype, numbers(dtype)[0].size) for dtype in DTYPES}
KERNELS = {dtype: kernel_of(graph) for dtype, graph in GRAPHS.items()}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()))


def answers(module: SimtModule, dtype: DType) -> dict[str, NDArray[Any]]:
    """By opcode; of `1 / x` as "reciprocal"."""
    kernel, graph = KERNELS[dtype], GRAPHS[dtype]
    given = dict(zip("xy", numbers(dtype), strict=True))
    outs = {b.name: np.full(b.type.shape, 99, b.type.dtype.numpy) for b in kernel.parameters if b.space is Space.OUTPUT}
    module.run(kernel, {**given, **outs})
    return dict(zip((*OPS, "reciprocal"), (outs[value.name] for value in graph.outputs), strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_approximations_are_within_what_is_allowed(module: SimtModule, dtype: DType) -> None:
    graph, given = GRAPHS[dtype], numbers(dtype)
    found = answers(module, dtype)
    rights, bounds = interpret(graph, *given), bounds_of(graph, given)
    for name, right, bound in zip((*OPS, "reciprocal"), rights, bounds, strict=True):
        check(name, found[name], right, bound)


def test_edges_are_as_documented(module: SimtModule) -> None:
    x, y = numbers(F32)
    found = answers(module, F32)

    def of(name: str, value: float, other: float | None = None) -> float:
        places = np.flatnonzero((x == value) & (True if other is None else y == other))
        return float(found[name][places[0]])

    assert of("exp", -np.inf) == of("logistic", -np.inf) == of("exp", -104) == of("sqrt", SUBNORMAL) == 0
    assert of("exp", np.inf) == of("reciprocal", 0.0) == of("reciprocal", SUBNORMAL) == of("rsqrt", SUBNORMAL) == np.inf
    assert of("log", 0.0) == of("log", SUBNORMAL) == of("log2", 0.0) == -np.inf
    assert (of("tanh", np.inf), of("tanh", -np.inf)) == (1, -1)
    assert of("divide", 1, 2.0**126) == 2.0**-126
    assert of("divide", 1.5 * 2.0**127, -(2.0**127)) == 0  # whose reciprocal is subnormal
    for name in ("log", "log2", "sqrt", "rsqrt"):
        assert np.isnan(of(name, -1)), name
    for name in ("sin", "cos"):
        assert np.isnan(of(name, np.inf)), name
    for name in (*OPS, "reciprocal"):
        assert np.isnan(found[name][np.isnan(x)]).all(), name


def test_only_what_is_marked_is_approximated() -> None:
    prelude = Prelude()
    for op in OPS:
        operands = ("a", "b") if op == "divide" else ("a",)
        strict = scalars.map_expression(prelude, op, operands, [F32] * len(operands), F32)
        assert "approximate" not in strict
        assert "fast" not in strict
        wide = scalars.map_expression(prelude, op, operands, [F64] * len(operands), F64, fast=True)
        assert wide == scalars.map_expression(prelude, op, operands, [F64] * len(operands), F64)
    whole = scalars.map_expression(prelude, "divide", ("a", "b"), (I32, I32), I32, fast=True)
    assert whole == scalars.map_expression(prelude, "divide", ("a", "b"), (I32, I32), I32)
    assert "approximate" not in prelude.text()


MOST = {"divide": 2, "exp": 2, "exp2": 1, "log": 2, "log2": 1, "logistic": 4, "rsqrt": 1, "sqrt": 1, "tanh": 6}
MOST |= {"sin": 7, "cos": 7}
"""Instructions of f32."""


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_an_approximation_is_few_instructions(arch: str) -> None:
    def count(text: str, prelude: Prelude) -> int:
        head = 'extern "C" __global__ void f(const float* x, const float* y, float* z) { const int i = threadIdx.x;'
        body = f"const float a = x[i], b = y[i]; z[i] = {text} + b; }}"
        (code,) = functions(nvrtc.compile_source(prelude.text() + head + body, arch).cubin).values()
        return len(code)

    for op in OPS:
        prelude, operands = Prelude(), ("a", "b") if op == "divide" else ("a",)
        text = scalars.map_expression(prelude, op, operands, [F32] * len(operands), F32, fast=True)
        assert count(text, prelude) - count("a", Prelude()) <= MOST[op], op


def test_the_cpu_and_strict_plans_do_not_approximate() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (8, 64)).astype(np.float32)
    strict = af.compile(lambda x: np.exp(x) / x, x, backend="cuda", device="h200")
    assert "approximate" not in "".join(strict.source().values())
    fast = af.compile(lambda x: np.exp(x) / x, x, backend="cuda", device="h200", numerics="fast")
    assert "approximate_divide(" in "".join(fast.source().values())
    same = af.compile(lambda x: np.exp(x) / x, x, numerics="fast")
    np.testing.assert_array_equal(same(x), af.compile(lambda x: np.exp(x) / x, x)(x))


def test_bfloat16_takes_the_instruction_for_tanh() -> None:
    x = np.linspace(-4, 4, 64).astype(ml_dtypes.bfloat16)
    plan = af.compile(np.tanh, x, backend="simulated", numerics="fast")
    assert "approximate_tanh(" in "".join(plan.source().values())
    check("tanh", np.asarray(plan(x)), np.tanh(x), bounds_of(plan.graph, [x])[0])
