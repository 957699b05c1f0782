"""Conversions and divisions that C leaves open: interpreter, CPU code and CUDA C on the shim, bit for bit.

The arrays have a length that no vector divides, so that bodies and tails are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import make_candidate
from autofuse.ir.interpreter import interpret
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda.codegen import generate
from autofuse.testing.simt import SimtModule

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def values(dtype: str) -> Any:
    d = np.dtype(dtype)
    if d.kind in "iu":
        info, width = np.iinfo(d), 8 * d.itemsize
        edges = [0, 1, 2, 3, 7, width - 1, width, width + 1, info.max, info.max - 1, info.max // 2, info.min]
        edges += [-1, -2, -7, -width, info.min + 1] if d.kind == "i" else [5]
        return np.array(edges, d)
    powers = [float(2**n) for n in (7, 8, 15, 16, 31, 32, 63, 64)]
    edges = [0.0, 0.5, 0.99, 1.0, 1.5, 127.5, 200.0, 255.9, 300.7, 5e9, 1e19, 1e30, np.inf, *powers]
    near = [np.nextafter(d.type(p), d.type(0)) for p in powers]
    with np.errstate(over="ignore"):
        return np.array([np.nan, *edges, *near, *(-x for x in [*edges, *near])], d)


def edges(x: Any, y: Any) -> Any:
    """All that C leaves open, of two arrays of one dtype."""
    converted = [x.astype(dtype) for dtype in DTYPES if dtype != x.dtype]
    if x.dtype.kind == "f":
        return [*converted, np.spacing(x), np.nextafter(x, y), x // y, x % y, *np.frexp(x)]
    shifted = [np.left_shift(x, y), np.right_shift(x, y)]
    return [*converted, *shifted, x // y, x % y, np.fmod(x, y), np.reciprocal(x), np.absolute(x) ^ 1, x ** (y & 63)]


def arguments(dtype: str) -> tuple[Any, Any]:
    x, y = (side.ravel() for side in np.meshgrid(values(dtype), values(dtype)))
    odd = 5 - x.size % 8  # some more, so that a tail is left
    return np.concatenate([x, x[:odd]]), np.concatenate([y, y[:odd]])


def simulated(function: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
    """What one kernel of CUDA C computes on the host."""
    graph = trace(function, *given).graph
    program = lower(make_candidate(graph, frozenset(graph.nodes), tuple(graph.outputs)), Schedule(), "edges")
    assert isinstance(program, TileProgram)
    kernel = generate(program, "sm_90")
    buffers = {value.name: argument for value, argument in zip(graph.inputs, given, strict=True)}
    for buffer in kernel.parameters:
        if buffer.space is Space.OUTPUT:
            buffers[buffer.name] = np.full(buffer.type.shape, 99, buffer.type.dtype.numpy)
    SimtModule([kernel]).run(kernel, buffers)
    return [buffers[output.name] for output in graph.outputs]


def assert_same_bits(name: str, found: Any, right: Any) -> None:
    assert (found.dtype, found.shape) == (right.dtype, right.shape)
    if right.dtype.kind == "f":  # the payload of a NaN is free
        assert np.array_equal(np.isnan(found), np.isnan(right)), name
        bits = np.dtype(f"u{right.dtype.itemsize}")
        found, right = (np.where(np.isnan(right), 0, side.view(bits)) for side in (found, right))
    np.testing.assert_array_equal(found, right, err_msg=name)


def some(*quick: str) -> list[Any]:
    """All dtypes, of which these are compared in the quick tests."""
    return [dtype if dtype in quick else pytest.param(dtype, marks=pytest.mark.slow) for dtype in DTYPES]


@pytest.mark.parametrize("dtype", some("i1", "u4", "f4"))
def test_backends_agree_bit_for_bit(dtype: str) -> None:
    given = arguments(dtype)
    expected = interpret(trace(edges, *given).graph, *given)
    fused, apart = (af.compile(edges, *given, policy=policy)(*given) for policy in ("analytical", "unfused"))
    for number, right in enumerate(expected):
        assert_same_bits(f"CPU code, result {number}", fused[number], right)
        assert_same_bits(f"CPU code, one kernel a node, result {number}", apart[number], right)


@pytest.mark.parametrize("dtype", some("i4", "u8", "f4"))
def test_cuda_agrees_bit_for_bit(dtype: str) -> None:
    given = arguments(dtype)
    expected = interpret(trace(edges, *given).graph, *given)
    for number, (found, right) in enumerate(zip(simulated(edges, given), expected, strict=True)):
        assert_same_bits(f"CUDA, result {number}", found, right)
