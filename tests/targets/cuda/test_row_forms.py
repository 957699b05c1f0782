"""How many threads and blocks share a row, and that all ways of sharing give the reference's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.ir.dtypes import F16, F32, F64, I32
from autofuse.lazydataclass import replace
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaLaunch, generate, rowgroups
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.passes.prepare import CudaPasses
from autofuse.testing.simt import run_simt
from autofuse.testing.simt.counters import count
from tests.fixtures import handbuilt


def launched(program: TileProgram, arch: str = "sm_90") -> CudaLaunch:
    """The only launch of a kernel, as it is after the target's passes."""
    (launch,) = generate(CudaPasses(arch)(program), arch).launches
    return launch


@pytest.mark.parametrize(
    ("columns", "threads"), [(64, 8), (128, 16), (1024, 32), (4096, 64), (8192, 128), (16384, 128), (20000, 256)]
)
def test_longer_rows_are_shared_by_more_threads(columns: int, threads: int) -> None:
    """Enough rows to fill a GPU, of which nothing is kept. A block has 128 to 256 threads."""
    rows = 1 << 17
    found = launched(handbuilt.row_reduce("sum", "add", rows, columns))
    assert 128 <= found.block[0] <= 256
    assert found.grid[0] * found.block[0] == rows * threads


def test_few_rows_are_shared_by_more_threads() -> None:
    assert launched(handbuilt.row_reduce("sum", "add", 16, 2048)).block[0] == 256


def test_a_schedule_says_how_many_threads_share_a_row() -> None:
    program = handbuilt.row_reduce("sum", "add", 4096, 2048, schedule=cuda_schedule(row_threads=128))
    assert launched(program).grid[0] == 4096


@pytest.mark.parametrize(
    ("columns", "dtype", "blocks"),
    [(32768, F32, 1), (65536, F32, 2), (131072, F32, 4), (262144, F32, 8), (400_000, F32, 16), (40_000, F16, 4)],
)
def test_long_rows_are_shared_by_a_cluster(columns: int, dtype: Any, blocks: int) -> None:
    found = launched(handbuilt.softmax("softmax", 64, columns, dtype))
    assert (found.cluster, found.grid[0]) == (blocks, 64 * blocks)


def test_other_devices_have_no_clusters() -> None:
    """What one block cannot keep is read again."""
    for columns in (65_536, 400_000):
        program = CudaPasses("sm_80")(handbuilt.row_reduce("sum", "add", 64, columns))
        assert launched(program, "sm_80").cluster == 1


def test_a_row_that_no_block_can_keep_is_refused() -> None:
    with pytest.raises(LegalityError, match="a row keeps 262"):
        launched(handbuilt.mirrored("mirrored", 4, 65_536))


