"""What may be approximated is cheaper by the model, and TF32 multiplies at a rate of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.features import COLUMNS, matrix
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.passes.pipeline import clean
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.cuda.cost.counts import counted
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import sheet_rates
from autofuse.targets.cuda.cost.terms import Terms
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.gpus import A100, ALL, H200, Gpu
from autofuse.targets.registry import backend_named

F32 = np.float32
LARGE = 1 << 24


def lowered(fn: Callable[..., Any], *args: Any, numerics: Any, schedule: Schedule = Schedule()) -> TileProgram:  # noqa: B008
    graph = clean(af.trace(fn, *args), numerics)
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    program = lower(kernel, schedule, "kernel", backend_named("cuda").target(device="h200").limits)
    assert isinstance(program, TileProgram)
    return program


def terms(program: TileProgram, gpu: Gpu = H200) -> Terms:
    (found,) = GpuModel(gpu).launches(KernelFacts(program))
    return found


def both(fn: Callable[..., Any], *args: Any, schedule: Schedule = Schedule()) -> list[TileProgram]:  # noqa: B008
    return [lowered(fn, *args, numerics=numerics, schedule=schedule) for numerics in ("strict", "fast")]


X = np.zeros(LARGE, F32)


@pytest.mark.parametrize(
    "fn", [np.exp, np.log, np.tanh, np.sin, np.sqrt, lambda x: 1 / np.sqrt(x), lambda x: x / (x + x)]
)
def test_an_approximation_is_fewer_instructions(fn: Callable[[Any], Any]) -> None:
    strict, fast = (terms(program) for program in both(fn, X))
    assert fast.issue < strict.issue
    assert fast.memory == strict.memory


def test_each_takes_the_units_for_approximations_once() -> None:
    def chain(x: Any) -> Any:
        for _ in range(8):
            x = np.exp(x)
        return x

    _, fast = both(chain, X)
    assert terms(fast).special == pytest.approx(8 * LARGE / sheet_rates(H200).special_per_s * 1e6, rel=0.05)
    assert terms(fast).bound == "compute"


def test_a_reciprocal_root_is_one_operation() -> None:
    _, fast = both(lambda x: 1 / np.sqrt(x), X)
    (stage,) = (stage for phase in counted(fast, "sm_90").features.phases for stage in phase.stages)
    assert {key: count for key, count in stage.operations.items() if key[1] == "fast"} == {
        ("sqrt", "fast"): stage.vectors
    }


def test_learned_models_see_approximations_as_operations_on_f32() -> None:
    strict, fast = (counted(program, "sm_90").features for program in both(np.exp, X))
    column = COLUMNS.index("op_exp_f32")
    rows = matrix([strict, fast])
    assert rows[0, column] == rows[1, column] > 0


@pytest.mark.parametrize("gpu", ALL.values(), ids=lambda gpu: gpu.name)
def test_tf32_has_half_of_the_rate_of_16_bits(gpu: Gpu) -> None:
    assert gpu.tf32_flops == pytest.approx(gpu.matrix_flops / 2)


@pytest.mark.parametrize("gpu", [H200, A100], ids=lambda gpu: gpu.name)
def test_a_large_product_takes_what_its_flops_take_in_tf32(gpu: Gpu) -> None:
    n = 8192
    matrix = np.zeros((n, n), F32)
    strict, fast = both(lambda a, b: a @ b, matrix, matrix, schedule=cuda_schedule(tile="128x128"))
    found = terms(fast, gpu)
    assert found.product == pytest.approx(2e6 * n**3 / sheet_rates(gpu).tf32_flops, rel=0.05)
    assert found.product < terms(strict, gpu).product / 3


def test_fragments_of_tf32_are_counted_by_hand() -> None:
    """As many bytes as of 16 bits in half the depth; the right operand's words come one by one, all are rounded."""
    matrix = np.zeros((128, 16), F32), np.zeros((16, 128), F32)
    program = lowered(lambda a, b: a @ b, *matrix, numerics="fast", schedule=cuda_schedule(tile="128x128"))
    ((found,),) = (launch.products for launch in counted(program, "sm_90").launches)
    read, stored = 2 * 8 * 6 * 4, (128 + 128) * 16 * 4 / 128
    assert found.is_tf32
    assert found.wavefronts == read + stored


def test_no_price_is_below_the_floor() -> None:
    matrix = np.zeros((2048, 2048), F32)
    for program in (*both(np.exp, X), *both(lambda a, b: a @ b, matrix, matrix)):
        price = GpuModel(H200).price([KernelFacts(program)])
        assert price.us[0] >= price.floor_us[0]
