"""Statistics of rows that are walked once, against the interpreter; races are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import RowGroup, Space, Stage, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.report.tileprint import print_program
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, cuda_schedule
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count
from tests.fixtures.kernelchecks import fused

BF16 = ml_dtypes.bfloat16
F32 = np.float32
AGAIN = {"placement": "recompute"}
"""Rows that would fit are read again too."""
A100 = backend_named("cuda").target(device="a100")


def program_of(fn: Callable[..., Any], *args: Any, schedule: Schedule) -> TileProgram:
    """A function as one kernel of a device without clusters."""
    program = lower(fused(fn, *args), schedule, "rows", A100.limits)
    assert isinstance(program, TileProgram)
    return program


def stages_of(program: TileProgram) -> list[Stage]:
    groups = [step for phase in program.phases() for step in phase.steps if isinstance(step, RowGroup)]
    return [stage for group in groups for stage in group.stages]


def is_rescaled(program: TileProgram) -> bool:
    return any(stage.stabiliser is not None for stage in stages_of(program))


def rows(count_: int, length: int, dtype: Any = F32) -> Any:
    """Some rows have infinities or NaN, some are -inf for a while or as a whole."""
    x = np.random.default_rng(length).standard_normal((count_, length)) * 3
    x[1 % count_, : length // 2] = -np.inf
    x[2 % count_, :] = -np.inf
    x[3 % count_, length // 3] = np.inf
    x[4 % count_, length // 3] = np.nan
    return x.astype(dtype)


def softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def log_sum(x):
    top = x.max(-1)
    return np.log(np.exp(x - top[:, None]).sum(-1)) + top


def entropy(x):
    """Two sums that are rescaled."""
    power = np.exp(x - x.max(-1, keepdims=True))
    return (power * x).sum(-1) / power.sum(-1)


def centred(x):
    """The maximum, and what it stabilises, are of differences from what a stage before them made."""
    differences = x - x.mean(-1, keepdims=True)
    return log_sum(differences)


def masked(x, keep):
    return log_sum(np.where(keep, x, F32(-1e9)))


def weighed(x, y):
    """A sum of values, some of which are infinite, by weights some of which are zero in the end."""
    power = np.exp(x - x.max(-1, keepdims=True))
    return (power * y).sum(-1) / power.sum(-1)


def growing(length: int) -> Any:
    """Rows whose maximum grows, and values with infinities: where weights are small at last, and where they are not."""
    x = np.sort(np.random.default_rng(length).standard_normal((9, length)) * 60).astype(F32)
    y = np.random.default_rng(1).standard_normal((9, length)).astype(F32)
    for row, at in enumerate((3, length // 2, length - 2, 0, 50, length - 1)):
        y[row, at] = np.inf if row % 2 else -np.inf
    return x, y


def by_minimum(x):
    return np.exp(x - x.min(-1, keepdims=True)).sum(-1)


def product_of_all(x):
    return np.exp(x - x.max(-1, keepdims=True)).prod(-1)


def chosen(x):
    """Nothing is chosen of a row whose maximum is NaN, or infinite: its sum is zero."""
    return np.where(x > 0, np.exp(x - x.max(-1, keepdims=True)), F32(0)).sum(-1)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "softmax": (softmax, (rows(9, 1000),), AGAIN),
    "log_sum": (log_sum, (rows(9, 1000),), AGAIN),
    "odd": (log_sum, (rows(7, 1027),), AGAIN),
    "short": (log_sum, (rows(300, 65),), AGAIN),
    "entropy": (entropy, (np.random.default_rng(3).standard_normal((9, 1000)).astype(F32),), AGAIN),
    "weighed": (weighed, growing(1000), AGAIN),
    "weighed_in_a_warp": (weighed, growing(1000), {**AGAIN, "row_threads": 32}),
    "weighed_in_eight": (weighed, growing(1000), {**AGAIN, "row_threads": 8}),
    "weighed_in_a_block": (weighed, growing(1000), {**AGAIN, "row_threads": 512}),
    "centred": (centred, (rows(9, 1000),), AGAIN),
    "masked": (masked, (rows(9, 1000), np.random.default_rng(4).random((9, 1000)) < 0.7), AGAIN),
    "long": (log_sum, (rows(5, 100_003),), {"split": 1}),
    "long_softmax": (softmax, (rows(5, 100_000),), {"split": 1}),
    "f64": (log_sum, (rows(9, 1000, np.float64),), AGAIN),
    "f16": (log_sum, (rows(9, 1000, np.float16),), AGAIN),
    "bf16": (softmax, (rows(9, 1000, BF16),), AGAIN),
    "in_a_warp": (log_sum, (rows(9, 1000),), {**AGAIN, "row_threads": 32}),
    "in_eight": (log_sum, (rows(9, 1000),), {**AGAIN, "row_threads": 8}),
    "in_a_block": (log_sum, (rows(9, 1000),), {**AGAIN, "row_threads": 512}),
}
PROGRAMS = {name: program_of(fn, *args, schedule=cuda_schedule(**s)) for name, (fn, args, s) in CASES.items()}
KERNELS = {name: generate(program, "sm_80") for name, program in PROGRAMS.items()}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()), races=True)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_right(module: SimtModule, name: str) -> None:
    (fn, args, _), kernel = CASES[name], KERNELS[name]
    assert is_rescaled(PROGRAMS[name])
    graph = af.trace(fn, *args)
    (wanted,), (bound,) = af.interpret(graph, *args), bounds_of(graph, args)
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    inputs = {b.name: given[b.name] for b in kernel.parameters if b.space is Space.INPUT}
    (out,) = (b for b in kernel.parameters if b.space is Space.OUTPUT)
    answers: list[bytes] = []
    for order in ("forward", "reverse"):
        answer = np.full(out.type.shape, 99, out.type.dtype.numpy)
        module.run(kernel, {**inputs, out.name: answer}, order=order)
        check(name, answer, wanted, bound)
        assert (np.isnan(answer) == np.isnan(wanted)).all()
        answers.append(answer.tobytes())
    assert answers[0] == answers[1]
    check(name, evaluate_program(PROGRAMS[name], inputs)[out.name], wanted, bound)


@pytest.mark.parametrize("fn", [by_minimum, product_of_all, chosen], ids=lambda fn: fn.__name__)
def test_what_a_larger_maximum_does_not_only_scale_is_walked_again(fn: Callable[..., Any]) -> None:
    assert not is_rescaled(program_of(fn, rows(9, 1000), schedule=cuda_schedule(**AGAIN)))


def test_rows_that_fit_are_kept_and_a_schedule_can_refuse() -> None:
    assert not is_rescaled(program_of(log_sum, rows(9, 1000), schedule=cuda_schedule()))
    assert not is_rescaled(program_of(log_sum, rows(5, 100_003), schedule=cuda_schedule(online="off", split=1)))
    assert "vectorised=k0 stabilised by %" in print_program(PROGRAMS["long"])
    choices = {decision.name: values for decision, values in CUDA_DECISIONS.choices(PROGRAMS["long"]).items()}
    assert choices["online"] == ("auto", "off")


@pytest.mark.parametrize(
    ("fn", "reads"),
    [pytest.param(log_sum, 1, id="log_sum"), pytest.param(softmax, 2, id="softmax", marks=pytest.mark.slow)],
)
def test_a_long_row_is_read_once_less(fn: Callable[..., Any], reads: int) -> None:
    x = np.zeros((256, 1 << 17), F32)
    swept, again = (program_of(fn, x, schedule=cuda_schedule(online=online)) for online in ("auto", "off"))
    (found,), (before,) = (count(generate(program, "sm_80"), most_blocks=1) for program in (swept, again))
    assert (found.fetched_bytes, before.fetched_bytes) == (reads * 4 << 17, (reads + 1) * 4 << 17)
    assert found.wide > 0.99
    cheaper, dearer = A100.cost_model().price([KernelFacts(swept), KernelFacts(again)]).us
    assert cheaper < dearer
