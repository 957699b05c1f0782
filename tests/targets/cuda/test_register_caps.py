"""A schedule's cap on registers: kept by the compiler, in joined launches too, and seen by the model."""

from __future__ import annotations

import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.lazydataclass import replace
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.codegen.together import Copies, generate_together
from autofuse.targets.cuda.cost.counts import counted
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, REGISTERS, cuda_schedule
from autofuse.targets.cuda.gpus import H200, blocks_for_registers
from autofuse.targets.cuda.nvrtc import compile_source
from tests.fixtures import handbuilt

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")


def capped(program: TileProgram, registers: int) -> TileProgram:
    return replace(program, schedule=cuda_schedule(registers=registers))


SOFTMAX = handbuilt.softmax("softmax", 4096, 4096)
"""Its rows are in registers: far more than 64 a thread."""


def test_no_cap_leaves_the_code_as_it_is() -> None:
    assert generate(capped(SOFTMAX, 0), "sm_90") == replace(generate(SOFTMAX, "sm_90"))
    assert generate(capped(SOFTMAX, 64), "sm_90").source != generate(SOFTMAX, "sm_90").source


@needs_nvrtc
@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
@pytest.mark.parametrize("most", [pytest.param(48, marks=pytest.mark.slow), 64])
def test_the_compiler_keeps_it(most: int, arch: str) -> None:
    def registers(program: TileProgram) -> int:
        return compile_source(generate(program, arch).source, arch).resources["softmax"].registers

    assert registers(SOFTMAX) > 64
    assert registers(capped(SOFTMAX, most)) <= most


@needs_nvrtc
def test_the_least_of_what_is_launched_together_holds_for_all() -> None:
    programs = [handbuilt.softmax("free", 64, 4096), capped(handbuilt.softmax("capped", 64, 4096), 40)]
    made = generate_together("both", [Copies(program, 2) for program in programs], "sm_90", 128)
    assert compile_source(made.source, "sm_90").resources["both"].registers <= 40


@pytest.mark.parametrize(
    ("registers", "threads", "arch", "blocks"),
    [
        (0, 256, "sm_90", 0),
        (64, 256, "sm_90", 4),
        (40, 256, "sm_90", 6),
        (255, 1024, "sm_90", 1),  # no fewer than a block
        (32, 32, "sm_90", 16),  # a multiprocessor holds no more blocks
        (32, 256, "sm_89", 6),  # nor threads
    ],
)
def test_a_cap_is_so_many_blocks(registers: int, threads: int, arch: str, blocks: int) -> None:
    assert blocks_for_registers(registers, threads, arch) == blocks


def test_it_is_tried_and_priced() -> None:
    assert CUDA_DECISIONS.choices(SOFTMAX)[REGISTERS] == (0, 32, 64, 128)
    (free,), (few,) = (counted(program, "sm_90").launches for program in (SOFTMAX, capped(SOFTMAX, 32)))
    assert few.registers == 32 < free.registers
    assert few.spill_bytes == 4 * (free.registers - 32)
    assert free.spill_bytes == 0
    model = GpuModel(H200)
    (before,), (after,) = (model.launches(KernelFacts(program)) for program in (SOFTMAX, capped(SOFTMAX, 32)))
    assert after.waves < before.waves
