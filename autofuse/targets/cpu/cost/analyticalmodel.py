"""The analytical model of a CPU: what a kernel costs by counting, at the throughputs of a calibration.

    kernel = launches, one after another, + page faults of fresh outputs
    launch = fork and join, if it is shared, + phases / speed-up
    phase  = memory + instructions + library calls - what of these overlaps, at least its chains, + loop entries

Memory: a roofline with one roof per cache level; the bytes that cross into a level follow from the reuse of the loops
(`traffic`). Instructions: vector operations by class over calibrated throughput, plus loads and stores. Chains:
dependent operations at their latency. Library: products at BLAS speed, with the cost of packing panels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.cost_models.base import BOUNDS, Bound, KernelFacts, Prices
from autofuse.cost_models.features import (
    FEATURES_VERSION,
    DotFeatures,
    KernelFeatures,
    OpaqueFeatures,
    PhaseFeatures,
    matrix,
)
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.cost.extract import FeatureReader, features
from autofuse.targets.cpu.cost.floor import floor_us, headroom_of
from autofuse.targets.cpu.cost.instructions import InstructionModel
from autofuse.targets.cpu.cost.roofline import MemoryModel
from autofuse.targets.cpu.device.describe import CpuDescription

ANALYTICAL_VERSION = 11
"""Raised when prices change: learned corrections of another version do not apply."""
SIGMA = 0.3
"""Deviation of log(measured / predicted) where the machine was calibrated, on programs that the model's constants were
not fitted to."""
OPAQUE_SIGMA = 0.8
"""The same for calls of the interpreter, which are only guessed at."""

_AHEAD_BYTES = 16384
"""How far ahead of the instructions the memory system fetches."""
_CALL_US = 0.15
"""A phase function by itself."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of a kernel goes; microseconds. The terms overlap, so they add up to more than `us`."""

    us: float
    memory: float
    compute: float
    serial: float
    library: float
    overhead: float

    @property
    def terms(self) -> tuple[float, ...]:
        """In the order of `BOUNDS`."""
        return self.memory, self.compute, self.overhead, self.serial, self.library

    @property
    def bound(self) -> Bound:
        """The largest term."""
        terms = self.terms
        return BOUNDS[terms.index(max(terms))]


