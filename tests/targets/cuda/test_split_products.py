"""Products that take their depth in parts, against the interpreter; races are errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.lowering import lower
from autofuse.lower.plainproducts import plain_product
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Dot, Space, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, cuda_schedule
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from tests.fixtures.kernelchecks import fused
from tests.fixtures.productprograms import layer, merged, plain, rounded, scaled, turned_left, turned_right

BF16, F16, F32, F64 = ml_dtypes.bfloat16, np.float16, np.float32, np.float64


def program_of(fn: Callable[..., Any], *args: Any, schedule: Schedule = Schedule()) -> TileProgram:  # noqa: B008
    """A function as one kernel, with the name that all have which are measured."""
    limits = backend_named("cuda").target(device="h200").limits
    program = lower(fused(fn, *args), schedule, "kernel", limits)
    assert isinstance(program, TileProgram)
    return program


def random(*shape: int, dtype: Any = F32) -> Any:
    rng = np.random.default_rng(sum(shape))
    if np.dtype(dtype).kind in "ib":
        return rng.integers(-3, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def looked_up(x, w, table, place):
    """What follows reads elements that data decide."""
    product = x @ w
    return np.where(product < 1, product + table[place], product * product)


def before_and_after(x, w, b):
    return np.tanh(np.exp(x) @ w + b)


def sums(x, w):
    return (x @ w).sum(1)


def both(a, b, c):
    return (a @ b) * (a @ c)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "f32": (plain, (random(33, 100), random(100, 41)), 3),
    "many": (plain, (random(20, 260), random(260, 70)), 16),
    "even": (plain, (random(64, 128), random(128, 64)), 2),
    "right": (turned_right, (random(40, 90), random(70, 90)), 4),
    "left": (turned_left, (random(96, 40), random(96, 70)), 4),
    "batched": (plain, (random(3, 20, 64), random(3, 64, 48)), 2),
    "layer": (layer, (random(40, 96), random(96, 130), random(130)), 3),
    "looked_up": (looked_up, (random(30, 64), random(64, 70), random(9), np.arange(70) % 9), 2),
    "merged": (merged, (random(4, 37, 48), random(192, 128), random(128)), 2),
    "merged_unevenly": (merged, (random(5, 37, 20), random(100, 70), random(70)), 3),
    "before_and_after": (before_and_after, (random(40, 100) / 4, random(100, 70), random(70)), 3),
    "f64": (plain, (random(20, 100, dtype=F64), random(100, 33, dtype=F64)), 4),
    "i32": (plain, (random(20, 70, dtype=np.int32), random(70, 40, dtype=np.int32)), 2),
    "f16": (plain, (random(40, 128, dtype=F16), random(128, 64, dtype=F16)), 2),
    "bf16_layer": (layer, (random(40, 96, dtype=BF16), random(96, 72, dtype=BF16), random(72, dtype=BF16)), 4),
    "bf16_rounded": (rounded, (random(40, 100, dtype=BF16), random(100, 72, dtype=BF16)), 2),
}
QUICK = ("batched", "layer", "merged_unevenly", "bf16_layer")
"""The others are other types and layouts of the same code."""


@cache
def program(name: str) -> TileProgram:
    """The program of a case."""
    fn, args, count = CASES[name]
    return program_of(fn, *args, schedule=cuda_schedule(split=count))


@cache
def kernel_of(name: str) -> CudaKernel:
    return generate(program(name), "sm_90")


@cache
def module(quick: bool) -> SimtModule:
    """Kernels that are always run, or the others, compiled together."""
    return SimtModule([kernel_of(name) for name in CASES if (name in QUICK) == quick], races=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_answers_are_right(name: str) -> None:
    (fn, args, _), kernel = CASES[name], kernel_of(name)
    assert len(kernel.launches) == 2
    graph = af.trace(fn, *args)
    (wanted,), (bound,) = af.interpret(graph, *args), bounds_of(graph, args)
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    inputs = {b.name: given[b.name] for b in kernel.parameters if b.space is Space.INPUT}
    (out,) = (b for b in kernel.parameters if b.space is Space.OUTPUT)
    answers: list[bytes] = []
    for order in ("forward", "reverse"):
        answer = np.full(out.type.shape, 99, out.type.dtype.numpy)
        module(name in QUICK).run(kernel, {**inputs, out.name: answer}, order=order)
        check(name, answer, wanted, bound)
        answers.append(answer.tobytes())
    assert answers[0] == answers[1]
    check(name, evaluate_program(program(name), inputs)[out.name], wanted, bound)


@pytest.mark.parametrize("name", CASES)
def test_parts_but_the_last_are_as_deep_as_whole_tiles(name: str) -> None:
    dots = [step for phase in program(name).phases() for step in phase.steps if isinstance(step, Dot)]
    assert max(dot.depth for dot in dots) % 16 == 0


@pytest.mark.parametrize("fn", [sums, scaled, both], ids=lambda fn: fn.__name__)
def test_what_reduces_rows_or_multiplies_twice_stays_whole(fn: Callable[..., Any]) -> None:
    args = (4 + np.abs(random(40, 96)), random(96, 64), random(96, 64))[: 3 if fn is both else 2]
    asked = program_of(fn, *args, schedule=cuda_schedule(split=4))
    assert asked.launches == program_of(fn, *args, schedule=cuda_schedule(split=1)).launches


def parts(rows: int, depth: int, columns: int, dtype: Any = F32) -> int:
    """In how many parts a product is taken by default."""
    program = program_of(plain, np.zeros((rows, depth), dtype), np.zeros((depth, columns), dtype))
    first = program.launches[0][0]
    return next((symbol.extent for symbol in first.grid if symbol.name == "part"), 1)


def test_products_of_few_tiles_are_taken_in_parts_and_others_whole() -> None:
    assert parts(512, 3072, 768) == 8
    assert parts(128, 3072, 768) > 8
    assert parts(4096, 256, 1024) == parts(4096, 4096, 4096) == 1
    assert parts(128, 64, 128) == 1  # another launch takes longer
    assert parts(8192, 16384, 4096, BF16) == 1


def test_a_schedule_decides_and_the_library_has_whole_products() -> None:
    args = np.zeros((512, 3072), F32), np.zeros((3072, 768), F32)
    default = program_of(plain, *args)
    offered = {decision.name: values for decision, values in CUDA_DECISIONS.choices(default).items()}
    assert {0, 1, 2, 8} <= set(offered["split"])
    assert 1 in offered["library"]
    assert plain_product(program_of(plain, *args, schedule=cuda_schedule(library=1))) is not None
    assert len(program_of(plain, *args, schedule=cuda_schedule(split=1)).launches) == 1
    assert len(program_of(plain, *args, schedule=cuda_schedule(split=2)).launches) == 2
    reduced = program_of(sums, *args)
    assert "split" not in {decision.name for decision in CUDA_DECISIONS.choices(reduced)}


def test_several_beside_each_other_are_explained_as_one_launch_after_the_other() -> None:
    def three(x: Any, a: Any, b: Any, c: Any) -> Any:
        return x @ a, x @ b, x @ c

    args = np.zeros((512, 768), F32), *(np.zeros((768, 768), F32) for _ in range(3))
    plan = af.compile(three, *args, backend="cuda", device="h200")
    assert "together" in plan.explain()
