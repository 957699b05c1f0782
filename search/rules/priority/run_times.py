"""What XLA:GPU predicts that kernels take: the priorities of its queue.

Sources: gpu_performance_model.cc, gpu_performance_model_base.cc, coalescing_analysis.cc. Times are counted in quarters
of a nanosecond, the resolution of `absl::Duration`, each term rounded toward zero as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.priority.cost_analysis import ROOT, Read, Work, WorkCount
from autofuse.search.rules.priority.emitters import Emitters, Kind, Launch
from autofuse.search.rules.priority.gpu_devices import GpuDescription
from autofuse.search.rules.priority.instructions import BITCAST, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel

TICKS_PER_NS = 4
"""A quarter of a nanosecond is one."""
_TICKS_PER_S = TICKS_PER_NS * 1e9
_LAUNCH_TICKS = 1000 * TICKS_PER_NS
"""Of one kernel: a microsecond."""
_L2_SPEEDUP, _L1_SPEEDUP = 2.5, 8.0
"""Of reading again what is in a cache; the first level's comes on top of the second's."""
_OVERLAP = 0.95
"""The share of the shorter of computing and moving data that the longer one hides."""


class RunTimes(Protocol):
    """Predicts what kernels take. Times of one object have one unit; only their differences are used."""

    @property
    def launch(self) -> float:
        """What each kernel takes on top."""
        ...

    def alone(self, kernel: Kernel) -> float:
        """A kernel as it is."""
        ...

    def fused(self, producer: Kernel, consumer: Kernel, merged: Kernel, writes_both: bool = False) -> float | None:
        """A kernel that computes `producer` within `consumer`: `merged`. None if there is none on this side.

        `writes_both`: it also writes what `producer` does.
        """
        ...


@dataclass(slots=True)
class XlaTimes:
    """XLA's own formulas for one device. Times are ticks of a quarter of a nanosecond."""

    emitters: Emitters
    work: WorkCount
    launch: float = _LAUNCH_TICKS
    _alone: dict[Kernel, int] = field(default_factory=dict[Kernel, int])

    @property
    def device(self) -> GpuDescription:
        """The device it predicts for."""
        return self.work.device

    def alone(self, kernel: Kernel) -> int:
        """EstimateRunTimeForInstruction."""
        if kernel not in self._alone:
            work, launch = self.work.of(kernel), self.emitters.launch(kernel)
            coalesced = self.is_coalesced(kernel)
            reads = sum(
                self.read_ticks(r.parameter, min(r.parameter.type.nbytes, r.nbytes), r.nbytes, launch, coalesced)
                for r in work.reads
            )
            moved = reads + self.write_ticks(work.written_bytes)
            self._alone[kernel] = combined_ticks(self.compute_ticks(work.flops, launch), moved)
        return self._alone[kernel]

    def fused(self, producer: Kernel, consumer: Kernel, merged: Kernel, writes_both: bool = False) -> int:
        """EstimateRunTimeForFusion: from the costs of the two, without counting the merged kernel anew."""
        above, below = self.work.of(producer), self.work.of(consumer)
        uses = [read.utilisation for i in producer.written for read in below.of(i)]
        flops = int(above.flops * sum(uses) + below.flops)
        launch, coalesced = self.emitters.launch(merged), self.is_coalesced(producer, consumer, merged)
        moved = self.write_ticks(below.written_bytes + (above.written_bytes if writes_both else 0))
        for parameter in merged.parameters:
            total = self._fused_bytes(parameter, producer, consumer, uses[0] if uses else 0.0)
            moved += self.read_ticks(parameter, min(parameter.type.nbytes, total), total, launch, coalesced)
        return combined_ticks(self.compute_ticks(flops, launch), moved)

    # ---- terms -----------------------------------------------------------------------------------------------------

    def compute_ticks(self, flops: int, launch: Launch) -> int:
        """Arithmetic alone, on as many units as the launch keeps busy."""
        device = self.device
        units = min(launch.blocks, device.multiprocessors) * min(launch.threads, device.fpus)
        return int(TICKS_PER_NS * flops / int(device.clock_ghz * 2 * units))

    def read_ticks(self, operand: Instruction, net: float, total: float, launch: Launch, coalesced: bool) -> int:
        """ReadTimeWithDRAMHeuristic: `net` bytes come from DRAM, the others of `total` from where they then lie."""
        device = self.device
        used = 1.0 if coalesced else operand.type.dtype.itemsize / device.transaction_bytes
        dram = rest = device.memory_bytes_per_s
        dram *= used
        if net < device.l2_bytes:
            rest *= _L2_SPEEDUP
            if net < device.l1_bytes * device.multiprocessors:
                rest *= _L1_SPEEDUP
        else:
            rest *= used
        most = launch.blocks * device.clock_ghz * 1e9 * device.bytes_per_clock
        return int((net / min(dram, most) + (total - net) / min(rest, most)) * _TICKS_PER_S)

    def write_ticks(self, nbytes: int) -> int:
        """Writing is never slowed down."""
        return int(nbytes / self.device.memory_bytes_per_s * _TICKS_PER_S)

    def _fused_bytes(self, parameter: Instruction, producer: Kernel, consumer: Kernel, uses: float) -> float:
        """What the two together read of a parameter, less what both read at the same index."""
        above, below = self.work.of(producer).of(parameter), self.work.of(consumer).of(parameter)
        shared = self._common(parameter, producer, consumer) if above and below else 0.0
        read = round(above[0].nbytes * uses) if above else 0
        return max(0.0, read + sum(r.nbytes for r in below[:1]) - round(parameter.type.nbytes * shared))

    def _common(self, parameter: Instruction, producer: Kernel, consumer: Kernel) -> float:
        """GetCommonUtilization: how often one access serves both."""
        if not self._passes_on(parameter, producer):
            return 0.0
        if not consumer.is_fusion:
            return 1.0 if consumer.first.is_elementwise else 0.0
        work = self.work.of(consumer)
        (here,) = work.of(parameter)
        return sum(_shared_weight(work, here, read) for made in producer.written for read in work.of(made))

    def _passes_on(self, parameter: Instruction, producer: Kernel) -> bool:
        """Whether a producer reads a parameter at the index at which it is asked for itself."""
        if not producer.is_fusion:
            return producer.first.is_elementwise
        return any(ROOT in read.starts for read in self.work.of(producer).of(parameter))

    # ---- coalescing ------------------------------------------------------------------------------------------------

    def is_coalesced(self, producer: Kernel, consumer: Kernel | None = None, merged: Kernel | None = None) -> bool:
        """IsReadCoalescedHeuristic: one verdict for all that a kernel reads."""
        parts = (producer,) if consumer is None else (producer, consumer)
        kind = self.emitters.kind(merged or producer)
        if kind is not Kind.TRANSPOSE and any(map(_is_badly_transposing, parts)):
            return False
        reductions = [self._is_input_reduction(kernel) for kernel in parts]
        return not (kind is Kind.REDUCTION and len(parts) > 1 and all(reductions))

    def _is_input_reduction(self, kernel: Kernel) -> bool:
        return self.emitters.kind(kernel) is Kind.REDUCTION


