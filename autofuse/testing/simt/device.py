"""A simulated GPU behind the driver's interface: kernels run in the shim, and its clock is the cost model's.

What a driver would not forgive is an error: addresses in memory that was given back or never handed out, buffers that
are too short or not aligned, writes beside a buffer or into an input. Memory is poisoned when it is handed out. The
threads of each launch run forwards or backwards, drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from threading import Lock
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import KernelFacts, Prices
from autofuse.errors import ArgumentError, BackendError, NotEnoughMemoryError
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.tile import Buffer, Space
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.driver import CudaCode, Function
from autofuse.targets.cuda.gpus import Gpu
from autofuse.testing.simt.runner import Order, SimtModule

_REDZONE = 256
_POISON = 0xFF
_COPY_NS = 5_000_000
SLOWER = 1000
"""Times the device that it is like: few calls then fill a moment, as each takes the host milliseconds."""


class SimulatedModel(GpuModel):
    """The model, of a device that is so much slower."""

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        found = super().price(kernels)
        return replace(found, us=found.us * SLOWER, floor_us=found.floor_us * SLOWER)

    def write_us(self, value: TensorType) -> float:
        return super().write_us(value) * SLOWER

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "analytical-simulated"}


class SimulatedArray:
    """An array on the simulated device: what of CuPy's arrays callers need."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Poisoned memory between two redzones."""
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self.memory = np.full(self.nbytes + 3 * _REDZONE, _POISON, np.uint8)
        self._start = _REDZONE + -(self.memory.ctypes.data + _REDZONE) % _REDZONE
        self.data = SimpleNamespace(ptr=self.memory.ctypes.data + self._start)
        self.flags = SimpleNamespace(c_contiguous=True)

    @property
    def host(self) -> NDArray[Any]:
        """Its elements, where they are."""
        raw = self.memory[self._start : self._start + self.nbytes]
        return raw.view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """What other libraries ask."""
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False)}

    def __getitem__(self, key: tuple[()]) -> SimulatedArray:
        """Itself: an array of the device has no scalars."""
        assert key == ()
        return self

    def get(self) -> NDArray[Any]:
        """A copy on the host."""
        return self.host.copy()

    def check(self) -> None:
        """Raise BackendError if something wrote beside it."""
        beside = (self.memory[: self._start], self.memory[self._start + self.nbytes :])
        if any((part != _POISON).any() for part in beside):
            raise BackendError(f"a kernel writes outside an array {self.dtype}{list(self.shape)}")


