"""Memory of a simulated device: blocks between redzones, poisoned whenever they change hands.

As in CuPy's pool, memory that is given back belongs to its stream: the next array of that size and stream lies there at
once, and what was started before may still use it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError

REDZONE = 256
"""Bytes around every array; also the alignment."""
_POISON = 0xFF
_UNIT = 512
"""Sizes of blocks are multiples of this, as CuPy's are."""
_MOST_IDLE = 64 << 20
"""Bytes of blocks that nobody has and that are kept."""


class Block:
    """Memory for one array at a time."""

    def __init__(self, nbytes: int) -> None:
        """`nbytes`: it can hold. Nobody has it yet."""
        self.capacity = _rounded(nbytes)
        self._all = np.full(self.capacity + 3 * REDZONE, _POISON, np.uint8)
        self._start = REDZONE + -(self._all.ctypes.data + REDZONE) % REDZONE
        self.address: int = self._all.ctypes.data + self._start
        self.nbytes: int | None = None
        """Of the array that has it; None: nobody has."""

    def begin(self, nbytes: int) -> None:
        """Have an array lie here."""
        self.nbytes = nbytes
        self._all.fill(_POISON)

    def end(self) -> None:
        """The array is gone. Raises BackendError if something wrote beside it."""
        try:
            self.check()
        finally:
            self.nbytes = None
            self._all.fill(_POISON)

    def check(self) -> None:
        """Raise BackendError if something wrote beside the array."""
        beside = (self._all[: self._start], self._all[self._start + (self.nbytes or 0) :])
        if any((part != _POISON).any() for part in beside):
            raise BackendError(f"a kernel writes outside an array of {self.nbytes} bytes")

    def bytes_at(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """A part of it, as it is."""
        first = address - self.address + self._start
        return self._all[first : first + nbytes]

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether somebody has it, and these bytes are of that array."""
        return self.nbytes is not None and self.address <= address <= self.address + self.nbytes - nbytes


class Pool:
    """The blocks of a device. Not safe to call from several threads at once."""

    def __init__(self) -> None:
        self._idle: dict[tuple[object, int], list[Block]] = {}
        self._idle_bytes = 0
        self._places: list[tuple[int, Block]] = []

    def take(self, stream: object, nbytes: int) -> tuple[Block, bool]:
        """A block for an array of a stream, and whether it is new: the stream's own of that size before others."""
        capacity = _rounded(nbytes)
        waiting = self._idle.get((stream, capacity))
        if waiting:
            self._idle_bytes -= capacity
            return waiting.pop(), False
        fresh = Block(capacity)
        insort(self._places, (fresh.address, fresh), key=lambda place: place[0])
        return fresh, True

    def give_back(self, stream: object, block: Block) -> bool:
        """Keep a block for the next array of a stream; False if there are enough, and it must be `drop`ped."""
        if self._idle_bytes + block.capacity > _MOST_IDLE:
            return False
        self._idle_bytes += block.capacity
        self._idle.setdefault((stream, block.capacity), []).append(block)
        return True

    def drop(self, block: Block) -> None:
        """Forget a block that nobody has."""
        self._places = [place for place in self._places if place[1] is not block]

    def block_of(self, address: int) -> Block | None:
        """The block that begins at or before an address, and ends behind it."""
        number = bisect_right(self._places, address, key=lambda place: place[0]) - 1
        block = self._places[number][1] if number >= 0 else None
        return block if block is not None and address <= block.address + block.capacity else None

    def holder(self, address: int, nbytes: int) -> Block:
        """The block where that memory is. Raises BackendError for memory that nobody has."""
        block = self.block_of(address)
        if block is not None and block.holds(address, nbytes):
            return block
        raise BackendError(f"an illegal memory access: nobody has the {nbytes} bytes at {address:#x}")

    def bytes_at(self, address: int, nbytes: int) -> NDArray[Any]:
        """Bytes that somebody has. Raises BackendError."""
        return self.holder(address, nbytes).bytes_at(address, nbytes) if nbytes else np.empty(0, np.uint8)


def _rounded(nbytes: int) -> int:
    return max(1, -(-nbytes // _UNIT)) * _UNIT
