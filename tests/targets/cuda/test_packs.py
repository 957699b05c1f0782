"""Elementwise kernels by packs with edges per access: every item size, odd rows, several packs of a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import make_candidate
from autofuse.ir.interpreter import interpret
from autofuse.lower.lowering import lower
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.testing.simt import SimtModule

Array = NDArray[Any]
DTYPES = ("f4", "f2", "u1", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("f8", "i8", "i2", "?")))
"""Every item size; those of which another is quick are slow."""
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "odd_length": (np.maximum, ((1003,), (1003,))),
    "shifted": (lambda x: np.maximum(x[:, 1:], x[:, :-1]), ((37, 70),)),
    "shifted_by_three": (lambda x: np.minimum(x[1:, 3:], x[:-1, :-3]), ((20, 67),)),
    "in_three_dimensions": (lambda x: np.maximum(x[1:, 1:, 1:], x[:-1, :-1, :-1]), ((5, 6, 39),)),
    "padded": (lambda x: np.pad(x, ((1, 2), (3, 4))), ((21, 33),)),
    "joined": (lambda x, y: np.concatenate([x, y], axis=1), ((20, 9), (20, 60))),
    "joined_at_a_pack": (lambda x, y: np.concatenate([x, y], axis=1), ((20, 16), (20, 48))),
    "strided": (lambda x: np.maximum(x[:, ::2], x[:, 1::2]), ((20, 90),)),
    "backwards": (lambda x: np.maximum(x, x[:, ::-1]), ((20, 45),)),
    "transposed": (lambda x, y: np.maximum(x.T, y), ((45, 20), (20, 45))),
    "broadcast": (lambda x, row, column: np.maximum(np.maximum(x, row), column), ((21, 45), (45,), (21, 1))),
    "gathered": (lambda x, at: x[at], ((20, 91), (5,))),
    "wider": (lambda x: np.maximum(x, 1).astype(np.float64), ((21, 45),)),
    "one_row_of_five": (lambda x: np.maximum(x, x[::-1]), ((5,),)),
}


def arguments_of(name: str, dtype: str) -> tuple[Array, ...]:
    rng = np.random.default_rng(len(name))
    shapes = FUNCTIONS[name][1]
    if name == "gathered":
        return rng.integers(0, 2, shapes[0]).astype(dtype), np.array([5, 1, 19, -1, 7])
    if dtype == "?":
        return tuple(rng.random(shape) < 0.5 for shape in shapes)
    values = [rng.integers(0, 100, shape).astype(dtype) for shape in shapes]
    if dtype[0] == "f":
        values[0].flat[:4] = (np.nan, np.inf, -0.0, 65504)
    return tuple(values)


def lowered(name: str, dtype: str, packs: int, tag: str) -> TileProgram:
    graph = trace(FUNCTIONS[name][0], *arguments_of(name, dtype)).graph
    candidate = make_candidate(graph, frozenset(graph.nodes), tuple(graph.outputs))
    program = lower(candidate, cuda_schedule(packs=packs, threads=64), f"{name}_{tag}")
    assert isinstance(program, TileProgram)
    return program


@pytest.fixture(scope="module", params=DTYPES)
def kernels(request: pytest.FixtureRequest) -> tuple[str, dict[tuple[str, int], CudaKernel], SimtModule]:
    dtype = request.param
    found = {
        (name, packs): generate(lowered(name, dtype, packs, f"{packs}"), "sm_90")
        for name in FUNCTIONS
        for packs in (1, 3)
    }
    return dtype, found, SimtModule(list(found.values()))


@pytest.mark.parametrize("packs", [1, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_element_is_right(
    name: str, packs: int, kernels: tuple[str, dict[tuple[str, int], CudaKernel], SimtModule]
) -> None:
    """Bit for bit; outputs are poisoned, and the shim guards what lies around each array."""
    dtype, made, module = kernels
    arguments = arguments_of(name, dtype)
    graph = trace(FUNCTIONS[name][0], *arguments).graph
    (expected,) = interpret(graph, *arguments)
    kernel, (output,) = made[name, packs], graph.outputs
    buffers = {value.name: argument for value, argument in zip(graph.inputs, arguments, strict=True)}
    for buffer in kernel.parameters:
        if buffer.space is Space.OUTPUT:
            poison = np.full(buffer.type.nbytes, 0xFF, np.uint8)
            buffers[buffer.name] = poison.view(buffer.type.dtype.numpy).reshape(buffer.type.shape)
    module.run(kernel, buffers, order="reverse")
    np.testing.assert_array_equal(buffers[output.name], expected)
