"""Prices of what the generator makes: tiles of products, few blocks, clusters, what a block reads once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import SPLIT, Schedule
from autofuse.lower.tile import Dot, TileProgram
from autofuse.targets.cuda.cost.counts import counted
from autofuse.targets.cuda.cost.launches import LaunchCounts
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import sheet_rates
from autofuse.targets.cuda.cost.terms import Terms
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.gpus import A100, ALL, H200, L4, RTX_4090, Gpu
from autofuse.targets.registry import backend_named
from autofuse.testing.fusions import whole_kernel

BF16, F32, F64 = ml_dtypes.bfloat16, np.float32, np.float64


def zeros(*shape: int, dtype: Any = F32) -> Any:
    return np.zeros(shape, dtype)


def whole(fn: Callable[..., Any], *args: Any, schedule: Schedule = Schedule()) -> TileProgram:  # noqa: B008
    """A function as one kernel, of which no loop is cut unless the schedule says so."""
    limits = backend_named("cuda").target(device="h200").limits
    program = lower(
        whole_kernel(af.trace(fn, *args)), schedule.deciding({SPLIT: schedule[SPLIT] or 1}), "kernel", limits
    )
    assert isinstance(program, TileProgram)
    return program


def product(rows: int, depth: int, columns: int, dtype: Any = F32, **decisions: Any) -> TileProgram:
    args = zeros(rows, depth, dtype=dtype), zeros(depth, columns, dtype=dtype)
    return whole(lambda a, b: a @ b, *args, schedule=cuda_schedule(**decisions))


def terms(program: TileProgram, gpu: Gpu = H200) -> Terms:
    (found,) = GpuModel(gpu).launches(KernelFacts(program))
    return found


def counts(program: TileProgram, arch: str = "sm_90") -> LaunchCounts:
    (found,) = counted(program, arch).launches
    return found


@pytest.mark.parametrize(("dtype", "rate"), [(F32, "product_flops"), (BF16, "matrix_flops")])
def test_a_large_product_takes_what_its_flops_take_on_the_units_that_do_it(dtype: Any, rate: str) -> None:
    n = 8192  # 4,096 tiles of 128 x 128: the last ones weigh little
    found = terms(product(n, n, n, dtype, tile="128x128" if dtype is BF16 else "128x64"))
    multiplied = 2e6 * n**3 / getattr(sheet_rates(H200), rate)
    # ordinary units wait for shared memory: 96 clocks a step, a quarter of which is not hidden behind 116
    waited = 0.25 * 96 / 116 if dtype is F32 else 0.0
    assert found.product == pytest.approx(multiplied * (1 + waited), rel=0.05)
    assert found.product > 0.7 * max(found.memory, found.l2, found.shared, found.issue, found.serial)


def test_tiles_of_128_of_16_bits_ask_the_l2_for_as_much_as_it_gives() -> None:
    """64 operations for a byte: 495 TFLOP/s would need 7.7 TB/s of an L2 that is taken to give 7.3."""
    found = terms(product(8192, 8192, 8192, BF16, tile="128x128"))
    assert found.l2 == pytest.approx(2 * 8192**2 * 2 * 64 / sheet_rates(H200).l2_bytes_per_s * 1e6)
    assert 1.0 < found.l2 / found.product < 1.1


def test_products_of_nothing_have_prices() -> None:
    for rows, depth, columns in ((64, 0, 64), (64, 64, 0), (0, 64, 64)):
        found = GpuModel(H200).price([KernelFacts(product(rows, depth, columns))])
        assert np.isfinite(found.us).all()


def test_devices_with_few_units_for_f64_multiply_it_slowly() -> None:
    plain, exact = product(2048, 2048, 2048), product(2048, 2048, 2048, F64)
    assert terms(exact, RTX_4090).product > 30 * terms(plain, RTX_4090).product
    assert terms(exact, L4).product > 30 * terms(plain, L4).product
    assert terms(exact, H200).product < 4 * terms(plain, H200).product


def test_tiles_are_done_whole() -> None:
    """65 rows take two tiles of 64, as 128 do."""
    (odd,), (even,) = (counts(product(rows, 512, 512, tile="64x64")).products for rows in (65, 128))
    assert odd.flops == even.flops == 2.0 * 128 * 512 * 512


def test_each_operand_is_asked_for_once_a_tile_of_the_other() -> None:
    (found,) = counts(product(512, 256, 1024, BF16, tile="128x128")).products
    left, right = 512 * 256 * 2, 256 * 1024 * 2
    assert found.requested_bytes == left * 1024 / 128 + right * 512 / 128
    assert (found.row_tiles, found.column_tiles, found.rounds, found.stages) == (4, 8, 256 / 32, 3)


def test_fragments_are_counted_by_hand() -> None:
    """128 x 128 of bf16 by 4 x 2 warps of 32 x 64: six loads of 512 bytes in each 16 of the depth, and tiles go in."""
    (found,) = counts(product(128, 32, 128, BF16, tile="128x128")).products
    read, stored = 2 * 8 * 6 * 4, (128 + 128) * 32 * 2 / 128
    assert found.wavefronts == read + stored


def test_small_tiles_are_bound_by_shared_memory_and_waits_and_not_by_multiplying() -> None:
    """16 x 64 of f32: a thread has four sums, for which it loads five elements."""
    found = terms(product(2112, 4096, 64, tile="16x64"))  # a block for each multiprocessor
    assert max(found.shared, found.serial) > found.product
    large = terms(product(128 * 132, 4096, 64, tile="128x64"))
    assert large.product > max(large.shared, large.serial)


def test_a_load_of_16_bytes_takes_four_wavefronts_whatever_lanes_share() -> None:
    """16 x 64 of f32: a warp has one load of the left tile in four steps, and one of the right one in each."""
    (found,) = counts(product(16, 32, 64, tile="16x64")).products
    assert found.wavefronts == 8 * (4 / 4 + 4) * 32 + (16 + 64) * 32 * 4 / 128


def test_a_grid_that_leaves_multiprocessors_idle_takes_as_long_as_one_that_fills_them() -> None:
    few, many = terms(product(8 * 64, 1024, 64, tile="64x64")), terms(product(132 * 64, 1024, 64, tile="64x64"))
    assert few.product == pytest.approx(many.product)
    assert few.serial == many.serial


def test_a_last_wave_of_products_costs_a_whole_one() -> None:
    two_waves, more = (terms(product(blocks * 64, 1024, 64, tile="64x64")) for blocks in (264, 265))
    assert more.product == pytest.approx(1.5 * two_waves.product)


def test_a_block_alone_on_its_multiprocessor_takes_longer() -> None:
    alone, beside = (terms(product(blocks * 64, 1024, 64, tile="64x64")) for blocks in (132, 264))
    for term in ("product", "shared"):
        assert 2 * getattr(alone, term) == pytest.approx(1.2 * getattr(beside, term), rel=0.05)


@pytest.mark.parametrize(
    ("left", "right", "read"),
    [
        ((8, 64, 96), (8, 96, 32), 8 * (64 * 96 + 96 * 32)),
        ((8, 64, 96), (96, 32), 8 * 64 * 96 + 96 * 32),
        ((64, 96), (8, 96, 32), 64 * 96 + 8 * 96 * 32),
        ((65, 96), (96, 32), 65 * 96 + 96 * 32),
        ((6, 200, 96), (6, 96, 200), 2 * 6 * 200 * 96),
    ],
)
def test_memory_gives_each_matrix_of_a_batch_once(left: Any, right: Any, read: int) -> None:
    """And no more of what all products share, in however many tiles they are made."""
    program = whole(np.matmul, zeros(*left), zeros(*right))
    (phase,) = counted(program, "sm_90").features.phases
    written = int(np.prod(np.matmul(zeros(*left), zeros(*right)).shape))
    assert phase.reuse.traffic(0) == (4 * read, 4 * written)


def test_a_part_of_an_operand_is_read_and_no_more() -> None:
    program = whole(lambda a, b: a[:, :32] @ b, zeros(64, 96), zeros(32, 48))
    (phase,) = counted(program, "sm_90").features.phases
    assert phase.reuse.traffic(0)[0] == 4 * (64 * 32 + 32 * 48)


def test_a_right_operand_that_the_l2_does_not_hold_is_read_by_every_wave() -> None:
    small, large = (product(16384, 8192, columns, BF16, tile="128x128") for columns in (1024, 16384))
    model = GpuModel(A100)  # 40 MiB of L2; the right operands are 16 and 256 MiB
    (few,), (many,) = (model.launches(KernelFacts(program)) for program in (small, large))
    once = (16384 * 8192 + 8192 * 16384 + 16384 * 16384) * 2 / sheet_rates(A100).memory_bytes_per_s * 1e6
    assert many.memory > 5 * once
    assert few.memory < 2 * once


def test_what_comes_before_a_product_is_paid_for_by_every_tile_of_columns() -> None:
    def scaled(x: Any, w: Any) -> Any:
        return np.exp(x) @ w

    one, four = (whole(scaled, zeros(64, 768), zeros(768, columns)) for columns in (64, 256))
    assert counts(four).blocks == 4 * counts(one).blocks
    work = [
        sum(n for phase in counted(p, "sm_90").features.phases for s in phase.stages for n in s.operations.values())
        for p in (one, four)
    ]
    assert work[1] == 4 * work[0]


def test_what_a_block_reads_once_is_asked_for_once() -> None:
    """Scales and shifts of a normalisation, by 16 rows of a block instead of each."""

    def norm(x: Any, scale: Any) -> Any:
        return x / x.sum(1, keepdims=True) * scale

    program = whole(norm, zeros(1 << 16, 256), zeros(256))
    (phase,) = counted(program, "sm_90").features.phases
    asked = sum(stage.accesses.vector_bytes for stage in phase.stages)
    moved = 2 * (1 << 16) * 256 * 4
    assert moved < asked < 1.05 * moved


def test_neighbours_in_a_row_are_asked_for_once_and_those_in_other_rows_each_time() -> None:
    """Blocks have many neighbours of a row, which the first-level cache keeps, and no others."""
    n = 4096

    def asked(fn: Callable[..., Any]) -> float:
        (phase,) = counted(whole(fn, zeros(n, n)), "sm_90").features.phases
        return sum(stage.accesses.vector_bytes for stage in phase.stages) / (4 * n * n)

    assert asked(lambda x: x[:, :-2] + x[:, 1:-1] + x[:, 2:]) == pytest.approx(2.0, rel=0.02)
    assert asked(lambda x: x[:-2] + x[1:-1] + x[2:]) == pytest.approx(4.0, rel=0.02)


def test_clusters_leave_multiprocessors_out_that_do_not_make_up_one() -> None:
    def normed(x: Any) -> Any:
        return x - x.sum(1, keepdims=True)

    program = whole(normed, zeros(1 << 11, 1 << 17), schedule=cuda_schedule(cluster=8))
    assert counts(program).cluster == 8
    found = terms(program)
    held = found.flight_bytes / counts(program).threads / counts(program).flight_bytes
    assert found.waves == pytest.approx(counts(program).blocks / (round(held) * 128))  # of 132


def attended(e: Any, v: Any, w: Any, x: Any) -> Any:
    """The end of BERT's attention: heads are merged, multiplied, added to what there was, and normalised."""
    rows = e.shape[1]
    y = (e @ v).transpose(1, 0, 2).reshape(rows, -1) @ w + x
    y = y - y.mean(1, keepdims=True)
    return y / np.sqrt((y * y).mean(1, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *(("h100", BF16), ("a100", F32)),
        *(pytest.param(d, t, marks=pytest.mark.slow) for d in ALL for t in (F32, BF16)),
    ],
)
def test_a_normalisation_is_not_joined_to_a_product_whose_blocks_it_would_make_few(device: str, dtype: Any) -> None:
    """128 rows of 768: whole rows are eight blocks; tiles of rows and columns are ten times as many."""
    args = (zeros(12, 128, 128), zeros(12, 128, 64), zeros(768, 768), zeros(128, 768))
    plan = af.compile(attended, *(a.astype(dtype) for a in args), backend="cuda", device=device, deadline=None)
    gpu = plan.target.device
    for kernel in plan.lowered:
        for launch in counted(kernel.program, gpu.arch).launches:
            assert not launch.products or launch.blocks >= 48
    assert len(plan.kernels) <= 4


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(0, 2, 1)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return (power / power.sum(-1, keepdims=True)) @ v


