"""The analytical model of a GPU: what a kernel costs by counting, at the rates of a data sheet.

    kernel = launches, one after another
    launch = starting it + the longest of: memory, L2, instructions, products, chains of dependent steps

Memory is as fast as there are bytes in flight for (Little's law): few threads do not fill it. Instructions run on the
multiprocessors that have blocks. Nothing of it is calibrated yet: the constants are data-sheet values and latencies
from microbenchmarks of this generation (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture", arXiv 2402.13499), and the spread says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.cost_models.base import Bound, KernelFacts, Prices
from autofuse.cost_models.features import FEATURES_VERSION, KernelFeatures, OpaqueFeatures, PhaseFeatures, StageFeatures
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import asdict
from autofuse.targets.cuda.cost.counts import WARP, features
from autofuse.targets.cuda.gpus import Gpu

MODEL_VERSION = 2
"""Raised when prices change."""
SIGMA = 0.7
"""Deviation of log(measured / predicted): a guess, as nothing was measured."""

LAUNCH_US = 2.0
"""From one kernel of a stream to the next."""
_LATENCY_S = 0.7e-6
"""Of a load from memory, under load."""
_SHARE = 0.92
"""Of the data sheet's bandwidth that copies reach."""
_L2_BYTES_PER_CLOCK = 24
"""Of one multiprocessor."""
_ISSUES = 4
"""Instructions that a multiprocessor starts in a cycle, each for a warp."""
_OVERHEAD = 3.0
"""Instructions of a step of a loop that are neither arithmetic nor memory: addresses, tests, the loop itself."""
_CHAIN_CYCLES = 30.0
"""A dependent step of a reduction or scan whose operand comes from a cache."""
_LOAD_BYTES = 16
"""Of the widest load of one thread."""
_PRODUCT_SHARE = 0.4
"""Of the ordinary units' peak that generated products reach."""
_HOST_US, _HOST_BYTES_PER_S, _HOST_NODE_S = 30.0, 12e9, 2e-9
"""An operation of the host: waiting for the device, copies over the bus, and an element of a result."""

_ISSUE_SLOTS = {
    "add": 1.0,
    "multiply": 1.0,
    "compare": 1.0,
    "convert": 2.0,
    "integer": 1.0,
    "divide": 10.0,
    "sqrt": 8.0,
    "exp": 10.0,
    "log": 12.0,
    "tanh": 16.0,
    "sin": 20.0,
    "erf": 20.0,
    "power": 40.0,
    "gather": 1.0,
}
"""Instructions behind an operation on f32 in strict arithmetic, by class."""
_WIDE = 2.0
"""Times that, on f64 or 64-bit integers."""


class GpuModel:
    """See `autofuse.cost_models.base.CostModel`."""

    def __init__(self, device: Gpu) -> None:
        """`device`: its data sheet."""
        self._gpu = device

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        told = [features(facts.program, self._gpu.arch) for facts in kernels]
        terms = [self._terms(kernel) for kernel in told]
        us = np.array([sum(max(launch.values()) + LAUNCH_US for launch in kernel) for kernel in terms], np.float64)
        floors = np.array([self._floor_us(kernel) for kernel in told], np.float64)
        return Prices(
            np.maximum(us, floors),
            np.full(len(told), SIGMA),
            floors,
            tuple(_bound(kernel, launches) for kernel, launches in zip(told, terms, strict=True)),
        )

    def write_us(self, value: TensorType) -> float:
        return value.nbytes / (_SHARE * self._gpu.memory_bytes_per_s) * 1e6

    def describe(self) -> dict[str, Any]:
        return {
            "name": "analytical-gpu",
            "version": MODEL_VERSION,
            "feature_version": FEATURES_VERSION,
            "device": asdict(self._gpu),
        }

    def _floor_us(self, kernel: KernelFeatures) -> float:
        """Bytes that must move, at full bandwidth: the L2's, if it could hold all of them."""
        moved = sum(buffer.floor_read_bytes + buffer.floor_written_bytes for buffer in kernel.buffers)
        rate = self._l2_bytes_per_s if moved <= self._gpu.l2_bytes else self._gpu.memory_bytes_per_s
        return max(moved / rate * 1e6, 1e-3)

    @property
    def _l2_bytes_per_s(self) -> float:
        return 2.0 * _L2_BYTES_PER_CLOCK * self._gpu.multiprocessors * self._gpu.clock_hz

    def _terms(self, kernel: KernelFeatures) -> list[dict[Bound, float]]:
        """Microseconds by what limits, of each launch."""
        if kernel.opaque is not None:
            return [{"library": _host_us(kernel.opaque)}]
        return [
            self._launch([phase for phase in kernel.phases if phase.launch == number])
            for number in range(kernel.launches)
        ]

    def _launch(self, phases: Sequence[PhaseFeatures]) -> dict[Bound, float]:
        gpu = self._gpu
        stages = [stage for phase in phases for stage in phase.stages]
        blocks = sum(phase.blocks for phase in phases)
        threads = sum(phase.shares for phase in phases)
        busy = min(1.0, blocks / gpu.multiprocessors)
        moved = float(sum(sum(phase.reuse.traffic(0)) for phase in phases))
        requested = sum(stage.accesses.vector_bytes for stage in stages)
        resident = min(threads, gpu.multiprocessors * gpu.threads / 2)
        rate = min(_SHARE * gpu.memory_bytes_per_s, resident * _LOAD_BYTES / _LATENCY_S)
        memory_s = moved / rate if rate else 0.0
        cached_s = requested / (_L2_BYTES_PER_CLOCK * gpu.multiprocessors * gpu.clock_hz * max(busy, 1e-3))
        slots = sum(_slots(stage) for stage in stages)
        compute_s = slots / (_ISSUES * gpu.multiprocessors * gpu.clock_hz * max(busy, 1e-3))
        flops = sum(dot.flops for phase in phases for dot in phase.dots)
        products_s = flops / (_PRODUCT_SHARE * gpu.f32_flops * max(busy, 1e-3))
        chain = max((stage.chain / max(stage.entries, 1) for stage in stages), default=0.0)
        return {
            "memory": 1e6 * max(memory_s, cached_s),
            "compute": 1e6 * (compute_s + products_s),
            "serial": 1e6 * chain * _CHAIN_CYCLES / gpu.clock_hz,
        }


def _slots(stage: StageFeatures) -> float:
    """Instructions that warps issue for a stage."""
    accesses = stage.accesses
    walked = accesses.contiguous + accesses.strided + accesses.gather + accesses.uniform + accesses.masked
    worked = sum(
        count * _ISSUE_SLOTS[name] * (_WIDE if dtype == "f64" else 1.0)
        for (name, dtype), count in stage.operations.items()
    )
    return walked + worked + _OVERHEAD * stage.vectors + stage.horizontal * 2 * WARP.bit_length()


def _host_us(opaque: OpaqueFeatures) -> float:
    return _HOST_US + 1e6 * (opaque.moved_bytes / _HOST_BYTES_PER_S + opaque.elements * _HOST_NODE_S)


def _bound(kernel: KernelFeatures, launches: Sequence[dict[Bound, float]]) -> Bound:
    if kernel.opaque is not None:
        return "library"
    names: tuple[Bound, ...] = ("memory", "compute", "serial")
    total = {name: sum(launch[name] for launch in launches) for name in names}
    longest = max(names, key=lambda name: total[name])
    return longest if total[longest] > LAUNCH_US * kernel.launches else "overhead"
