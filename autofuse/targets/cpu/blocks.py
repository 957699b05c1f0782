"""Memory of large outputs, kept for reuse when the arrays on it are gone.

The C library returns a freed block of 32 MiB or more to the system, and the next result of that size pays for zeroed
pages again, which takes longer than many kernels run. A block is reused only after the last array that views it, or
export of its buffer, has been freed.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

POOLED_FROM_BYTES = 128 << 10
"""Outputs of this size or more are allocated here, smaller ones by `numpy.empty`. Smaller than its bound for large
blocks, because the library also trims its heap when many middle-sized results are freed together."""
RETAINED_BYTES = 512 << 20
"""Most memory kept for reuse; what comes back beyond it is freed."""

_HUGE_PAGE = 2 << 20
_PAGE = 4096
_STAGGER_BYTES = 4096 + 64
_STAGGERS = 16


class BlockPool:
    """Blocks of memory by size. Safe from several threads, and when the garbage collector frees arrays at any time."""

    def __init__(self, retained_bytes: int = RETAINED_BYTES) -> None:
        """Keep at most `retained_bytes` of unused memory."""
        self._limit = retained_bytes
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        # re-entrant: an array may be freed by a collection that starts while this thread holds the lock
        self._lock = threading.RLock()
        self._made = 0
        self.retained_bytes = 0
        """Memory that is kept and not in use now."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An uninitialised C-contiguous array, 64-byte aligned; its base is what gives the block back."""
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        return np.ndarray(shape, dtype, buffer=np.asarray(_Lease(self, self._take(size))))

    def clear(self) -> None:
        """Free all memory that is not in use."""
        with self._lock:
            self._free.clear()
            self.retained_bytes = 0

    def after_fork(self) -> None:
        """Make the pool usable in the child of a fork, where another thread may have held its lock."""
        self._lock = threading.RLock()

    def _take(self, size: int) -> NDArray[np.uint8]:
        with self._lock:
            kept = self._free.get(size)
            if kept:
                self.retained_bytes -= size
                return kept.pop()
            self._made += 1
            # blocks that all start at the same offset in a page would compete for the same cache sets
            stagger = self._made % _STAGGERS * _STAGGER_BYTES
        # NumPy asks for huge pages for a large allocation
        boundary = _HUGE_PAGE if size >= _HUGE_PAGE else _PAGE
        memory = np.empty(size + boundary + _STAGGERS * _STAGGER_BYTES, np.uint8)
        start = -memory.ctypes.data % boundary + stagger
        return memory[start : start + size]

    def give_back(self, block: NDArray[np.uint8]) -> None:
        """Keep `block` for reuse, or free it when enough is kept."""
        with self._lock:
            if self.retained_bytes + block.nbytes <= self._limit:
                self.retained_bytes += block.nbytes
                self._free.setdefault(block.nbytes, []).append(block)


class _Lease:
    """The base of every array on a block: it goes when they are all gone, and gives the block back."""

    def __init__(self, pool: BlockPool, block: NDArray[np.uint8]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._pool = pool
        self._block = block

    def __del__(self) -> None:
        self._pool.give_back(self._block)


output_blocks = BlockPool()
"""The pool that all programs of the process share."""

os.register_at_fork(after_in_child=output_blocks.after_fork)
