"""XLA:GPU's performance model for merging fusions, as of spring 2023, and what else bounds a merged fusion.

Sources: XLA, service/gpu/gpu_performance_model.cc and gpu_hlo_cost_analysis.cc. Work on a value
that a fusion computes at several indices counts several times, as XLA would emit it, though kernels here compute it
once where they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autofuse.ir.dtypes import F32, F64, I32, DType
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.hlo_rewrites import EXPANDED
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.instruction_fusion import BLOCK_STARTERS
from autofuse.search.rules.xla.unit import Unit, emissions, utilization


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the model knows of a device."""

    bandwidth_bytes_us: float
    """Of its memory."""
    l2_bytes: int
    cores: int
    """Streaming multiprocessors."""
    units_per_core: int
    """f32 units of each."""
    clock_mhz: float

    @property
    def units(self) -> int:
        """f32 units of the device."""
        return self.cores * self.units_per_core


A100 = Gpu(bandwidth_bytes_us=1_555_000, l2_bytes=40 << 20, cores=108, units_per_core=64, clock_mhz=1410)
"""NVIDIA A100, 40 GB, by its data sheet."""

LAUNCH_US = 1.0
"""kKernelLaunchOverhead."""
L2_SPEEDUP = 2.5
"""kL2CacheSpeedup: of reads from fewer bytes than the L2 cache holds."""
L1_SPEEDUP = 8.0
"""kL1CacheSpeedup: of reads from fewer than `L1_BYTES_PER_CORE` bytes for each core."""
L1_BYTES_PER_CORE = 2048
"""kL1CacheSizePerSM."""
PLAIN_FLOPS = 3.0
"""GpuHloCostAnalysis::HandleElementwiseOp: of an elementwise instruction, per element, where it has no other number."""
PLAIN_F64_FLOPS = 10.0
"""The same in f64."""
SLOW_FLOPS: dict[tuple[str, DType], float] = {
    ("tanh", F32): 30.0,
    ("log", F32): 45.0,
    ("divide", I32): 80.0,
    ("add", F64): 120.0,
    ("multiply", F64): 120.0,
    ("rsqrt", F64): 900.0,
    ("log", F64): 1000.0,
    ("sqrt", F64): 1100.0,
    ("tanh", F64): 2000.0,
    ("exp", F64): 2200.0,
    ("divide", F64): 3200.0,
    ("power", F64): 11000.0,
}
"""The same: the other numbers."""
MOST_SPLITS = 10
"""GpuHloCostAnalysis::kMaxBasicBlockSplitsPerFusion."""
MOST_CODE = 10_000
"""GpuHloCostAnalysis::kMaxIRSize."""


def unfused_us(gpu: Gpu, producer: Unit, users: Sequence[Unit]) -> float:
    """What a producer, and reading it in its users, takes."""
    write = producer.nbytes / gpu.bandwidth_bytes_us
    own = max(_compute_us(gpu, producer, 1.0), _inputs_us(gpu, producer, 1.0) + write)
    shares = [_used(producer, user) for user in users]
    read = sum(_read_us(gpu, producer.nbytes * min(share, 1.0), producer.nbytes * share) for share in shares)
    return LAUNCH_US * (len(users) + 1) + own + read


def fused_us(gpu: Gpu, producer: Unit, users: Sequence[Unit], writes: bool = False) -> float:
    """What a producer takes inside its users; `writes`: and it is written all the same."""
    total = LAUNCH_US * len(users) + (producer.nbytes / gpu.bandwidth_bytes_us if writes else 0.0)
    for user in users:
        used = _used(producer, user)
        total += max(_compute_us(gpu, producer, used), _inputs_us(gpu, producer, used))
    return total


def too_large(producer: Unit, consumer: Unit) -> bool:
    """Whether the code of both as one has too many blocks or instructions: ProducerConsumerMergedTooLarge."""
    copies = emissions(consumer).get(producer.root, 1.0) if consumer.is_fusion else 1.0
    splits = copies * _blocks(producer) + _blocks(consumer)
    if splits > MOST_SPLITS:
        return True
    return (_code(producer) * copies + _code(consumer)) * 2.0**splits > MOST_CODE


def _blocks(unit: Unit) -> float:
    emitted = emissions(unit)
    return sum(emitted[member] for member in unit.members if member.opcode in BLOCK_STARTERS)


def _code(unit: Unit) -> float:
    """Instructions as emitted; of a fusion, its parameters, and the tuple of its results if there are several."""
    if not unit.is_fusion:
        return 1.0
    return sum(emissions(unit).values()) + unit.is_multi_output


def _used(producer: Unit, user: Unit) -> float:
    return utilization(user).get(producer.root, 0.0)


def _inputs_us(gpu: Gpu, unit: Unit, used: float) -> float:
    """Reading what so large a part of a unit's result is computed from, or so many times the whole."""
    total = 0.0
    for value, share in utilization(unit).items():
        if value not in unit.inside:
            total += _read_us(gpu, value.nbytes * min(share, 1.0), value.nbytes * share * used)
    return total


def _read_us(gpu: Gpu, held_bytes: float, read_bytes: float) -> float:
    """Reading so much of a value, again and again if that is more than there is of it; what is small is in a cache."""
    speed = gpu.bandwidth_bytes_us
    if held_bytes < gpu.l2_bytes:
        speed *= L2_SPEEDUP
        if held_bytes < L1_BYTES_PER_CORE * gpu.cores:
            speed *= L1_SPEEDUP
    return read_bytes / speed


def _compute_us(gpu: Gpu, unit: Unit, used: float) -> float:
    """The arithmetic of so large a part of a unit's result, a thread for each element of it."""
    threads = max(1.0, min(unit.size * used, gpu.units))
    return _flops(unit) * used / (2 * gpu.clock_mhz * threads)


def _flops(unit: Unit) -> float:
    used = utilization(unit)
    return sum(used[member] * _instruction_flops(member) for member in unit.members)


def _instruction_flops(member: Instruction) -> float:
    if member.node is None:
        return 0.0
    combiner = str(member.node.attrs.get("combiner", ""))
    if member.opcode == "reduce":
        return _flops_of(combiner, member.type.dtype) * max(member.operands[0].size - member.type.size, 0)
    if member.opcode == "reduce_window":
        return _flops_of(combiner, member.type.dtype) * member.type.size * max(prod(member.window) - 1, 0)
    if not member.is_elementwise:
        return 0.0
    parts = EXPANDED.get(member.opcode, (member.opcode,))
    return sum(_flops_of(part, member.type.dtype) for part in parts) * member.size


def _flops_of(opcode: str, dtype: DType) -> float:
    """Of one element."""
    return SLOW_FLOPS.get((opcode, dtype), PLAIN_F64_FLOPS if dtype == F64 else PLAIN_FLOPS)