def heads(dtype: Any, **decisions: Any) -> TileProgram:
    args = (zeros(16, 2048, 128, dtype=dtype),) * 3
    return whole(attention, *args, schedule=cuda_schedule(**decisions))


@pytest.mark.parametrize(("dtype", "units"), [(F32, "plain"), (np.float16, "matrix")])
def test_a_sweep_is_priced_by_what_passes_through_its_tiles(dtype: Any, units: str) -> None:
    rows, keys, width, itemsize = 64, 2048, 128, np.dtype(dtype).itemsize
    found = counts(heads(dtype, online=f"{rows}x32"))
    scores, values = found.products
    assert (found.blocks, scores.units, values.units) == (512, units, units)
    assert scores.flops == values.flops == 2 * 512 * rows * keys * width
    assert scores.requested_bytes == 512 * (rows + keys) * width * itemsize  # queries once
    assert values.requested_bytes == 512 * keys * width * itemsize
    assert found.copied_bytes * found.threads == 32 * width * itemsize


def test_a_sweep_of_tf32_has_its_fragments_rounded() -> None:
    """128 rows by 64 keys: a fragment of 512 bytes is rounded by 16 instructions, and multiplied by two."""
    program = heads(F32, online="128x64")
    (phase,) = program.phases()
    steps = tuple(replace(step, fast=True) if isinstance(step, Dot) else step for step in phase.steps)
    fast = replace(program, launches=((replace(phase, steps=steps),),))
    scores, values = counts(fast).products
    assert scores.is_tf32
    assert values.is_tf32
    tiles, depth, read = 256 * 32, 128 / 8, 8 * 64 / 16  # fragments of keys for 8 warps
    brought_in = scores.requested_bytes / 16 * 3 / 32
    assert scores.slots - brought_in == pytest.approx(tiles * depth * ((read + 8) * (1.2 + 16) + read * 2))
    assert values.flops == scores.flops


@pytest.mark.parametrize("dtype", [F32, np.float16])
def test_a_sweep_of_many_keys_is_worth_it(dtype: Any) -> None:
    swept, whole_rows = terms(heads(dtype)), terms(heads(dtype, online="off"))
    assert swept.us < 0.7 * whole_rows.us
