from __future__ import annotations

import pytest

from autofuse.errors import BackendError
from autofuse.targets.cuda.gpus import A100, ALL, H100_SXM, shared_bytes_per_block
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import occupancy


def resources(registers: int, shared_bytes: int = 0) -> Resources:
    return Resources(registers, 0, 0, shared_bytes)


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "blocks", "limit"),
    [
        (32, 256, 0, 8, "threads"),  # 8 * 256 = 2048 threads, 65536 registers: both just fit
        (33, 256, 0, 6, "registers"),  # 33 * 32 rounds up to 1280 a warp: 12 warps in each of 4 partitions
        (255, 256, 0, 1, "registers"),  # 8192 a warp: 2 in each partition
        (16, 32, 0, 32, "blocks"),  # 32 small blocks use half of the warps
        (16, 128, 100 * 1024, 2, "shared memory"),  # 2 * 101 KiB of 228 KiB
        (16, 128, 227 * 1024, 1, "shared memory"),
        (16, 128, 228 * 1024, 0, "shared memory"),  # more than a block may have
    ],
)
def test_blocks_per_multiprocessor(registers: int, threads: int, shared: int, blocks: int, limit: str) -> None:
    found = occupancy(H100_SXM, resources(registers), threads, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.warps == blocks * threads // 32
    assert found.fraction == found.warps / 64


def test_static_and_dynamic_shared_memory_add_up() -> None:
    assert occupancy(A100, resources(16, 40 * 1024), 128, 41 * 1024).blocks == 2
    assert occupancy(A100, resources(16), 128, 41 * 1024).blocks == 3


def test_every_described_device_agrees_with_its_architecture() -> None:
    for gpu in ALL.values():
        assert shared_bytes_per_block(gpu.arch) == gpu.shared_bytes_per_block
        assert gpu.shared_bytes_per_block < gpu.shared_bytes
    with pytest.raises(BackendError, match="unknown GPU architecture 'sm_70'; known: sm_75"):
        shared_bytes_per_block("sm_70")
