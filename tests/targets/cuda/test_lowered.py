"""NumPy functions, traced and lowered to one kernel each, as CUDA C on the shim against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import make_candidate
from autofuse.ir.interpreter import interpret
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.testing.simt import SimtModule
from tests.fixtures.tilekernels import Kernel
from tests.fixtures.tileprograms import engine

Array = NDArray[Any]
TOLERANCE = {"f4": 2e-5, "f2": 4e-3}
"""Relative to the largest magnitude: sums in another order and libm's last bits; two f16 units."""


def softmax(x: Any, axis: int = -1) -> Any:
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + shift


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2)) @ v


def laplacian(x: Any) -> Any:
    return x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]


def f(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def i(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-99, 99, shape)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "softmax_rows": (softmax, (f(9, 300),)),
    "softmax_columns": (lambda x: softmax(x, 0), (f(30, 40),)),
    "softmax_half": (softmax, (f(9, 100).astype(np.float16),)),
    "norm": (layer_norm, (f(10, 64), f(64), f(64))),
    "standardise": (lambda x: (x - x.mean(0)) / x.std(0), (f(50, 20),)),
    "transposed": (lambda x: np.tanh(x).T + 1, (f(33, 20),)),
    "joined": (lambda x, y: np.concatenate([x * 2, np.exp(y)], axis=1), (f(6, 7), f(6, 9))),
    "padded": (lambda x: np.pad(x, ((1, 2), (3, 0)), constant_values=5), (f(6, 7),)),
    "strided": (lambda x: x[1:-1, ::2] - x[:-2, 1::2], (f(12, 20),)),
    "picked": (lambda x, at: x[at] * 2, (f(60, 20), np.array([5, 1, 59, -1, 7]))),
    "stencil": (laplacian, (f(30, 40),)),
    "running_rows": (lambda x: np.cumsum(x * 2, axis=1), (f(12, 20),)),
    "running_columns": (lambda x: np.cumsum(x, axis=0), (f(12, 20),)),
    "best": (lambda x: np.argmax(x, axis=-1), (f(12, 200),)),
    "best_of_all": (np.argmax, (f(40_003),)),
    "total": (lambda x: (x * x).sum(), (f(300, 400),)),
    "integers": (lambda x, y: (x * y) // 3 + (x % 7) - (x >> 2), (i(50), i(50))),
    "dense": (lambda x, w, b: np.maximum(x @ w + b, 0), (f(70, 33), f(33, 64), f(64))),
    "gates": (lambda x, w, h, u: np.tanh(x @ w + h @ u), (f(70, 33), f(33, 50), f(70, 20), f(20, 50))),
    "deep": (lambda x, w: x @ w, (f(20, 700), f(700, 30))),
    "mlp": (lambda x, w, v: np.tanh(x @ w) @ v, (f(70, 33), f(33, 50), f(50, 20))),
    "attention": (attention, (f(2, 3, 40, 16), f(2, 3, 40, 16), f(2, 3, 40, 16))),
}


def lowered(name: str) -> TileProgram:
    function, arguments = FUNCTIONS[name]
    graph = trace(function, *arguments).graph
    program = lower(make_candidate(graph, frozenset(graph.nodes), tuple(graph.outputs)), Schedule(), name)
    assert isinstance(program, TileProgram)
    return program


@pytest.fixture(scope="module")
def kernels() -> dict[str, CudaKernel]:
    return {name: generate(lowered(name), "sm_90") for name in FUNCTIONS}


@pytest.fixture(scope="module")
def module(kernels: dict[str, CudaKernel]) -> SimtModule:
    return SimtModule(list(kernels.values()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_kernel_agrees_with_the_interpreter(name: str, kernels: dict[str, CudaKernel], module: SimtModule) -> None:
    function, arguments = FUNCTIONS[name]
    graph = trace(function, *arguments).graph
    (expected,) = interpret(graph, *arguments)
    kernel, (output,) = kernels[name], graph.outputs
    buffers = {value.name: argument for value, argument in zip(graph.inputs, arguments, strict=True)}
    for buffer in kernel.parameters:
        if buffer.space is Space.OUTPUT:
            buffers[buffer.name] = np.full(buffer.type.shape, 99, buffer.type.dtype.numpy)
    module.run(kernel, buffers, order="reverse")
    actual = buffers[output.name]
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = TOLERANCE[expected.dtype.str[1:]] * max(1.0, float(np.abs(expected.astype(np.float64)).max()))
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance)


def test_a_deep_product_has_the_bits_of_the_cpu(kernels: dict[str, CudaKernel], module: SimtModule) -> None:
    """Both add in the same blocks of the depth; the evaluator of TilePrograms adds as BLAS does."""
    program, (_, arguments) = lowered("deep"), FUNCTIONS["deep"]
    inputs = [buffer.name for buffer in program.buffers if buffer.space is Space.INPUT]
    given = dict(zip(inputs, arguments, strict=True))
    generated = replace(program, schedule=cpu_schedule(dots="generated"))
    ((name, expected),) = Kernel(generated, engine()).run(given).items()
    buffers = {**given, name: np.zeros_like(expected)}
    module.run(kernels["deep"], buffers)
    np.testing.assert_array_equal(buffers[name], expected)
