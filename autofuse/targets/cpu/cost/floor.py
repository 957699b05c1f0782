"""A bound below every measurement of a kernel: what no code for it could beat on this device."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.cost_models.features import KernelFeatures
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.device.describe import CpuDescription, Rate

LAUNCH_FLOOR_US = 0.01
"""A call of a compiled function."""

_CYCLES_PER_US = 6500.0
"""Faster than any core is clocked."""
_L1_VECTORS, _FLOP_VECTORS = 4.0, 6.0
"""Most vectors that a core loads and stores in a cycle, and most operations on vectors of floats: two multiply-adds and
two additions."""
_L2_BYTES_PER_CYCLE, _L3_BYTES_PER_CYCLE = 128.0, 64.0
"""A line in and a line out, and one of the two."""
_DRAM_BYTES_PER_US, _DRAM_CHANNELS_BYTES_PER_US = 160e3, 1.7e6
"""More than the misses that a core may have at a time bring (64 of 64 bytes, each 25 ns after it is asked for), and
than two sockets with twelve channels of DDR5-8800 each have."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Rates of all threads together that nothing exceeds."""

    l1_bytes_per_us: float
    l2_bytes_per_us: float
    l3_bytes_per_us: float
    dram_bytes_per_us: float
    flops_per_us: Mapping[str, float]
    """By dtype."""


def headroom_of(description: CpuDescription) -> float | None:
    """How many times as fast as its calibrated rates the device is taken to be; None where they were not measured."""
    return description.calibration.headroom if description.calibration.source == "measured" else None


def peaks_of(description: CpuDescription) -> Peaks:
    """Measured rates with the headroom of the calibration; what no core exceeds, where a rate was not measured."""
    numbers, threads = description.calibration, description.threads
    vector = description.vector_bits / 8
    bounds = {
        "l1_bytes_per_us": _L1_VECTORS * vector * _CYCLES_PER_US * threads,
        "l2_bytes_per_us": _L2_BYTES_PER_CYCLE * _CYCLES_PER_US * threads,
        "l3_bytes_per_us": _L3_BYTES_PER_CYCLE * _CYCLES_PER_US * threads,
        "dram_bytes_per_us": min(_DRAM_BYTES_PER_US * threads, _DRAM_CHANNELS_BYTES_PER_US),
    }
    rates: dict[str, Rate] = {
        "l1_bytes_per_us": numbers.l1_bytes_per_us,
        "l2_bytes_per_us": numbers.l2_bytes_per_us,
        "l3_bytes_per_us": numbers.l3_bytes_per_us,
        "dram_bytes_per_us": numbers.dram_bytes_per_us,
    }
    found = {n: bound if n in numbers.unmeasured else numbers.headroom * rates[n].all for n, bound in bounds.items()}
    flops = {
        dtype: _FLOP_VECTORS * vector / (int(dtype[1:]) / 8) * _CYCLES_PER_US * threads
        if "fma_flops_per_us" in numbers.unmeasured
        else numbers.headroom * threads * one
        for dtype, one in numbers.fma_flops_per_us.items()
    }
    return Peaks(**found, flops_per_us=flops)


def floor_us(kernel: KernelFeatures, description: CpuDescription) -> float:
    """Bytes that must move at the best rates of the caches that can hold them, and flops at the peak.

    Accesses under masks and at run-time positions, and arithmetic beside them, count as (almost) nothing.
    """
    peaks = peaks_of(description)
    nbytes = sum(b.floor_read_bytes + b.floor_written_bytes for b in kernel.buffers)
    flops: dict[str, float] = {}
    for phase in kernel.phases:
        for stage in phase.stages:
            flops["f32"] = flops.get("f32", 0.0) + stage.flops
        for dot in phase.dots:
            if dot.dtype in peaks.flops_per_us:
                flops[dot.dtype] = flops.get(dot.dtype, 0.0) + dot.flops
    computing = sum(count / peaks.flops_per_us[dtype] for dtype, count in flops.items())
    return max(LAUNCH_FLOOR_US * max(kernel.launches, 1), _moving_us(nbytes, peaks, description), computing)


def _moving_us(nbytes: int, peaks: Peaks, description: CpuDescription) -> float:
    """What does not fit a cache comes from beyond it, at the best rate of any level there."""
    threads = description.threads
    l2 = max(peaks.l2_bytes_per_us, peaks.l3_bytes_per_us, peaks.dram_bytes_per_us)
    l3 = max(peaks.l3_bytes_per_us, peaks.dram_bytes_per_us)
    first, second = description.l1d_bytes * threads, description.l2_bytes * threads
    numbers = description.calibration
    # processors may have several caches of the last level, and threads run on any of them
    last = max(description.l3_bytes * threads, numbers.effective_l3_bytes, numbers.effective_l3_all_bytes) + second
    return max(
        nbytes / max(peaks.l1_bytes_per_us, l2),
        (nbytes - first) / l2,
        (nbytes - second) / l3,
        (nbytes - last) / peaks.dram_bytes_per_us,
    )
