"""What a call through CuPy asks for each time: addresses of arrays, memory, and launches without detours."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from autofuse.ir.types import TensorType
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel

LEGACY = 1
"""The greatest address that stands for the default stream."""


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
        for shape, dtype, nbytes in self._results:
            memory = alloc(nbytes)
            addresses.append(memory.ptr)
            found.append(array(shape, dtype, memory))
        addresses.append(0 if arena is None else arena.ptr)
        return found, arena

    def said(self, error: Exception) -> Exception:
        return self._said(error)


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
        self._idle: list[_Arguments] = []

    def __call__(self, pointers: Sequence[int]) -> None:
        """Start them on the current stream, on device addresses, one for each parameter in order."""
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = _Arguments(self._count, self._is_packed)
        arguments.values[: len(pointers)] = pointers
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