PROGRAMS = [
    handbuilt.softmax("several_warps", 6, 700, schedule=cuda_schedule(row_threads=64)),
    handbuilt.softmax("odd_rows", 7, 700, schedule=cuda_schedule(row_threads=64)),
    handbuilt.softmax("kept_in_shared_memory", 2, 33_000, schedule=cuda_schedule(cluster=1, row_threads=256)),
    handbuilt.softmax("cluster", 3, 4096, schedule=cuda_schedule(cluster=4)),
    handbuilt.softmax("uneven_cluster", 2, 1003, schedule=cuda_schedule(cluster=8)),
    handbuilt.layer_norm("cluster_of_sums", 2, 1200),
    handbuilt.mirrored("read_by_others", 6, 300),
    handbuilt.row_arg("argmax_of_several_warps", "argmax", 6, 900),
    handbuilt.running("running_sum", "add", 6, 1000, I32, along_rows=True),
    handbuilt.running("running_sum_odd", "add", 5, 1003, I32, along_rows=True),
    handbuilt.running("running_sum_of_chunks", "add", 3, 4100, F64, along_rows=True),
    handbuilt.running("running_sum_back_of_chunks", "add", 3, 4100, I32, along_rows=True, reverse=True),
    handbuilt.running("running_sum_of_lanes", "add", 70, 13, I32, along_rows=True),
    handbuilt.running("running_maximum_back", "maximum", 4, 2050, F32, along_rows=True, reverse=True),
    handbuilt.running("running_minimum_back", "minimum", 70, 29, F32, along_rows=True, reverse=True),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_way_of_sharing_gives_the_references_answer(program: TileProgram) -> None:
    """In both orders of the threads, with the same bits, and no race in shared memory."""
    rng = np.random.default_rng(3)
    given = {b.name: _some(rng, b.type.shape, b.type.dtype) for b in program.parameters() if b.space is Space.INPUT}
    kernel = generate(CudaPasses("sm_90")(program), "sm_90")
    answers: list[dict[str, NDArray[Any]]] = []
    for order, races in (("forward", True), ("reverse", False)):
        made = {b.name: np.empty(b.type.shape, b.type.dtype.numpy) for b in program.parameters() if b.name not in given}
        run_simt(kernel, {**given, **made}, order=order, races=races)  # pyright: ignore[reportArgumentType]
        answers.append(made)
    for name, expected in evaluate_program(program, given).items():
        np.testing.assert_array_equal(answers[0][name], answers[1][name])
        np.testing.assert_allclose(answers[0][name], expected, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize(
    ("reverse", "turns"), [(False, ("0; each < 4", "4; each < 6")), (True, ("0; each < 2", "2; each < 6"))]
)
def test_chunks_of_running_sums_are_begun_together(reverse: bool, turns: tuple[str, str]) -> None:
    """18 chunks: four turns of four, and two alone, which come first where the row is walked back."""
    program = handbuilt.running("sums", "add", 3, 18 * 1024, F32, along_rows=True, reverse=reverse)
    source = generate(CudaPasses("sm_90")(program), "sm_90").source
    assert [loop for loop in turns if f"for (int each = {loop}; ++each)" in source] == list(turns)
    assert source.count("__syncthreads();") == len(turns)


@pytest.mark.parametrize("columns", [301, 1200])
@pytest.mark.parametrize("threads", [0, 64, 256])
def test_rows_of_a_block_share_what_they_read_alike(monkeypatch: Any, columns: int, threads: int) -> None:
    """One after the other, also where the last block has fewer: scale and shift are read once for a block."""
    monkeypatch.setattr(rowgroups, "LEAST_THREADS", 32)
    plain = handbuilt.layer_norm("layer_norm", 75, columns)
    program = replace(plain, schedule=cuda_schedule(row_threads=threads))
    rng = np.random.default_rng(0)
    given = {b.name: _some(rng, b.type.shape, F32) for b in program.parameters() if b.space is Space.INPUT}
    kernel = generate(CudaPasses("sm_90")(program), "sm_90")
    assert "for (int round = 0;" in kernel.source
    found = np.empty((75, columns), np.float32)
    run_simt(kernel, {**given, "y": found}, races=True)
    (expected,) = evaluate_program(program, given).values()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=4e-6)


def _some(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(-1000, 1000, shape).astype(dtype.numpy)


@pytest.mark.parametrize("direction", ["argmax", "argmin"])
def test_equals_and_nan_in_rows_of_several_warps(direction: str) -> None:
    """The first of equals is found, and the first NaN before all else."""
    x = np.zeros((4, 2000), np.float32)
    x[1, 700] = x[1, 1900] = 1 if direction == "argmax" else -1
    x[2, 1500] = x[2, 40] = np.nan
    x[3] = np.inf if direction == "argmax" else -np.inf
    program = handbuilt.row_arg("arg", direction, 4, 2000, F32)
    found = np.empty(4, np.int64)
    run_simt(generate(program, "sm_90"), {"x": x, "y": found})
    np.testing.assert_array_equal(found, getattr(np, direction)(x, 1))


def moving(x: Any) -> Any:
    total, squares = np.cumsum(x, 1), np.cumsum(x * x, 1)
    mean = (total[:, 8:] - total[:, :-8]) / 8
    return (squares[:, 8:] - squares[:, :-8]) / 8 - mean * mean


@pytest.mark.parametrize("shape", [(5, 61), (3, 2048), (1, 4100)])
def test_running_sums_are_read_by_neighbours(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_allclose(af.compile(moving, x, backend="simulated")(x), moving(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("combine", [np.add, np.multiply, np.maximum, np.minimum])
@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.int8, np.bool_, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (np.float64, np.int64))],
)
def test_accumulate(combine: Any, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-2, 3, (3, 333)).astype(dtype)
    x = np.where(x == 0, 1, x).astype(dtype)

    def both(x: Any) -> Any:
        return combine.accumulate(x, axis=1, dtype=x.dtype), combine.accumulate(x[:, ::-1], axis=1, dtype=x.dtype)

    with np.errstate(all="ignore"):
        found, expected = af.compile(both, x, backend="simulated")(x), both(x)
    for one, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-6)


def test_special_values_run_on() -> None:
    x = np.ones((2, 300), np.float32)
    x[0, 100], x[1, 7], x[1, 200] = np.nan, np.inf, -np.inf
    for combine in (np.add, np.maximum):
        found = af.compile(lambda x, combine=combine: combine.accumulate(x, axis=1), x, backend="simulated")(x)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(found, combine.accumulate(x, axis=1))


def test_a_running_sum_reads_its_row_once() -> None:
    plan = af.compile(moving, np.zeros((64, 2048)), backend="cuda", device="h200")
    (kernel,) = plan.lowered
    assert isinstance(kernel.program, TileProgram)
    (found,) = count(generate(kernel.program, "sm_90"), most_blocks=4)
    assert found.repeated == 1.0


def test_normalisations_ask_for_what_they_need() -> None:
    """Sixteen rows of a block read scale and shift once."""
    (found,) = count(generate(CudaPasses("sm_90")(handbuilt.layer_norm("norm", 8192, 1024)), "sm_90"), most_blocks=4)
    assert found.repeated < 1.05
    assert found.wide == 1.0


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_clusters_compile_and_nothing_spills() -> None:
    kernel = generate(CudaPasses("sm_90")(handbuilt.softmax("softmax", 64, 400_000)), "sm_90")
    (resources,) = nvrtc.compile_source(kernel.source, "sm_90", "softmax").resources.values()
    assert resources.spill_bytes == resources.stack_bytes == 0
