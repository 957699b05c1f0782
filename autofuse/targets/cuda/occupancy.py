"""Theoretical occupancy: how many blocks of a kernel a multiprocessor holds at once, and how many to start.

The rules are those of the CUDA occupancy calculator (cuda_occupancy.h, compute capability 8.0 and 9.0): registers are
given to warps in units of 256 on each of four partitions, shared memory in units of 128 bytes after 1 KiB per block.
"""

from __future__ import annotations

import math

from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.nvrtc import Resources

_WARP = 32
_REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024
MOST_LOST = 0.1
"""Of what a device holds at once: the share that may have nothing to do in the last wave."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Of one multiprocessor."""

    blocks: int
    """Resident blocks; 0 = the kernel cannot be launched."""
    warps: int
    """Resident warps."""
    fraction: float
    """Of the warps that the multiprocessor can hold."""
    limit: str
    """What limits it: `registers`, `shared memory`, `threads` or `blocks`."""


def occupancy(gpu: Gpu, resources: Resources, threads: int, dynamic_shared_bytes: int) -> Occupancy:
    """Occupancy of blocks of `threads` threads with `dynamic_shared_bytes` beside the static shared memory."""
    warps = -(-threads // _WARP)
    shared = resources.shared_bytes + dynamic_shared_bytes
    limits = {
        "blocks": gpu.blocks,
        "threads": gpu.threads // (warps * _WARP),
        "registers": _by_registers(gpu, resources.registers, warps),
        "shared memory": 0 if shared > gpu.shared_bytes_per_block else _by_shared(gpu, shared),
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    most = gpu.threads // _WARP
    return Occupancy(blocks, blocks * warps, blocks * warps / most, limit)


def _by_registers(gpu: Gpu, registers: int, warps: int) -> int:
    per_warp = _round_up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    per_partition = gpu.registers // _PARTITIONS // per_warp
    return per_partition * _PARTITIONS // warps


def _by_shared(gpu: Gpu, shared_bytes: int) -> int:
    return gpu.shared_bytes // (_round_up(shared_bytes, _SHARED_UNIT) + _SHARED_RESERVED)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def lost(blocks: int, held: int, multiprocessors: int) -> float:
    """Share of the blocks held that has nothing to do in the last of several waves; `held`: by each multiprocessor."""
    waves = blocks / (held * multiprocessors)
    return 1.0 - waves / math.ceil(waves) if waves > 1 else 0.0


def blocks_in_turn(tasks: int, held: int, multiprocessors: int) -> int:
    """Blocks that take so many equal tasks in turn, all at once, each as many as the others, up to one.

    Each multiprocessor gets at least half of what it holds, and as much as leaves little to wait for in the end.
    """

    def rounds(each: int) -> int:
        return -(-tasks // (each * multiprocessors))

    def waited(each: int) -> float:
        return 1.0 - tasks / (each * multiprocessors * rounds(each))

    tried = range(held, held // 2, -1)
    each = next((each for each in tried if waited(each) <= MOST_LOST), min(tried, key=waited))
    return -(-tasks // rounds(each))