class SimulatedDriver:
    """See `autofuse.targets.cuda.driver.Driver`. Each is a device of its own."""

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        """`gpu`: the device that it is like. `seed`: of the order in which threads and blocks run."""
        self.gpu = gpu
        self._model = SimulatedModel(gpu)
        self._now, self._used = 0, 0
        self._lock = Lock()
        self._random = random.Random(seed)
        self._live: WeakValueDictionary[int, SimulatedArray] = WeakValueDictionary()

    def version(self) -> str:
        return "simulated"

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        module = SimtModule([code.kernel for code in codes])
        prices = self._model.price([KernelFacts(code.program) for code in codes])
        expected = [
            us if code.together_us is None else SLOWER * code.together_us
            for code, us in zip(codes, prices.us, strict=True)
        ]
        times = [max(1, round(1e3 * us)) for us in expected]
        return [_Function(self, module, code, time) for code, time in zip(codes, times, strict=True)]

    def empty(self, kind: TensorType) -> SimulatedArray:
        if kind.nbytes > self.gpu.memory_bytes:
            raise NotEnoughMemoryError(f"{self.gpu.name}: has {self.gpu.memory_bytes} bytes, asked for {kind.nbytes}")
        array = SimulatedArray(kind.shape, kind.dtype.numpy)
        with self._lock:
            self._live[array.data.ptr] = array
        return array

    def adopt(self, value: Any) -> SimulatedArray | None:
        if not hasattr(type(value), "__cuda_array_interface__"):
            return None
        with self._lock:
            found = self._live.get(value.__cuda_array_interface__["data"][0])
        if found is None:
            raise ArgumentError("an array lies on another simulated device than the plan's: copy it there")
        return found

    def array(self, source: NDArray[Any]) -> SimulatedArray:
        """A copy on the device, as `cupy.asarray` makes one."""
        array = SimulatedArray(source.shape, source.dtype)
        array.host[...] = source
        with self._lock:
            self._live[array.data.ptr] = array
        return array

    def pointer(self, array: SimulatedArray) -> int:
        return array.data.ptr

    def is_plain(self, array: SimulatedArray) -> bool:
        return bool(array.flags.c_contiguous) and array.data.ptr % ALIGNMENT == 0

    def copied(self, array: SimulatedArray) -> SimulatedArray:
        return self.array(array.host)

    def write(self, pointer: int, source: NDArray[Any]) -> None:
        self._bytes(pointer, source.nbytes)[...] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        self.advance(_COPY_NS)

    def read(self, pointer: int, target: NDArray[Any]) -> None:
        target.reshape(-1).view(np.uint8)[...] = self._bytes(pointer, target.nbytes)
        self.advance(_COPY_NS)

    def move(self, target: int, source: int, nbytes: int) -> None:
        self._bytes(target, nbytes)[...] = self._bytes(source, nbytes)
        self.advance(_COPY_NS)

    def wait(self) -> None:
        """Nothing is ever under way."""

    def clock(self) -> int:
        with self._lock:
            return self._now

    def advance(self, nanoseconds: int) -> None:
        """Let time pass."""
        with self._lock:
            self._now += nanoseconds

    def order(self) -> Order:
        """In which threads run now."""
        with self._lock:
            return self._random.choice(("forward", "reverse"))

    def holder(self, pointer: int, nbytes: int) -> SimulatedArray:
        """The array whose memory that is. Raises BackendError for memory that nobody has."""
        with self._lock:
            arrays = list(self._live.values())
        for array in arrays:
            if array.data.ptr <= pointer and pointer + nbytes <= array.data.ptr + array.nbytes:
                return array
        raise BackendError(f"an illegal memory access: nobody has the {nbytes} bytes at {pointer:#x}")

    def _bytes(self, pointer: int, nbytes: int) -> NDArray[np.uint8]:
        if not nbytes:
            return np.empty(0, np.uint8)
        array = self.holder(pointer, nbytes)
        start = pointer - array.memory.ctypes.data
        return array.memory[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class _Function:
    driver: SimulatedDriver
    module: SimtModule
    code: CudaCode
    takes_ns: int

    def __call__(self, pointers: Sequence[int]) -> None:
        kernel = self.code.kernel
        held = [self._held(buffer, at) for buffer, at in zip(kernel.parameters, pointers, strict=True)]
        _require_apart(kernel, pointers)
        read = [
            (buffer.name, at, bytes(_raw(array, at, buffer.type.nbytes)))
            for buffer, at, array in zip(kernel.parameters, pointers, held, strict=True)
            if buffer.space is Space.INPUT and not self._is_written(buffer, pointers)
        ]
        self.module.run_at(kernel, pointers, order=self.driver.order())
        self.driver.advance(self.takes_ns)
        for array in held:
            array.check()
        by_address = dict(zip(pointers, held, strict=True))
        for name, at, before in read:
            if bytes(_raw(by_address[at], at, len(before))) != before:
                raise BackendError(f"{kernel.name} writes to its input {name}")

    def _held(self, buffer: Buffer, pointer: int) -> SimulatedArray:
        if pointer % ALIGNMENT:
            raise BackendError(f"{self.code.kernel.name}: buffer {buffer.name} at {pointer:#x} is not aligned")
        return self.driver.holder(pointer, buffer.type.nbytes)

    def _is_written(self, buffer: Buffer, pointers: Sequence[int]) -> bool:
        """Whether an output of the kernel lies where this input does: the plan lets it write there."""
        at = {b.name: pointer for b, pointer in zip(self.code.kernel.parameters, pointers, strict=True)}
        outputs = [b for b in self.code.kernel.parameters if b.space is not Space.INPUT]
        return any(at[buffer.name] == at[output.name] for output in outputs)


def _require_apart(kernel: CudaKernel, pointers: Sequence[int]) -> None:
    """Raise BackendError if kernels that are launched together touch what one of them writes."""
    members = [number for number, count in enumerate(kernel.members) for _ in range(count)]
    touched = sorted(
        (at, at + buffer.type.nbytes, member, buffer.space is not Space.INPUT, buffer.name)
        for member, buffer, at in zip(members, kernel.parameters, pointers, strict=bool(members))
        if buffer.type.nbytes
    )
    for number, (_, end, member, written, name) in enumerate(touched):
        for at, _, other, writes, second in touched[number + 1 :]:
            if at >= end:
                break
            if member != other and (written or writes):
                raise BackendError(f"{kernel.name}: members that run at the same time share memory: {name}, {second}")


def _raw(array: SimulatedArray, pointer: int, nbytes: int) -> NDArray[np.uint8]:
    start = pointer - array.memory.ctypes.data
    return array.memory[start : start + nbytes]
