"""Grids that follow the device: which launches have blocks take tasks in turn, how many, and what they compute then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.ir import dtypes
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda import grids, nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.codegen.together import Copies, generate_together
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import H200, Gpu
from autofuse.targets.cuda.grids import fitted
from autofuse.targets.cuda.occupancy import MOST_LOST, blocks_in_turn, lost
from autofuse.targets.cuda.passes.prepare import CudaPasses
from autofuse.targets.cuda.resources import launch_lines
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget
from tests.fixtures import handbuilt

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")


# ---- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [1, 2, 5, 6, 8, 16])
@pytest.mark.parametrize("multiprocessors", [58, 108, 132])
def test_all_blocks_run_at_once_and_do_equally_much(held: int, multiprocessors: int) -> None:
    most = held * multiprocessors
    for tasks in range(most + 1, 9 * most, 37):
        blocks = blocks_in_turn(tasks, held, multiprocessors)
        rounds = -(-tasks // blocks)
        assert most // 2 * 0.8 < blocks <= most
        assert tasks / (blocks * rounds) > 0.98  # up to one task each
        assert lost(blocks, held, multiprocessors) == 0.0


def test_the_last_wave_is_what_is_left_after_full_ones() -> None:
    assert lost(100, 1, 132) == 0.0  # one wave loses none
    assert lost(132, 1, 132) == 0.0
    assert lost(133, 1, 132) == pytest.approx(131 / 264)
    assert lost(977, 5, 132) > MOST_LOST > lost(1320, 5, 132)


# ---- which ones ------------------------------------------------------------------------------------------------------


def code_of(program: TileProgram) -> CudaCode:
    return CudaCode(program, generate(program, "sm_90"))


def grid_of(program: TileProgram, gpu: Gpu) -> tuple[int, int]:
    """Blocks and tasks of the first launch."""
    launch = fitted([CudaCode(program, generate(program, gpu.arch))], gpu)[0].kernel.launches[0]
    return launch.grid[0], launch.tasks


@needs_nvrtc
def test_blocks_take_tasks_in_turn_where_the_last_wave_would_be_idle_and_only_there() -> None:
    add = handbuilt.binary("add", "add", 1_500_000)
    blocks = generate(add, "sm_90").launches[0].grid[0]
    assert 1056 < blocks < 1.5 * 1056
    found, tasks = grid_of(add, H200)
    assert (tasks, found < blocks) == (blocks, True)
    many = handbuilt.binary("many", "add", 200_000_000)
    assert grid_of(many, H200) == (generate(many, "sm_90").launches[0].grid[0], 0)
    few = handbuilt.binary("few", "add", 100_000)
    assert fitted([code_of(few)], H200) == [code_of(few)]


@needs_nvrtc
def test_the_grid_is_the_devices() -> None:
    add = handbuilt.binary("add", "add", 1_500_000)
    assert grid_of(add, H200) != grid_of(add, replace(H200, multiprocessors=90))


@needs_nvrtc
def test_products_clusters_and_library_calls_stay_as_they_are() -> None:
    product, cluster = handbuilt.matmul("product", 4096, 64, 700), handbuilt.softmax("softmax", 150, 60_000)
    for program in (product, cluster):
        (code,) = fitted([code_of(program)], H200)
        assert [launch.tasks for launch in code.kernel.launches] == [0]
    library: Any = object()
    called = replace(code_of(handbuilt.binary("add", "add", 1_500_000)), library=library)
    assert fitted([called], H200) == [called]


@needs_nvrtc
@pytest.mark.parametrize(("rows", "bounds"), [(1024, "128, 5"), (1400, "128, 5")])
def test_rows_that_would_spill_have_fewer_blocks_at_work(rows: int, bounds: str) -> None:
    """Seven are held if each has a row of its own; with what is the same for all rows kept, five."""
    program = CudaPasses("sm_90")(handbuilt.layer_norm("layer_norm", rows, 6000))
    (code,) = fitted([code_of(program)], H200)
    (launch,) = code.kernel.launches
    assert f"__launch_bounds__({bounds})" in code.kernel.source
    assert (launch.tasks, launch.grid[0] <= 5 * 132) == (rows, True)
    assert nvrtc.compile_source(code.kernel.source, "sm_90").resources["layer_norm"].spill_bytes == 0


@needs_nvrtc
def test_a_kernel_that_would_spill_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    add, real = handbuilt.binary("add", "add", 1_500_000), grids.machine_code

    def spilling(source: str, arch: str, name: str) -> nvrtc.Compiled:
        made = real(source, arch, name)
        found = {f: replace(r, spill_bytes=8) if "gridDim" in source else r for f, r in made.resources.items()}
        return replace(made, resources=found)

    monkeypatch.setattr(grids, "machine_code", spilling)
    assert fitted([code_of(add)], H200) == [code_of(add)]


def test_without_a_compiler_each_block_has_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    code = code_of(handbuilt.binary("add", "add", 1_500_000))
    assert fitted([code], H200) == [code]


# ---- what they compute -----------------------------------------------------------------------------------------------


def transposed() -> TileProgram:
    """A kernel that goes through tiles."""
    plan = af.compile(lambda x: x.T + 1, np.zeros((200, 130), np.float32), backend="cuda", device="h200", deadline=None)
    (kernel,) = plan.lowered
    assert isinstance(kernel.program, TileProgram)
    assert "_tile" in generate(kernel.program, "sm_90").source
    return replace(kernel.program, name="transposed")


PROGRAMS = (
    handbuilt.binary("add_odd", "add", 70_001),
    handbuilt.row_reduce("sum_tiny", "add", 300, 3),
    handbuilt.row_reduce("sum_warp", "add", 50, 100),
    handbuilt.row_reduce("sum_block", "maximum", 9, 4096),
    handbuilt.softmax("softmax_warp", 70, 33),
    handbuilt.softmax("softmax_block", 9, 4096),
    handbuilt.softmax("softmax_shared", 7, 12_000),
    handbuilt.mirrored("mirrored_block", 7, 1500),
    handbuilt.column_sum("column_sum", 100, 650),
    handbuilt.column_arg("argmax_columns", "argmax", 90, 400),
    handbuilt.gathered("gathered", 11, 240, 40),
    handbuilt.running("cumsum_wide", "add", 7, 600, dtypes.F32, along_rows=True),
    handbuilt.split_sum("split_sum", 32_768, 16),
    transposed(),
)


def of_few_blocks(kernel: CudaKernel, blocks: int) -> CudaKernel:
    launches = [
        replace(launch, grid=(min(launch.tasks, blocks), 1, 1)) if launch.tasks else launch
        for launch in kernel.launches
    ]
    return replace(kernel, launches=tuple(launches))


def arrays_of(kernel: CudaKernel) -> dict[str, NDArray[Any]]:
    """Inputs with NaN and infinities, poisoned outputs."""
    rng = np.random.default_rng(5)
    found: dict[str, NDArray[Any]] = {}
    for b in kernel.parameters:
        dtype, shape = b.type.dtype, b.type.shape
        if b.space is Space.INPUT and dtype.is_float:
            found[b.name] = rng.standard_normal(shape).astype(dtype.numpy)
            found[b.name].reshape(-1)[[3, -2]] = np.nan, np.inf
        elif b.space is Space.INPUT:
            found[b.name] = rng.integers(0, 10, shape).astype(dtype.numpy)
        elif b.space is Space.OUTPUT:
            found[b.name] = np.frombuffer(b"\xab" * b.type.nbytes, dtype.numpy).reshape(shape).copy()
    return found


@pytest.fixture(scope="module")
def written() -> tuple[SimtModule, list[tuple[CudaKernel, list[CudaKernel]]]]:
    pairs: list[tuple[CudaKernel, list[CudaKernel]]] = []
    for program in map(CudaPasses("sm_90"), PROGRAMS):
        turned = generate(replace(program, name=f"turned_{program.name}"), "sm_90", [4] * len(program.launches))
        assert any(launch.tasks > 2 for launch in turned.launches), program.name
        pairs.append((generate(program, "sm_90"), [of_few_blocks(turned, blocks) for blocks in (1, 2, 3)]))
    kernels = [kernel for plain, turned in pairs for kernel in (plain, turned[0])]
    return SimtModule(kernels, races=True), pairs


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=[program.name for program in PROGRAMS])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_few_blocks_compute_the_same_bits_without_a_race(written: Any, number: int, order: Any) -> None:
    module, pairs = written
    plain, turned = pairs[number]
    right = arrays_of(plain)
    module.run(plain, right)
    for kernel in turned:
        found = arrays_of(kernel)
        module._kernels = [kernel if k.source == kernel.source else k for k in module._kernels]
        module.run(kernel, found, order=order)
        for name, array in found.items():
            assert array.tobytes() == right[name].tobytes(), (name, kernel.launches)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_joined_kernels_take_tasks_in_turn(order: Any) -> None:
    copies = [Copies(program, 2) for program in PROGRAMS[:6]]
    plain = generate_together("all", copies, "sm_90", 256)
    turned = of_few_blocks(generate_together("turned", copies, "sm_90", 256, [4]), 3)
    assert (turned.launches[0].tasks, turned.launches[0].grid[0]) == (plain.launches[0].grid[0], 3)
    module, right, found = SimtModule([plain, turned], races=True), arrays_of(plain), arrays_of(turned)
    module.run(plain, right)
    module.run(turned, found, order=order)
    assert all(found[name].tobytes() == array.tobytes() for name, array in right.items())


def test_joined_kernels_with_products_do_not() -> None:
    copies = [Copies(PROGRAMS[0], 2), Copies(handbuilt.matmul("product", 70, 33, 130), 2)]
    (launch,) = generate_together("all", copies, "sm_90", 256, [4]).launches
    assert launch.tasks == 0


@needs_nvrtc
def test_a_plan_for_a_small_device_takes_tasks_in_turn_and_says_so() -> None:
    small = replace(H200, multiprocessors=1)
    target = SimulatedTarget(small, SimulatedDriver(small, order="reverse"), "simulated")
    x = np.random.default_rng(0).standard_normal((12, 3000)).astype(np.float32)

    def centred(x: Any) -> Any:
        return x - x.mean(axis=1, keepdims=True)

    plan = af.compile(centred, x, backend="simulated")
    executable = target.executable(plan.document)
    launches = [launch for start in executable.starts for launch in start.code.kernel.launches]  # pyright: ignore
    assert any(launch.grid[0] < launch.tasks for launch in launches)
    codes = [start.code for start in executable.starts if start.code is not None]
    lines = " ".join(line for lines in launch_lines(codes, small, GpuModel(small)) for line in lines)
    assert "blocks' work in turn" in lines
    (found,) = executable.run((x,))
    np.testing.assert_allclose(found, centred(x), rtol=1e-5, atol=1e-5)
