"""A bound below every measurement of a kernel: what no code for it could beat on this device."""

from __future__ import annotations

from autofuse.cost_models.features import KernelFeatures
from autofuse.targets.cpu.device.describe import CpuDescription

LAUNCH_FLOOR_US = 0.01
"""A call of a compiled function."""
_HEADROOM = {"measured": 2.0, "defaults": 5.0}


def headroom_of(description: CpuDescription) -> float:
    """How far the true peak may lie above the number in the calibration.

    That was measured on a machine that does other work, by copies, which are slower than reads; or never measured.
    """
    return _HEADROOM[description.calibration.source]


def floor_us(kernel: KernelFeatures, description: CpuDescription) -> float:
    """Bytes that must move at the best bandwidth of the nearest level that can hold them, and flops at the peak.

    Accesses under masks and at run-time positions, and arithmetic beside them, count as (almost) nothing.
    """
    headroom = headroom_of(description)
    nbytes = sum(b.floor_read_bytes + b.floor_written_bytes for b in kernel.buffers)
    moving = nbytes / (headroom * _best_bytes_per_us(nbytes, description))
    flops: dict[str, float] = {}
    for phase in kernel.phases:
        for stage in phase.stages:
            flops["f32"] = flops.get("f32", 0.0) + stage.flops
        for dot in phase.dots:
            if dot.dtype in description.calibration.fma_flops_per_us:
                flops[dot.dtype] = flops.get(dot.dtype, 0.0) + dot.flops
    peak = description.calibration.fma_flops_per_us
    computing = sum(count / (headroom * description.threads * peak[dtype]) for dtype, count in flops.items())
    return max(LAUNCH_FLOOR_US * max(kernel.launches, 1), moving, computing)


def _best_bytes_per_us(nbytes: int, description: CpuDescription) -> float:
    numbers, threads = description.calibration, description.threads
    if nbytes <= description.l1d_bytes * threads:
        return numbers.l1_bytes_per_us.all
    if nbytes <= description.l2_bytes * threads:
        return max(numbers.l2_bytes_per_us.all, numbers.l3_bytes_per_us.all)
    if nbytes <= max(description.l3_bytes, numbers.effective_l3_bytes):
        return max(numbers.l3_bytes_per_us.all, numbers.dram_bytes_per_us.all)
    return numbers.dram_bytes_per_us.all