def combined_ticks(compute: int, moved: int) -> int:
    """Computing and moving data at the same time, as far as they overlap."""
    return compute + moved - int(min(compute, moved) * _OVERLAP)


def _shared_weight(work: Work, one: Read, other: Read) -> float:
    return sum(work.weights[start] for start in sorted(one.starts & other.starts, key=str))


def transposes_minor(instruction: Instruction) -> bool:
    """Whether a transpose moves the innermost dimension of more than one element (TransposesMinorDimension)."""
    if instruction.opcode != "transpose":
        return False
    before, after = instruction.operands[0].type.shape, instruction.type.shape
    return _innermost(before) != instruction.attrs["permutation"][_innermost(after)]


def _innermost(shape: Iterable[int]) -> int:
    return max((axis for axis, extent in enumerate(shape) if extent != 1), default=0)


def _is_badly_transposing(kernel: Kernel) -> bool:
    return any(
        transposes_minor(step.instruction) and not _is_repeated(kernel, step.operands[0], step.instruction.operands[0])
        for step in kernel.steps
    )


def _is_repeated(kernel: Kernel, at: int, instruction: Instruction) -> bool:
    """Whether a value is a broadcast or an iota, perhaps through unary operations; a fusion's parameters are not."""
    while instruction.opcode not in ("broadcast_in_dim", "iota"):
        if at < 0 and kernel.is_fusion:
            return False
        if len(instruction.operands) != 1 or not (instruction.is_elementwise or instruction.opcode == BITCAST):
            return False
        at = kernel.steps[at].operands[0] if at >= 0 else at
        instruction = instruction.operands[0]
    return at >= 0 or not kernel.is_fusion
