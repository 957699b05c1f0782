"""Plans run in guarded, poisoned memory: whatever touches a byte that is not its own is found.

Each argument and each result ends (or begins) at a page that nobody may touch, temporaries lie apart with canaries in
between, and the scratch of the calling thread ends at such a page. An access beyond ends the process, so run it in one
that may die (`autofuse.testing.ordeals`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.ir.types import TensorType
from autofuse.measurement.checks import POISON_BYTE
from autofuse.runtime.memory import ALIGNMENT, Lifetime
from autofuse.targets.cpu.executable import CpuExecutable
from autofuse.targets.cpu.native.opaque import raise_pending

Array = NDArray[Any]
_PAGE = mmap.PAGESIZE
_CANARY_BYTE = 0xA5
_GUARD_BYTES = 1 << 20
_GAP_BYTES = 4096
_NO_ACCESS = 0


class TouchedError(MeasureError):
    """Memory outside of a kernel's buffers was written."""


class Guarded:
    """Bytes between two pages that nobody may touch, flush with the page behind them, or with the one before."""

    def __init__(self, nbytes: int, *, at_end: bool = True, alignment: int = 1, fill: int = POISON_BYTE) -> None:
        """`alignment` (a power of two, bytes) of the address leaves at most that many bytes before the guard."""
        self.nbytes = nbytes
        inside = -(-max(nbytes, 1) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, inside + 2 * _GUARD_BYTES)
        whole = np.frombuffer(self._map, np.uint8)
        self._inside = whole[_GUARD_BYTES : _GUARD_BYTES + inside]
        self._inside[...] = _CANARY_BYTE
        self._start = (self._inside.size - nbytes) // alignment * alignment if at_end else 0
        self.bytes: NDArray[np.uint8] = self._inside[self._start : self._start + nbytes]
        self.bytes[...] = fill
        _protect(whole.ctypes.data)
        _protect(whole.ctypes.data + _GUARD_BYTES + inside)

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self._inside.ctypes.data + self._start

    def array(self, type_: TensorType) -> Array:
        """The bytes as an array."""
        return self.bytes.view(type_.dtype.numpy).reshape(type_.shape) if self.nbytes else _empty(type_)

    def check(self, what: str) -> None:
        """Raise TouchedError if a byte around them was written."""
        around = np.concatenate([self._inside[: self._start], self._inside[self._start + self.nbytes :]])
        if (around != _CANARY_BYTE).any():
            raise TouchedError(f"{what}: {int((around != _CANARY_BYTE).sum())} bytes around it were written")


def _empty(type_: TensorType) -> Array:
    return np.empty(type_.shape, type_.dtype.numpy)


def _protect(address: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_GUARD_BYTES), _NO_ACCESS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def guarded_copy(array: Array, *, at_end: bool = True) -> tuple[Array, Guarded]:
    """A copy of an array in guarded memory, and the memory."""
    type_ = TensorType(array.shape, _dtype_of(array))
    memory = Guarded(array.nbytes, at_end=at_end, alignment=array.itemsize)
    copy = memory.array(type_)
    copy[...] = array
    return copy, memory


def _dtype_of(array: Array) -> Any:
    from autofuse.ir import dtypes

    return dtypes.from_numpy(array.dtype)


class Apart:
    """Places temporaries with gaps between them, and remembers where the gaps are."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        self._total = 0

    def __call__(self, lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
        """An `Arrange`."""
        offset = _GAP_BYTES
        self._taken = []
        for life in lifetimes:
            self._taken.append((offset, offset + life.nbytes))
            offset += -(-life.nbytes // ALIGNMENT) * ALIGNMENT + _GAP_BYTES
        self._total = offset
        return tuple(start for start, _ in self._taken), offset

    def prepare(self, arena: NDArray[np.uint8]) -> None:
        """Fill the temporaries with poison and the gaps with canaries."""
        arena[: self._total] = _CANARY_BYTE
        for start, stop in self._taken:
            arena[start:stop] = POISON_BYTE

    def check(self, arena: NDArray[np.uint8]) -> None:
        """Raise TouchedError if a canary was written."""
        own = np.zeros(self._total, np.bool_)
        for start, stop in self._taken:
            own[start:stop] = True
        if (arena[: self._total][~own] != _CANARY_BYTE).any():
            raise TouchedError("bytes between temporaries were written")


def run_guarded(executable: CpuExecutable, apart: Apart, inputs: Sequence[Array], *, at_end: bool) -> tuple[Array, ...]:
    """The outputs of a plan that was built with `arrange=apart`, run in guarded memory on one thread.

    Raises TouchedError, also where an argument changes that no output is written into. Outputs that are written into an
    argument come as that argument.
    """
    native = executable.native
    aliases = {alias.output: alias.input for alias in native.program.output_aliases}
    given = [guarded_copy(array, at_end=at_end) for array in inputs]
    fresh: dict[int, tuple[Array, Guarded]] = {}
    for number, type_ in enumerate(native.program.outputs):
        if number not in aliases:
            memory = Guarded(type_.nbytes, at_end=at_end, alignment=type_.dtype.itemsize)
            fresh[number] = memory.array(type_), memory
    outputs = [given[aliases[k]] if k in aliases else fresh[k] for k in range(len(native.program.outputs))]
    arena = Guarded(native.arena_bytes, alignment=ALIGNMENT)
    apart.prepare(arena.bytes)
    native.run_at([memory.address for _, memory in (*given, *outputs)], arena.address)
    raise_pending(executable.opaque)
    apart.check(arena.bytes)
    arena.check("the arena")
    for number, (array, memory) in enumerate(given):
        memory.check(f"argument {number}")
        if number not in aliases.values() and array.tobytes() != np.ascontiguousarray(inputs[number]).tobytes():
            raise TouchedError(f"argument {number} was written")
    for number, (_, memory) in fresh.items():
        memory.check(f"output {number}")
    return tuple(array.copy() for array, _ in outputs)
