"""Whether a kernel's stores should go past the caches, where the schedule leaves it open."""

from __future__ import annotations

from autofuse.lower.tile import TileProgram

STREAM_FROM_BYTES = 80_000_000
"""Buffers of a kernel, together, from which on plain stores cost more: each fetches the line it writes from memory, and
no cache keeps it for the reader. Measured (Xeon, 2 threads): 67 MB 5 % faster to 7 % slower, 90 MB 1 to 18 % faster,
130 MB and more 20 to 55 % faster."""


def streams_stores(program: TileProgram) -> bool:
    """The schedule's choice, or the one that the size of the buffers suggests."""
    chosen = program.schedule.stream_stores
    if chosen is not None:
        return chosen
    return sum(buffer.type.nbytes for buffer in program.parameters()) >= STREAM_FROM_BYTES
