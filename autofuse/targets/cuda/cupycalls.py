"""What a call through CuPy asks for each time: addresses of arrays, memory, and launches without detours.

A call may have hundreds of results, most of them small. Then these share memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any

from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel

LEGACY = 1
"""The greatest address that stands for the default stream."""
_SHARED_BYTES = 1 << 20
"""Of memory that results share: all of it stays as long as one of them does."""
_SMALL_BYTES = 64 << 10
"""A result of more has memory of its own."""
_MANY = 16
"""Small results from which on they share memory."""
_APART = 512
"""Bytes between the places of results in shared memory: CuPy's pool aligns to as many."""
_ADDRESS = attrgetter("ptr")


class CupyEntrance:
    """See `autofuse.targets.cuda.driver.Entrance`. Attributes of arrays that CuPy's own code reads: 0.05 us each."""

    def __init__(
        self,
        cupy: Any,
        device: int,
        arguments: Sequence[TensorType],
        results: Sequence[TensorType],
        arena_bytes: int,
        said: Callable[[Exception], Exception],
    ) -> None:
        self._said = said
        self._array, self._device, self._arena_bytes = cupy.ndarray, device, arena_bytes
        self._get_device, self._is_capturing = cupy.cuda.runtime.getDevice, cupy.cuda.runtime.streamIsCapturing
        self._context = cupy.cuda.driver.ctxGetCurrent
        self._stream, self._alloc = cupy.cuda.get_current_stream, cupy.cuda.alloc
        self._arguments = [(kind.shape, kind.dtype.numpy) for kind in arguments]
        self._results = [(kind.shape, kind.dtype.numpy, prod(kind.shape) * kind.dtype.itemsize) for kind in results]
        self._blocks = _Blocks.of([nbytes for _, _, nbytes in self._results])

    def taken(self, arguments: Sequence[Any]) -> list[int] | None:
        wanted = self._arguments
        if len(arguments) != len(wanted) or self._get_device() != self._device or not self._context():
            return None
        stream = self._stream().ptr
        if stream > LEGACY and self._is_capturing(stream):
            return None
        array, device, found = self._array, self._device, list[int]()
        for given, (shape, dtype) in zip(arguments, wanted, strict=True):
            if type(given) is not array or given.shape != shape or given.dtype != dtype or not given._c_contiguous:
                return None
            memory = given.data
            address = memory.ptr
            if address % ALIGNMENT or memory.device_id != device:
                return None
            found.append(address)
        return found

    def made(self, addresses: list[int]) -> tuple[list[Any], Any]:
        """The arena comes first, so that it lies where the last call's did, and the results of that do not matter."""
        alloc, array = self._alloc, self._array
        arena = alloc(self._arena_bytes) if self._arena_bytes else None
        found: list[Any] = []
        if self._blocks is None:
            for shape, dtype, nbytes in self._results:
                memory = alloc(nbytes)
                addresses.append(memory.ptr)
                found.append(array(shape, dtype, memory))
        else:
            memories = self._blocks.taken(alloc)
            addresses += map(_ADDRESS, memories)
            for (shape, dtype, _), memory in zip(self._results, memories, strict=True):
                found.append(array(shape, dtype, memory))
        addresses.append(0 if arena is None else arena.ptr)
        return found, arena

    def said(self, error: Exception) -> Exception:
        return self._said(error)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Memory for many results: large ones have their own, small ones lie in blocks."""

    sizes: tuple[tuple[int, tuple[int, ...]], ...]
    """Bytes of each block, and where results lie in it."""
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    """Their memory in the order of results, of that in the order of blocks."""

    @staticmethod
    def of(sizes: Sequence[int]) -> _Blocks | None:
        """For results of so many bytes; None where each has memory of its own."""
        small = [number for number, size in enumerate(sizes) if 0 < size <= _SMALL_BYTES]
        if len(small) < _MANY:
            return None
        placed = sorted(set(range(len(sizes))).difference(small))
        blocks: list[tuple[int, tuple[int, ...]]] = [(sizes[number], (0,)) for number in placed]
        offsets, end = list[int](), 0
        for number in small:
            if end + sizes[number] > _SHARED_BYTES:
                blocks.append((end, tuple(offsets)))
                offsets, end = [], 0
            offsets.append(end)
            end += -(-sizes[number] // _APART) * _APART
        placed += small
        numbers = sorted(range(len(placed)), key=placed.__getitem__)
        return _Blocks((*blocks, (end, tuple(offsets))), itemgetter(*numbers))

    def taken(self, alloc: Callable[[int], Any]) -> Sequence[Any]:
        """Memory of each result. Raises what `alloc` does."""
        found: list[Any] = []
        for nbytes, offsets in self.sizes:
            block = alloc(nbytes)
            found += [block] if len(offsets) == 1 else map(block.__add__, offsets)
        return self.pick(found)


class Launcher:
    """The launches of one kernel: all but the addresses and the stream is ready. May be used by several threads."""

    def __init__(self, cupy: Any, kernel: CudaKernel, handles: Sequence[int]) -> None:
        """`handles`: of the driver (`CUfunction`), one for each launch."""
        self._launch, self._stream = cupy.cuda.driver.launchKernel, cupy.cuda.get_current_stream
        self._starts = [
            (handle, *launch.grid, *launch.block, launch.shared_bytes)
            for handle, launch in zip(handles, kernel.launches, strict=True)
        ]
        self._count, self._is_packed = len(kernel.parameters), bool(kernel.members)
        self._write = Struct(f"{self._count}Q").pack_into
        self._idle: list[_Arguments] = []

    def __call__(self, pointers: Sequence[int]) -> None:
        """Start them on the current stream, on device addresses, one for each parameter in order."""
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = _Arguments(self._count, self._is_packed)
        self._write(arguments.values, 0, *pointers)
        stream = self._stream().ptr
        for start in self._starts:
            self._launch(*start, stream, arguments.address, 0)
        self._idle.append(arguments)  # the driver has copied them


class _Arguments:
    """Memory for a launch's arguments: addresses of arrays, and where each of these stands."""

    def __init__(self, count: int, is_packed: bool) -> None:
        """`is_packed`: whether they are one structure."""
        self.values = (ctypes.c_uint64 * max(count, 1))()
        first, step = ctypes.addressof(self.values), ctypes.sizeof(ctypes.c_uint64)
        self._places = (ctypes.c_void_p * max(count, 1))(
            *(first + step * number for number in range(1 if is_packed else count))
        )
        self.address = ctypes.addressof(self._places)
