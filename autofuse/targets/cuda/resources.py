"""What the launches of a kernel need of a multiprocessor, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autofuse.errors import BackendError
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import occupancy


def launch_lines(kernels: Sequence[CudaKernel], gpu: Gpu) -> list[tuple[str, ...]]:
    """For each kernel a line for each launch: grid, block, registers, occupancy and what limits it.

    Without NVRTC the compiler's figures are missing, and the line says so.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC holds no lock while it compiles
        return list(pool.map(partial(_lines, gpu=gpu), kernels))


def _lines(kernel: CudaKernel, gpu: Gpu) -> tuple[str, ...]:
    if not nvrtc.is_available():
        return tuple(f"{_shape(launch)}; registers unknown: NVRTC is not installed" for launch in kernel.launches)
    try:
        resources = machine_code(kernel.source, kernel.arch, kernel.name).resources
    except BackendError as error:
        return (f"NVRTC refuses it: {str(error).splitlines()[0]}",)
    return tuple(f"{_shape(launch)}; {_use(launch, resources[launch.function], gpu)}" for launch in kernel.launches)


def _shape(launch: CudaLaunch) -> str:
    blocks, threads = launch.grid[0], launch.block[0]
    return f"{blocks} block{'s' * (blocks != 1)} of {threads} threads"


def _use(launch: CudaLaunch, used: Resources, gpu: Gpu) -> str:
    found = occupancy(gpu, used, launch.block[0], launch.shared_bytes)
    shared = launch.shared_bytes + used.shared_bytes
    parts = [f"{used.registers} registers a thread"]
    if shared:
        parts.append(f"{shared} bytes of shared memory a block")
    if used.spill_bytes:
        parts.append(f"{used.spill_bytes} bytes spilled a thread")
    parts.append(f"{found.fraction:.0%} occupancy, limited by {found.limit}")
    return ", ".join(parts)