class AnalyticalCpuModel:
    """A `CostModel` of formulas and a calibration; it never changes."""

    def __init__(self, description: CpuDescription, *, alone: bool = False) -> None:
        """`alone`: what kernels take that are called over and over by themselves, as measuring does.

        Their operands then lie where the call before left them; in a plan, where their producers did. What is chosen by
        prices is a plan, and partitions chosen for kernels alone are up to 1.9 times slower: small kernels that hand
        large values to each other look cheap.
        """
        self.description, self._alone = description, alone
        calibration = description.calibration
        self._calibration = calibration
        self._memory = MemoryModel(description, alone=alone)
        self._instructions = InstructionModel(description)

    # ---- the protocol --------------------------------------------------------------------------------------------

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`."""
        reader = FeatureReader(self.description.vector_bits)
        told = [reader.features(facts.program) for facts in kernels]
        floors = np.array([floor_us(f, self.description) for f in told], np.float64)
        found = [self.breakdown(f) for f in told]
        us = np.array([b.us for b in found], np.float64)
        sigma = np.array([SIGMA if f.opaque is None else OPAQUE_SIGMA for f in told], np.float64)
        bounds: tuple[Bound, ...] = tuple(b.bound for b in found)
        terms = np.array([b.terms for b in found], np.float64).reshape(len(found), len(BOUNDS))
        us = np.maximum(us, floors)
        return Prices(us, sigma, floors, bounds, headroom_of(self.description), matrix(told), terms)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        return self._memory.write_us(value.nbytes)

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        return {
            "name": "analytical-cpu",
            "version": ANALYTICAL_VERSION,
            "feature_version": FEATURES_VERSION,
            "operands": "as left by the call before" if self._alone else "as left by their producers",
            "device": self.description.to_json(),
        }

    # ---- one kernel ----------------------------------------------------------------------------------------------

    def features(self, facts: KernelFacts) -> KernelFeatures:
        """What the model sees of a kernel. Raises BackendError for an unknown opcode."""
        return features(facts.program, self.description.vector_bits)

    def breakdown(self, kernel: KernelFeatures) -> Breakdown:
        """The price of a kernel and the terms that it comes from."""
        if kernel.opaque is not None:
            us = self._opaque_us(kernel.opaque)
            return Breakdown(us, 0.0, 0.0, 0.0, us, 0.0)
        parts = [self._launch(kernel, number) for number in range(kernel.launches)]
        return Breakdown(
            us=sum(p.us for p in parts),
            memory=sum(p.memory for p in parts),
            compute=sum(p.compute for p in parts),
            serial=sum(p.serial for p in parts),
            library=sum(p.library for p in parts),
            overhead=sum(p.overhead for p in parts),
        )

    def _launch(self, kernel: KernelFeatures, number: int) -> Breakdown:
        phases = [phase for phase in kernel.phases if phase.launch == number]
        shares = sum(phase.shares for phase in phases)
        workers = max(1, min(self.description.threads, int(shares)))
        done = [self._phase(phase, kernel, workers) for phase in phases]
        fork = self._calibration.fork_join_us * (workers > 1)
        return Breakdown(
            us=sum(p.us for p in done) + fork,
            memory=sum(p.memory for p in done),
            compute=sum(p.compute for p in done),
            serial=sum(p.serial for p in done),
            library=sum(p.library for p in done),
            overhead=sum(p.overhead for p in done) + fork,
        )

    def _phase(self, phase: PhaseFeatures, kernel: KernelFeatures, workers: int) -> Breakdown:
        speed_up = phase.blocks / math.ceil(phase.blocks / workers)
        own = self._instructions
        stages = [own.stage_us(stage, kernel.vector_bits) / speed_up for stage in phase.stages]
        compute = sum(stages) + self._generated_us(phase.dots) / speed_up
        serial = sum(own.chain_us(stage) for stage in phase.stages) / speed_up
        overhead = sum(own.entries_us(stage) for stage in phase.stages) / speed_up + _CALL_US
        library = sum(self._product_us(dot) for dot in phase.dots if dot.library) / speed_up
        if any(not _is_vector(dot) for dot in phase.dots):
            near, far = self._memory.near_and_far_us(phase, kernel, speed_up)
            memory, hidden = near + far, min(near, compute + library)
        else:
            memory = self._memory.phase_us(phase, kernel, speed_up)
            hidden = min(memory, compute + library) if phase.dots else self._hidden_us(phase, stages, memory)
        us = max(memory + compute + library - (1 - self._calibration.unhidden) * hidden, serial) + overhead
        return Breakdown(us, memory, compute, serial, library, overhead)

    @staticmethod
    def _hidden_us(phase: PhaseFeatures, stages: Sequence[float], memory: float) -> float:
        """How much of memory and instructions can happen at the same time.

        Stages run one after the other. While their data are a few kilobytes, the memory system fetches for the next
        ones and the next grid point; more, and each stage waits for what it touches first. A square that is transposed
        waits for all of its lines, which are of as many streams.
        """
        if any(stage.transposes for stage in phase.stages):
            return 0.0
        touched = sum(stage.first_touch_bytes for stage in phase.stages)
        if touched <= _AHEAD_BYTES:
            return min(memory, sum(stages))
        return sum(
            min(us, memory * stage.first_touch_bytes / touched) for us, stage in zip(stages, phase.stages, strict=True)
        )

    def _generated_us(self, dots: Sequence[DotFeatures]) -> float:
        """Generated products on one core. The last row block may be shorter than the others."""
        cycles = (dot.cycles * dot.all_rows / dot.rows for dot in dots if dot.rows and not dot.library)
        return math.fsum(cycles) * self._instructions.cycle_us

    def _product_us(self, dot: DotFeatures) -> float:
        """Calls of BLAS on one core: the multiplying, the right factor laid out once per call, and the calls."""
        us = self.multiplying_us(dot) + dot.calls * _BLAS_CALL_US
        return us + self.laid_out(dot) / self._calibration.packed_elements_per_us

    def laid_out(self, dot: DotFeatures) -> float:
        """Elements of right factors that BLAS lays out in all calls; none where it reads them in place."""
        return dot.packed_elements if self._packs(dot) else 0.0

    def _packs(self, dot: DotFeatures) -> bool:
        """Whether BLAS lays out the factors: not for a matrix times a vector, nor for small ones on some CPUs."""
        small = self.description.vector_bits >= _DIRECT_BITS and dot.rows * dot.columns * dot.depth <= _DIRECT
        return not _is_vector(dot) and not small

    def multiplying_us(self, dot: DotFeatures) -> float:
        """Flops at the peak, as much longer as sides are short. A left factor is laid out once for all columns."""
        us = dot.flops / (self._calibration.blas_gflops[dot.dtype].one * 1e3)
        if _is_vector(dot):
            return us * _longer(dot.rows, 1) * _longer(dot.columns, 1) * _longer(dot.depth, 2)
        if self._packs(dot):
            return us * _longer(dot.rows, _PACKED_ROWS) * _longer(dot.columns, _PACKED_COLUMNS)
        return _DIRECT_SHARE * us * _longer(dot.columns, _DIRECT_COLUMNS) * _longer(dot.depth, _DIRECT_DEPTH)

    def _opaque_us(self, opaque: OpaqueFeatures) -> float:
        """A call back into Python, NumPy's own overhead per operation, copies at one core's bandwidth; or loops."""
        if opaque.coded_ns:
            return self._coded_us(opaque)
        us = _CALLBACK_US + opaque.nodes * _NODE_US
        us += opaque.moved_bytes / self._memory.copy_bytes_per_us(opaque.moved_bytes)
        ns = opaque.sort_steps * _SORT_NS + opaque.scattered * _SCATTER_NS + opaque.elements * _ELEMENT_NS
        return us + (ns + opaque.multiply_adds * _MULTIPLY_ADD_NS) / 1e3

    def _coded_us(self, opaque: OpaqueFeatures) -> float:
        """Loops of a scatter or a sort: they wait for instructions or for memory; before, what is copied."""
        threads = self.description.threads
        workers = min(threads, opaque.shares)
        every = opaque.moved_bytes + opaque.copied_bytes
        moving = opaque.moved_bytes / self._memory.copy_bytes_per_us(every, workers)
        moving = max(moving, self._memory.visited_us(opaque.visits, workers))
        us = max(moving, opaque.coded_ns / 1e3 / workers) + _CALL_US
        shared = workers > 1
        if opaque.copied_bytes:
            copiers = max(1, min(threads, opaque.copied_bytes // _COPIED_ALONE))
            us += opaque.copied_bytes / self._memory.copy_bytes_per_us(every, copiers)
            shared = shared or copiers > 1
        return us + self._calibration.fork_join_us * shared


_BLAS_CALL_US = 0.1
_DIRECT_BITS, _DIRECT = 512, 100**3
"""With vectors of so many bits OpenBLAS multiplies without laying out factors, up to so many multiply-adds
(`kernel/x86_64/sgemm_small_kernel_permit_skylakex.c`, since 0.3.17)."""
_PACKED_ROWS, _PACKED_COLUMNS = 8, 14
"""Sides of which products take twice as long as at the peak: columns share what laying out the left factor takes."""
_DIRECT_SHARE, _DIRECT_COLUMNS, _DIRECT_DEPTH = 0.85, 4, 8
"""The same of products whose factors stay where they are, and what these take of the time of a large one, which also
waits for memory."""
_CALLBACK_US = 6.0
_NODE_US = 3.0
_SORT_NS = 0.5
_SCATTER_NS = 8.0
_ELEMENT_NS = 0.5
_MULTIPLY_ADD_NS = 0.5
"""Of an interpreted product: batches of small matrices, whose factors are copied first."""
_COPIED_ALONE = 256 << 10
"""Bytes from which on a copy is shared."""


def _longer(size: int, half: int) -> float:
    """How many times as long a side takes that is short: twice at `half`."""
    return 1.0 + half / max(size, 1)


def _is_vector(dot: DotFeatures) -> bool:
    """Whether a product reads a matrix once: a factor, or both, are vectors."""
    return min(dot.rows, dot.columns) == 1
