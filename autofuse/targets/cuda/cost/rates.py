"""At which rates a GPU works: of its data sheet, or measured on the device."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.gpus import Gpu

SHEET = "data sheet"
LAUNCH_US = 2.0
"""From one kernel of a stream to the next. A kernel alone takes 3.66 us for its start on an H200, one more in a call
some 0.9: ten programs of 2 to 36 kernels took 2.1 to 3.3 us less for each than these took alone."""
_ALONE_US = 3.66
"""For the start of a kernel alone: that measurement."""
_MATRIX_SHARE = {"sm_90": 0.5}
"""Of the matrix units' peak, what generated products are taken to reach; others 0.65. Measured on an H200."""
_PLAIN_SHARE = {"sm_90": 0.55}
"""Of the peak of ordinary units, the same, if shared memory were free; others 0.4. With what they wait for that, a
product of 1,408 x 1,408 reaches 30 TFLOP/s of an H200 by the model; 33 were measured."""
_MEMORY_SHARE = {"H200": 0.888}
"""Of the memory's bandwidth, what is reached; others 0.92. Measured: 4.26 TB/s of 4.8."""


_L2_BYTES = {"sm_90": 28.0}
"""That a multiprocessor gets from the L2 in a cycle; others 24. Programs that wait for it got 26 to 37 of an H200."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Of the whole device, all its multiprocessors busy."""

    source: str
    """`data sheet` or `measured`."""
    launch_us: float
    """From one kernel of a stream to the next."""
    alone_us: float
    """More for a kernel with none before it, as those are that are timed by themselves."""
    latency_us: float
    """Of a load from memory, under load."""
    memory_bytes_per_s: float
    """Read and written."""
    l2_bytes_per_s: float
    issues_per_s: float
    """Instructions started, each for a warp."""
    special_per_s: float
    """Results of the units that approximate exp2, log2, reciprocals and roots."""
    product_flops: float
    """Of generated matrix products on ordinary units; a multiplication with its addition counts as two."""
    matrix_flops: float
    """The same on matrix units, of bf16 with f32 sums."""
    tf32_flops: float
    """The same of TF32."""
    step_us: float
    """A dependent step of a reduction or scan whose operand comes from a cache."""


def sheet_rates(gpu: Gpu) -> Rates:
    """Rates by the data sheet, less what programs leave of it.

    Special functions: 16 results a cycle and multiprocessor (CUDA C++ Programming Guide, "Throughput of Native
    Arithmetic Instructions"). Four instructions a cycle start on each multiprocessor (H100 architecture white paper,
    "four warp schedulers"). The latency of memory and of dependent steps: Luo et al. 2024, "Benchmarking and
    Dissecting the Nvidia Hopper GPU Architecture", arXiv 2402.13499. The rest is measured on an H200, and estimated
    for others: 92 % of the memory's bandwidth, 24 bytes a cycle and multiprocessor from the L2, 40 % of the peak for
    generated products on ordinary units, and 65 % on matrix units, or 50 % where warps that wait for a product do not
    reach the peak (Hopper: it has other instructions for that).
    """
    cycles = gpu.multiprocessors * gpu.clock_hz
    return Rates(
        source=SHEET,
        launch_us=LAUNCH_US,
        alone_us=_ALONE_US - LAUNCH_US,
        latency_us=0.7,
        memory_bytes_per_s=_MEMORY_SHARE.get(gpu.name, 0.92) * gpu.memory_bytes_per_s,
        l2_bytes_per_s=_L2_BYTES.get(gpu.arch, 24.0) * cycles,
        issues_per_s=4.0 * cycles,
        special_per_s=16.0 * cycles,
        product_flops=_PLAIN_SHARE.get(gpu.arch, 0.4) * gpu.f32_flops,
        matrix_flops=_MATRIX_SHARE.get(gpu.arch, 0.65) * gpu.matrix_flops,
        tf32_flops=_MATRIX_SHARE.get(gpu.arch, 0.65) * gpu.tf32_flops,
        step_us=30e6 / gpu.clock_hz,
    )
