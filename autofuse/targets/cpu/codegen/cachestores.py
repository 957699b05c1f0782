"""Whether a kernel's stores should go past the caches, where the schedule leaves it open."""

from __future__ import annotations

from autofuse.lower.tile import TileProgram
from autofuse.targets.cpu.decisions import STREAM_FROM_BYTES, STREAM_STORES

STREAM_TURNED_FROM_BYTES = 8_000_000
"""The same where a matrix is transposed: its lines are written far from one another, and none is read again. Measured:
1 MB no difference, 4 MB 10 % faster, 8 MB and more 40 to 80 % faster."""


def streams_stores(program: TileProgram) -> bool:
    """Whether element-wise loops stream: the schedule's choice, or the one that the size of the buffers suggests."""
    return _streams(program, STREAM_FROM_BYTES)


def streams_transposed(program: TileProgram) -> bool:
    """Whether loops that transpose squares of a matrix stream."""
    return _streams(program, STREAM_TURNED_FROM_BYTES)


def _streams(program: TileProgram, from_bytes: int) -> bool:
    chosen = program.schedule[STREAM_STORES]
    if chosen is not None:
        return chosen
    return sum(buffer.type.nbytes for buffer in program.parameters()) >= from_bytes
