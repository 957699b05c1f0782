"""Attention of f32 that may be rounded to TF32: one kernel on matrix units, of every layout; races are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.errorbounds.approximations import to_tf32
from autofuse.passes.pipeline import clean
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count
from tests.fixtures.attentions import (
    attention,
    between_products,
    dropout,
    dropped,
    heads,
    hidden,
    kept,
    masked,
    merged,
    normal,
    softmax,
    turned,
    turned_queries,
    with_statistics,
)

F32, F16 = np.float32, np.float16
LIMITS = backend_named("cuda").target(device="h200").limits


def whole(fn: Callable[..., Any], *args: Any, schedule: Schedule = Schedule()) -> TileProgram:  # noqa: B008
    """A function as one kernel, with fast numerics."""
    graph = clean(af.trace(fn, *args), "fast")
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    program = lower(kernel, schedule, "attention", LIMITS)
    assert isinstance(program, TileProgram)
    return program


def long_weights(q, k, v):
    """Products of 16 bits, but weights of f32."""
    return softmax((q @ np.swapaxes(k, -1, -2)).astype(F32)) @ v.astype(F32)


def long_weights_of_turned_keys(q, k, v):
    return softmax((q @ k).astype(F32)) @ v.astype(F32)


def short_weights(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2)).astype(F16) @ v.astype(F16)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "plain": (attention, heads(2, 70, 100, 16)),
    "one_row_more": (attention, heads(1, 129, 33, 19, values=5)),
    "wide": (attention, heads(1, 40, 129, 128)),
    "odd": (attention, heads(1, 33, 129, 21, values=77)),
    "turned": (turned, (normal(2, 50, 16), normal(2, 16, 92), normal(2, 92, 16))),
    "turned_odd": (turned, (normal(2, 50, 19), normal(2, 19, 91), normal(2, 91, 19))),
    "turned_queries": (turned_queries, (normal(2, 16, 50), normal(2, 92, 16), normal(2, 92, 16))),
    "turned_values": (
        lambda q, k, v: attention(q, k, np.swapaxes(v, -1, -2)),
        (*heads(1, 40, 72, 16)[:2], normal(1, 16, 72)),
    ),
    "masked": (masked, (*heads(2, 40, 130, 16), hidden(40, 130))),
    "merged": (merged, heads(3, 37, 37, 20)),
    "dropped": (dropped, (*heads(1, 40, 70, 16), np.random.default_rng(1).random((40, 70)) < 0.8)),
    "dropout": (dropout, (*heads(2, 40, 130, 16), hidden(40, 130), kept(40, 130))),
    "with_statistics": (with_statistics, heads(2, 30, 70, 16)),
    "between_products": (
        between_products,
        (normal(40, 24), normal(24, 16), normal(70, 16), normal(70, 16), normal(16, 33)),
    ),
    "long_weights": (long_weights, heads(2, 40, 70, 16, F16)),
    "long_weights_of_turned_keys": (
        long_weights_of_turned_keys,
        tuple(normal(*shape, dtype=F16) for shape in ((2, 50, 16), (2, 16, 92), (2, 92, 16))),
    ),
    "short_weights": (short_weights, heads(2, 40, 70, 16)),
}
ORDINARY = ("long_weights_of_turned_keys",)
"""Keys of 16 bits that are turned come in order, and weights of TF32 are taken in another."""
PROGRAMS = {name: whole(fn, *args) for name, (fn, args) in CASES.items()}
PROGRAMS |= {
    f"plain_{size}": whole(*(lambda fn, args: (fn, *args))(*CASES["plain"]), schedule=cuda_schedule(online=size))
    for size in ("128x64", "64x32", "48x64", "16x32")
}
KERNELS = {name: generate(program, "sm_90") for name, program in PROGRAMS.items()}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()), races=True)


def case_of(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return CASES[name] if name in CASES else CASES[name.split("_")[0]]


@pytest.mark.parametrize("name", KERNELS)
def test_answers_are_right(module: SimtModule, name: str) -> None:
    kernel, (fn, args) = KERNELS[name], case_of(name)
    graph = clean(af.trace(fn, *args), "fast")
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    inputs = {b.name: given[b.name] for b in kernel.parameters if b.space is Space.INPUT}
    outputs = [b for b in kernel.parameters if b.space is Space.OUTPUT]
    wanted = dict(zip((value.name for value in graph.outputs), af.interpret(graph, *args), strict=True))
    bounds = dict(zip(wanted, bounds_of(graph, args), strict=True))
    answers: list[list[bytes]] = []
    for order in ("forward", "reverse"):
        found = {b.name: np.full(b.type.shape, 99, b.type.dtype.numpy) for b in outputs}
        module.run(kernel, {**inputs, **found}, order=order)
        for output, answer in found.items():
            check(name, answer, wanted[output], bounds[output])
            assert (np.isnan(answer) == np.isnan(wanted[output])).all()
        answers.append([answer.tobytes() for answer in found.values()])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", KERNELS)
def test_both_products_are_for_the_matrix_units(name: str) -> None:
    assert any(phase.sweep is not None for phase in PROGRAMS[name].phases())
    source = KERNELS[name].source
    assert ("multiply_tf32(" in source) == (name not in ORDINARY)
    assert ("fmaf(" in source) == (name in ORDINARY)


def test_factors_are_rounded_to_nearest(module: SimtModule) -> None:
    """As near to attention of rounded factors as f32 sums are; weights are rounded under the maximum of their time."""
    kernel, (fn, args) = KERNELS["plain"], CASES["plain"]
    (out,) = (buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT)
    answer = np.full(out.type.shape, 99, F32)
    names = [value.name for value in af.trace(fn, *args).inputs]
    module.run(kernel, {**dict(zip(names, args, strict=True)), out.name: answer})
    q, k, v = (to_tf32(array).astype(np.float64) for array in args)
    scores = q @ np.swapaxes(k, -1, -2) * 0.25
    top = scores.max(-1, keepdims=True)
    wanted = 0
    for start, end in ((0, 64), (64, 100)):  # tiles
        held = scores[..., :end].max(-1, keepdims=True)
        weights = to_tf32(np.exp(scores[..., start:end] - held).astype(F32))
        wanted = wanted + weights @ v[:, start:end] * np.exp(held - top)
    wanted = wanted / np.exp(scores - top).sum(-1, keepdims=True)
    off = np.abs(answer - wanted)
    assert np.median(off) < 1e-6  # a weight next to a half may be rounded either way
    assert off.max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128])
def test_long_sequences_read_keys_and_values_once_for_128_rows(width: int) -> None:
    program = whole(attention, *(np.zeros((8, 2048, width), F32) for _ in range(3)))
    kernel = generate(program, "sm_90")
    (found,) = count(kernel, most_blocks=1)
    assert (found.blocks, found.wide, found.conflicted <= 1.05) == (128, 1.0, True)
    fetched = dict(zip([b.name for b in kernel.parameters], found.fetched_of, strict=True))
    assert fetched["k"] == fetched["v"] == 2048 * width * 4


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_they_compile_without_spills(arch: str) -> None:
    program = whole(attention, *(np.zeros((8, 2048, 128), F32) for _ in range(3)))
    for used in nvrtc.compile_source(generate(program, arch).source, arch).resources.values():
        assert used.spill_bytes == 0
