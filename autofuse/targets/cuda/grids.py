"""Grids that follow the device: blocks that would leave much of it idle in their last wave take tasks in turn.

How many blocks a device holds at once depends on registers, so kernels are compiled first. Where the last wave of a
launch loses too much, the kernel is written once more: its blocks are as many as run at once, with equally much to do
(`codegen/tasks.py`). What is the same for all tasks is computed once and takes registers; the compiler may give them as
many as leave all of the blocks at work, else three quarters of them. One that would spill then too stays as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autofuse.errors import BackendError
from autofuse.lazydataclass import replace
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.together import generate_together
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import MOST_LOST, blocks_in_turn, lost, occupancy


def fitted(codes: Sequence[CudaCode], gpu: Gpu) -> list[CudaCode]:
    """The same kernels in grids for `gpu`. They are compiled beside each other, by content, as for running.

    What cannot be compiled here stays as it is: whoever loads it is told why.
    """
    if not nvrtc.is_available():
        return list(codes)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC holds no lock while it compiles
        return list(pool.map(partial(_fitted, gpu=gpu), codes))


def _fitted(code: CudaCode, gpu: Gpu) -> CudaCode:
    kernel, program = code.kernel, code.program
    small = all(launch.grid[0] <= gpu.multiprocessors for launch in kernel.launches)  # no need to compile them for that
    if small or code.library is not None or not isinstance(program, TileProgram):
        return code
    try:
        before = machine_code(kernel.source, kernel.arch, kernel.name).resources
        held = [_held_of_many(launch, before[launch.function], gpu) for launch in kernel.launches]
        for wanted in (held, [3 * number // 4 for number in held]) if any(held) else ():
            made = _written(code, program, wanted)
            now = machine_code(made.source, made.arch, made.name).resources
            if all(now[name].spill_bytes <= used.spill_bytes for name, used in before.items()):
                launches = [_sized(*both, gpu) for both in zip(made.launches, wanted, strict=True)]
                return replace(code, kernel=replace(made, launches=tuple(launches)))
    except BackendError:
        pass
    return code


def _held_of_many(launch: CudaLaunch, needed: Resources, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds of a launch that loses too much in its last wave; 0 for another."""
    held = occupancy(gpu, needed, launch.block[0], launch.shared_bytes).blocks
    return held if held and lost(launch.grid[0], held, gpu.multiprocessors) > MOST_LOST else 0


def _written(code: CudaCode, program: TileProgram, held: Sequence[int]) -> CudaKernel:
    """The kernel anew, whose blocks take tasks in turn where they can."""
    kernel = code.kernel
    if not code.copies:
        return generate(program, kernel.arch, held)
    return generate_together(kernel.name, code.copies, kernel.arch, kernel.launches[0].block[0], held)


def _sized(launch: CudaLaunch, held: int, gpu: Gpu) -> CudaLaunch:
    if not launch.tasks:
        return launch
    return replace(launch, grid=(blocks_in_turn(launch.tasks, held, gpu.multiprocessors), 1, 1))
