"""Products by matrix units and by multiply-adds, of every layout, against the interpreter; races are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.codegen.blockorder import rows_together
from autofuse.targets.cuda.codegen.producttiles import best_tile
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count
from tests.fixtures.kernelchecks import fused
from tests.fixtures.productprograms import layer, merged, plain, rounded, scaled, turned_left, turned_right

BF16 = ml_dtypes.bfloat16


def whole(fn: Callable[..., Any], *args: Any, schedule: Schedule = Schedule(), arch: str = "sm_90") -> CudaKernel:  # noqa: B008
    """A function as one kernel."""
    limits = backend_named("cuda").target(device="h200").limits
    program = lower(fused(fn, *args), schedule, "product", limits)
    assert isinstance(program, TileProgram)
    return generate(program, arch)


def random(*shape: int, dtype: Any = BF16) -> Any:
    rng = np.random.default_rng(sum(shape))
    if np.dtype(dtype).kind in "ib":
        return rng.integers(-3, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def both(a, b, c):
    gate = a @ b
    return gate / (1 + np.exp(-gate)) * (a @ c)


F32 = np.float32
CASES = {
    "aligned": (plain, (random(64, 64), random(64, 64))),
    "eight_bytes": (plain, (random(70, 52), random(52, 92))),
    "four_bytes": (plain, (random(70, 50), random(50, 90))),
    "odd": (plain, (random(33, 37), random(37, 41))),
    "turned_right": (turned_right, (random(130, 96), random(72, 96))),
    "turned_left": (turned_left, (random(96, 136), random(96, 72))),
    "layer": (layer, (random(100, 64), random(64, 128), random(128))),
    "rounded": (rounded, (random(100, 64), random(64, 136))),
    "gated": (both, (random(40, 64), random(64, 128), random(64, 128))),
    "half": (plain, (random(64, 80, dtype=np.float16), random(80, 64, dtype=np.float16))),
    "batched": (plain, (random(3, 40, 64), random(3, 64, 48))),
    "f32": (plain, (random(70, 64, dtype=F32), random(64, 100, dtype=F32))),
    "f32_deep": (plain, (random(33, 300, dtype=F32), random(300, 41, dtype=F32))),
    "f32_right": (turned_right, (random(70, 520, dtype=F32), random(100, 520, dtype=F32))),
    "f32_left": (turned_left, (random(64, 70, dtype=F32), random(64, 100, dtype=F32))),
    "f32_layer": (layer, (random(100, 64, dtype=F32), random(64, 256, dtype=F32), random(256, dtype=F32))),
    "f64": (plain, (random(40, 300, dtype=np.float64), random(300, 70, dtype=np.float64))),
    "i32": (plain, (random(20, 30, dtype=np.int32), random(30, 40, dtype=np.int32))),
    "i8": (plain, (random(20, 30, dtype=np.int8), random(30, 40, dtype=np.int8))),
    "one_of_each": (plain, (random(40, 64, dtype=F32), random(64, 64))),
    "no_columns": (layer, (random(40, 64, dtype=F32), random(64, 0, dtype=F32), random(0, dtype=F32))),
    "no_depth": (layer, (random(40, 0), random(0, 64), random(64))),
    "merged": (merged, (random(3, 37, 20), random(60, 192), random(192))),
    "merged_f32": (merged, (random(3, 37, 20, dtype=F32), random(60, 256, dtype=F32), random(256, dtype=F32))),
    "scaled": (scaled, (4 + np.abs(random(50, 40, dtype=F32)), random(40, 256, dtype=F32))),
    "single": (plain, (random(1, 8), random(8, 1))),
}
SCHEDULES = {
    "two_stages": cuda_schedule(stages=2, tile="32x64"),
    "four_stages": cuda_schedule(stages=4, tile="64x128"),
    "large": cuda_schedule(tile="128x128"),
    "wide": cuda_schedule(tile="128x256"),
}
WIDE = {
    "wide_odd": (plain, (random(131, 150), random(150, 270))),
    "wide_turned": (lambda a, b: a.T @ b.T, (random(200, 136), random(264, 200))),
    "wide_layer": (layer, (random(130, 136), random(136, 512), random(512))),
    "wide_rounded": (rounded, (random(128, 192), random(192, 256))),
    "wide_batch": (plain, (random(2, 128, 64), random(2, 64, 256))),
}
CASES |= WIDE
KERNELS = {name: whole(fn, *args) for name, (fn, args) in CASES.items()}
KERNELS |= {
    f"{name}_{which}": whole(*(lambda fn, args: (fn, *args))(*CASES[name]), schedule=schedule)
    for name in ("four_bytes", "layer")
    for which, schedule in SCHEDULES.items()
}
KERNELS |= {
    f"{name}_taller": whole(*(lambda fn, args: (fn, *args))(*CASES[name]), schedule=cuda_schedule(tile="32x64"))
    for name in ("merged", "scaled")
}
TALL = {
    "f32_tall": (plain, (random(131, 300, dtype=F32), random(300, 140, dtype=F32))),
    "f32_tall_layer": (layer, (random(70, 64, dtype=F32), random(64, 256, dtype=F32), random(256, dtype=F32))),
}
CASES |= TALL
EIGHT = cuda_schedule(tile="128x128", split=1)
KERNELS |= {name: whole(fn, *args, schedule=EIGHT) for name, (fn, args) in TALL.items()}
GROUPED = {
    "grouped": (plain, (random(297, 20), random(20, 570))),
    "grouped_layer": (layer, (random(310, 16), random(16, 576), random(576))),
    "grouped_batch": (plain, (random(2, 200, 16), random(2, 16, 832))),
}
CASES |= GROUPED
KERNELS |= {name: whole(fn, *args, schedule=cuda_schedule(tile="16x64")) for name, (fn, args) in GROUPED.items()}
KERNELS |= {name: whole(fn, *args, schedule=SCHEDULES["wide"]) for name, (fn, args) in WIDE.items()}
KERNELS |= {f"{name}_old": whole(CASES[name][0], *CASES[name][1], arch="sm_75") for name in ("layer", "f32_left")}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()), races=True)


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_right(module: SimtModule, name: str) -> None:
    kernel = KERNELS[name]
    fn, args = CASES[next(case for case in sorted(CASES, key=len, reverse=True) if name.startswith(case))]
    (wanted,) = af.interpret(af.trace(fn, *args), *args)
    given = dict(zip((value.name for value in af.trace(fn, *args).inputs), args, strict=True))
    (out,) = (buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT)
    answers: list[bytes] = []
    for order in ("forward", "reverse"):
        answer = np.full(out.type.shape, 99, out.type.dtype.numpy)
        inputs = {b.name: given[b.name] for b in kernel.parameters if b.space is Space.INPUT}
        module.run(kernel, {**inputs, out.name: answer}, order=order)
        answers.append(answer.tobytes())
        # sums differ by order; one rounding of what 16-bit floats are summed to
        limit = {2: 8e-3 if out.type.dtype.name == "bf16" else 1e-3, 4: 1e-5, 8: 1e-13}.get(out.type.dtype.itemsize, 0)
        exact = out.type.dtype.is_float
        tolerance = limit * max(1.0, float(np.abs(wanted.astype(np.float64)).max(initial=0))) if exact else 0
        np.testing.assert_allclose(answer.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["aligned", "layer", "rounded", "gated", "half", "batched", "odd"])
def test_products_of_16_bit_floats_are_for_the_matrix_units(name: str) -> None:
    kernel = KERNELS[name]
    assert "multiply_bfloat16(" in kernel.source or "multiply_half(" in kernel.source
    assert "fmaf(" not in kernel.source
    assert len(kernel.launches) == 1  # nothing is widened in memory first


def test_blocks_that_follow_one_another_have_near_squares_of_the_result() -> None:
    """16 rows of tiles, then those that are left; where all blocks run at once their order does not matter."""
    assert "const int group_rows = 19 - group_top < 16 ? 19 - group_top : 16;" in KERNELS["grouped"].source
    assert "(block % 169) / 169 * 13" in KERNELS["grouped_batch"].source
    assert "group_top" not in KERNELS["aligned"].source
    assert rows_together(64, 128, 128, 128) == rows_together(64, 64, 128, 256) == 16
    assert rows_together(5, 90, 64, 64) == 5
    assert rows_together(16, 8, 128, 128) == rows_together(1000, 1, 128, 128) == 1


def test_threads_have_64_sums_of_f32_where_a_schedule_asks_for_the_largest_tile() -> None:
    assert "float sum[8][8];" in KERNELS["f32_tall"].source
    double = [random(131, 300, dtype=np.float64), random(300, 140, dtype=np.float64)]
    assert "[8][8];" not in whole(plain, *double, schedule=EIGHT).source


def test_products_of_f32_and_old_devices_multiply_as_ever() -> None:
    for name in ("f32", "f32_layer", "one_of_each", "layer_old"):
        assert "multiply_bfloat16(" not in KERNELS[name].source
    assert "copy_async" not in KERNELS["layer_old"].source


@pytest.mark.parametrize(("name", "blocks"), [("merged", 9), ("merged_f32", 12), ("scaled", 16)])
def test_a_product_of_few_rows_is_cut_into_columns_whatever_comes_before_it(name: str, blocks: int) -> None:
    assert KERNELS[name].launches[0].grid[0] == blocks


@pytest.mark.parametrize("name", WIDE)
def test_wide_tiles_are_multiplied_by_warps_of_64_rows_and_columns(name: str) -> None:
    assert "float sum[4][8][4];" in KERNELS[name].source
    assert "float sum[4][8][4];" not in whole(*(lambda fn, args: (fn, *args))(*WIDE[name]), arch="sm_75").source


@pytest.mark.parametrize("fn", [plain, rounded])
def test_large_products_ask_for_16_bytes_and_share_no_banks(fn: Callable[..., Any]) -> None:
    kernel = whole(fn, np.zeros((4096, 64), BF16), np.zeros((64, 4096), BF16))
    (found,) = count(kernel, most_blocks=1)
    assert (found.blocks, found.wide, found.repeated) == (512, 1.0, 1.0)
    assert found.conflicted <= 1.05 or fn is rounded


def test_tiles_of_f32_are_as_large_as_shared_memory_can_feed():
    """A thread of a tile of 16 x 64 reads five words for four sums, of 64 x 64 eight for sixteen."""
    assert best_tile(512, 768, 1, "plain", 4, (128, 64), cuda_schedule()) == (64, 64)
    assert best_tile(8192, 8192, 1, "plain", 4, (128, 64), cuda_schedule()) == (128, 64)


@pytest.mark.parametrize(("most_rows", "tile"), [(128, (128, 64)), (64, (64, 128)), (16, (16, 128))])
def test_tiles_are_wider_where_shared_memory_has_space_for_few_rows(most_rows, tile):
    """128 blocks of a product of 1,024 x 1,024: what precedes it is done anew for each tile of columns."""
    chosen = best_tile(1024, 1024, 1, "matrix", 2, (128, 64), cuda_schedule(), most_rows)
    assert chosen == tile


def test_a_tile_that_was_asked_for_is_cut_to_the_rows_that_there_is_space_for():
    assert best_tile(1024, 1024, 1, "matrix", 2, (128, 64), cuda_schedule(tile="128x64"), 32) == (32, 64)


@pytest.mark.parametrize(("tile", "stages"), [("16x64", 3), ("32x64", 3), ("64x64", 2), ("128x64", 2)])
def test_small_tiles_of_f32_are_asked_for_further_ahead(tile: str, stages: int) -> None:
    args = np.zeros((128, 256), np.float32), np.zeros((256, 256), np.float32)
    source = whole(plain, *args, schedule=cuda_schedule(tile=tile)).source
    assert f"fill({stages - 2}, " in source
    assert f"fill({stages - 1}, " not in source
