"""Products over a softmax whose values are infinite, or large: NaN where the interpreter has it; races are errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import renamed_buffers
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.testing.simt import SimtModule
from tests.fixtures.attentions import (
    attention,
    causal_finite,
    dropout,
    dropped_before,
    grouped,
    heads,
    hidden,
    in_two_groups,
    kept,
    normal,
    with_infinities,
    with_statistics,
)
from tests.fixtures.sweptprograms import check_answers, is_swept, program_of

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16


def far_apart(dtype: Any = F32, keys: int = 130, rows: int = 40) -> tuple[Any, ...]:
    """Most weights are zero, some beside the maximum of the whole row alone; some values are infinite."""
    return with_infinities(*(array * dtype(30) for array in heads(1, rows, keys, 16, dtype)))


def grouped_far_apart() -> tuple[Any, ...]:
    values = normal(1, 2, 100, 16)
    values[0, 1, 71, 3], values[0, 0, 15, 4] = -np.inf, np.inf
    return normal(1, 4, 35, 16, scale=30), normal(1, 2, 100, 16, scale=30), values


def scaled_down(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Of which a tenth of the weights is dropped, too."""
    return lambda q, k, v, keep: fn(q, k, v, np.zeros(keep.shape, q.dtype), keep)


ONLY = np.random.default_rng(7).random((40, 300)) < 0.9
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "parts": (attention, far_apart(), 3),
    "parts_that_differ": (attention, far_apart(keys=75), 2),
    "f16": (attention, far_apart(F16), 4),
    "bf16": (attention, far_apart(BF16), 2),
    "f64": (attention, far_apart(F64), 3),
    "divided": (attention, with_infinities(*in_two_groups(40, 300, 16, F16)), 5),
    "large": (attention, (*heads(1, 40, 70, 16)[:2], np.full((1, 70, 16), 3e38, F32)), 2),
    "large_with_statistics": (with_statistics, (*heads(1, 40, 70, 16)[:2], np.full((1, 70, 16), 3e38, F32)), 2),
    "statistics": (with_statistics, far_apart(), 2),
    "causal": (causal_finite, far_apart(keys=100, rows=100), 3),
    "grouped": (grouped, grouped_far_apart(), 2),
    "dropout": (dropout, (*far_apart(), hidden(40, 130), kept(40, 130)), 3),
    "dropout_whole": (dropout, (*far_apart(), hidden(40, 130), kept(40, 130)), 1),
    "dropout_before": (dropped_before, (*far_apart(), hidden(40, 130), kept(40, 130)), 3),
    "dropout_divided": (scaled_down(dropout), (*with_infinities(*in_two_groups(40, 300, 16, F16)), ONLY), 1),
    "dropout_divided_parts": (scaled_down(dropout), (*with_infinities(*in_two_groups(40, 300, 16, F16)), ONLY), 4),
    "dropout_large": (scaled_down(dropout), (*heads(1, 40, 300, 16)[:2], np.full((1, 300, 16), 2e38, F32), ONLY), 1),
    "dropout_large_parts": (
        scaled_down(dropout),
        (*heads(1, 40, 300, 16)[:2], np.full((1, 300, 16), 2e38, F32), ONLY),
        3,
    ),
}
"""Function, arguments, and parts of the axis."""
QUICK = ("parts_that_differ", "divided", "dropout_divided")


@cache
def program(name: str) -> TileProgram:
    fn, args, parts = CASES[name]
    return program_of(fn, *args, schedule=cuda_schedule(online="16x32", split=parts))


@cache
def kernel_of(name: str) -> CudaKernel:
    return generate(program(name), "sm_90")


@cache
def module(quick: bool) -> SimtModule:
    return SimtModule([kernel_of(name) for name in CASES if (name in QUICK) == quick], races=True)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_answers_are_those_of_whole_rows(name: str) -> None:
    fn, args, parts = CASES[name]
    assert is_swept(program(name))
    assert len(program(name).launches) == 1 + (parts > 1)
    check_answers(name, module(name in QUICK), kernel_of(name), fn, *args)


def test_a_part_knows_the_whole_axis_by_the_names_of_its_plan() -> None:
    made = program("parts")
    names = {buffer.name: f"{buffer.name}_of_plan" for buffer in made.buffers}
    launches = tuple(tuple(renamed_buffers(phase, names) for phase in launch) for launch in made.launches)
    buffers = tuple(replace(buffer, name=names[buffer.name]) for buffer in made.buffers)
    kernel = generate(replace(made, buffers=buffers, launches=launches), "sm_90")
    assert [parameter.name for parameter in kernel.parameters] == [names[b.name] for b in kernel_of("parts").parameters]


def test_a_plan_takes_keys_of_few_queries_in_parts() -> None:
    args = (np.zeros((8, 1, 64), F16), np.zeros((8, 4096, 64), F16), np.zeros((8, 4096, 64), F16))
    plan = af.compile(attention, *args, backend="cuda", device="h200", deadline=None)
    (source,) = plan.source().values()
    assert "looks = true" in source
