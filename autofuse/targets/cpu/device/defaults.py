"""Numbers for a CPU that was never calibrated: from its vector width and core count alone.

The table gives cycles per vector of a current server core at a nominal clock. It is meant to rank kernels the right
way round, within a factor of two or so; `autofuse calibrate` replaces it by measured numbers.
"""

from __future__ import annotations

from autofuse.targets.cpu.device.describe import (
    DTYPES,
    USUALLY_PACKED_PER_US,
    Calibration,
    FarStep,
    Rate,
    narrow_of,
    numbers_of_calibrations,
)

_CYCLES_PER_US = 2500.0
_WIDTH = {"f32": 32, "f64": 64}

_CYCLES_PER_VECTOR: dict[str, tuple[float, float]] = {
    # class: cycles for one vector of f32, of f64
    "add": (1.0, 1.0),
    "multiply": (1.0, 1.0),
    "compare": (1.0, 1.0),
    "convert": (1.5, 2.0),
    "integer": (1.0, 1.5),
    "divide": (10.0, 16.0),
    "sqrt": (12.0, 20.0),
    "exp": (14.0, 22.0),
    "log": (18.0, 28.0),
    "tanh": (24.0, 40.0),
    "sin": (24.0, 40.0),
    "erf": (24.0, 44.0),
    "power": (44.0, 70.0),
    "gather": (14.0, 10.0),
    "scatter": (18.0, 11.0),
}

_L1_BYTES_PER_CYCLE_PER_VECTOR_BYTE = 1.0
"""One vector loaded and one stored every two cycles."""
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_US = 14e3
_DRAM_BYTES_PER_US = 10e3
_DRAM_CHANNEL_LIMIT_BYTES_PER_US = 150e3
_BLAS_EFFICIENCY = 0.7
_UNHIDDEN = 0.1
"""As `Calibration.unhidden`. With the next two: by the probes, on an AMD EPYC 9005 with two threads."""
_HEADROOM = 2.0
_FAR_STEPS = (
    FarStep(64, 0.0, 0.0),
    FarStep(512, 0.00005, 0.0),
    FarStep(4096, 0.0009, 0.001),
    FarStep(32768, 0.002, 0.002),
)
_USUAL_L3_SHARE_BYTES = 4 << 20
"""Last-level cache per core to count on when a guest is told the size of the whole host's."""


def default_calibration(bits: int, cores: int, l3_bytes: int) -> Calibration:
    """Estimates for `cores` cores with vectors of `bits` bits and a last-level cache of `l3_bytes`."""
    l1 = _L1_BYTES_PER_CYCLE_PER_VECTOR_BYTE * (bits / 8) * _CYCLES_PER_US
    l2 = _L2_BYTES_PER_CYCLE * _CYCLES_PER_US
    elements = {
        f"{name}/{dtype}": bits / _WIDTH[dtype] / cycles[i] * _CYCLES_PER_US
        for name, cycles in _CYCLES_PER_VECTOR.items()
        for i, dtype in enumerate(DTYPES)
    }
    fma = {dtype: 2 * 2 * (bits / _WIDTH[dtype]) * _CYCLES_PER_US for dtype in DTYPES}
    return Calibration(
        source="defaults",
        unmeasured=numbers_of_calibrations(),
        l1_bytes_per_us=Rate(l1, l1 * cores),
        l2_bytes_per_us=Rate(min(l1, l2), min(l1, l2) * cores),
        l3_bytes_per_us=Rate(_L3_BYTES_PER_US, _L3_BYTES_PER_US * cores),
        dram_bytes_per_us=Rate(
            _DRAM_BYTES_PER_US, min(_DRAM_BYTES_PER_US * cores, max(_DRAM_CHANNEL_LIMIT_BYTES_PER_US, cores * 3e3))
        ),
        effective_l3_bytes=min(l3_bytes, _USUAL_L3_SHARE_BYTES * cores),
        effective_l3_all_bytes=min(l3_bytes, _USUAL_L3_SHARE_BYTES * cores),
        fork_join_us=0.0 if cores == 1 else 1.5 + 0.1 * cores,
        far_steps=_FAR_STEPS,
        unhidden=_UNHIDDEN,
        headroom=_HEADROOM,
        fma_flops_per_us=fma,
        elements_per_us=elements,
        narrow_elements_per_us=narrow_of(elements),
        narrow_l1_bytes_per_us=l1 / 2,
        blas_gflops={
            dtype: Rate(fma[dtype] * _BLAS_EFFICIENCY / 1e3, fma[dtype] * _BLAS_EFFICIENCY * cores / 1e3)
            for dtype in DTYPES
        },
        packed_elements_per_us=USUALLY_PACKED_PER_US,
    )
