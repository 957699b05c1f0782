"""A GPU of this machine through CuPy: its memory pool, its current device and stream, its modules."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.errors import ArgumentError, BackendError, DeviceLostError, NotEnoughMemoryError
from autofuse.ir.devicearrays import type_of_device_array
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda import cublaslt
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel
from autofuse.targets.cuda.conditions import Conditions, conditions
from autofuse.targets.cuda.cublaslt import CublasLt
from autofuse.targets.cuda.cupycalls import LEGACY, CupyEntrance
from autofuse.targets.cuda.driver import CAPTURED, CudaCode, Function, Node
from autofuse.targets.cuda.gpus import ALL, Gpu, shared_bytes_per_block
from autofuse.targets.cuda.graphs import CallNode, CudaGraph, KernelNode, bindings
from autofuse.targets.cuda.launch import LoadedKernel, cupy_with_gpu, current_arch, loaded_functions
from autofuse.targets.cuda.library.cupylibrary import CupyLibrary
from autofuse.targets.cuda.library.form import Form, Given
from autofuse.targets.cuda.machinecode import facts_of, machine_code
from autofuse.targets.cuda.productcalls import ProductFunction, product_function

LASTING = frozenset((214, 220, 700, 702, 709, 710, *range(714, 720), 721))
"""Errors after which a context does nothing more, by CUDA's numbers: uncorrectable memory and links, illegal addresses,
time-outs, assertions, and other exceptions of kernels (CUDA runtime API, "cudaError": "the process must be terminated
and relaunched")."""
_COMPILERS = os.cpu_count() or 8
"""Kernels that are compiled beside each other: NVRTC holds no lock while it does."""


class CupyDriver:
    """See `autofuse.targets.cuda.driver.Driver`."""

    def __init__(self, gpu: Gpu, device: int) -> None:
        """`gpu`: what is known of it. `device`: its number."""
        self.gpu, self._device = gpu, device
        self._cupy = cupy_with_gpu()
        self._library = CupyLibrary(self._cupy, device)
        self._lock = Lock()
        self._read: Any = None
        """The event that the device's time goes on from."""
        self._now_ns = 0
        self._streams: list[_Stream] = []
        """Others than the caller's, made when they are asked for."""

    @staticmethod
    def current() -> CupyDriver:
        """The current device's, made once per process. Raises BackendError where there is none."""
        return _driver(int(cupy_with_gpu().cuda.Device().id))

    def version(self) -> str:
        number = int(self._cupy.cuda.runtime.driverGetVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    def library(self) -> str:
        return f"cupy {self._cupy.__version__}"

    def conditions(self) -> Conditions | str:
        return conditions(self._cupy.cuda.Device(self._device).pci_bus_id)

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        with ThreadPoolExecutor(min(_COMPILERS, max(len(codes), 1))) as pool:
            return list(pool.map(self._loaded, codes))

    def _loaded(self, code: CudaCode) -> CupyFunction | ProductFunction:
        with self._cupy.cuda.Device(self._device), self._told():  # of this thread
            if code.library is None:
                return CupyFunction(LoadedKernel(code.kernel))
            return product_function(self._products, code.library, code.kernel.parameters, self._current)

    def compiled(self, kernel: CudaKernel) -> CompiledFacts:
        return facts_of(kernel)

    @cached_property
    def _products(self) -> CublasLt | None:
        with self._cupy.cuda.Device(self._device):
            return cublaslt.opened(cublaslt.bindings())

    def cublas_version(self) -> str:
        return "" if self._products is None else self._products.version

    def _current(self) -> int:
        """The caller's current stream."""
        return int(self._cupy.cuda.get_current_stream().ptr)

    @contextmanager
    def entered(self) -> Generator[None]:
        with self._cupy.cuda.Device(self._device), self._told():
            self._require_context()
            self._require_no_capture()
            yield

    @contextmanager
    def _told(self) -> Generator[None]:
        """Have errors of CUDA said by ours."""
        try:
            yield
        except Exception as error:
            said = self._said(error)
            if said is error:
                raise
            raise said from error

    def _said(self, error: Exception) -> Exception:
        cuda = self._cupy.cuda
        if isinstance(error, cuda.memory.OutOfMemoryError):
            return NotEnoughMemoryError(f"{self.gpu.name}: {error}; free device arrays, or use smaller ones")
        is_cudas = isinstance(error, cuda.runtime.CUDARuntimeError | cuda.driver.CUDADriverError)
        return self._failure(error) if is_cudas else error

    def entrance(
        self, arguments: Sequence[TensorType], results: Sequence[TensorType], arena_bytes: int
    ) -> CupyEntrance:
        return CupyEntrance(self._cupy, self._device, arguments, results, arena_bytes, self._said)

    def _require_context(self) -> None:
        """Have the device's context be this thread's, which calls of the driver need: graphs, by cuda-bindings.

        A thread gets it by its first call of the runtime that needs one, and choosing the device is none if it is
        chosen already.
        """
        if not self._cupy.cuda.driver.ctxGetCurrent():
            self._cupy.cuda.runtime.memGetInfo()

    def _failure(self, error: Any) -> BackendError:
        """What an error of CUDA means: that something failed, or that nothing more will work."""
        if int(error.status) in LASTING:
            return DeviceLostError(f"{self.gpu.name}: a kernel failed, and nothing more runs in this process: {error}")
        return BackendError(f"{self.gpu.name}: {error}")

    def _require_no_capture(self) -> None:
        """The default stream, which nobody can capture, is not asked: launches say if another's capture forbids it."""
        stream = self._cupy.cuda.get_current_stream()
        if stream.ptr > LEGACY and stream.is_capturing():
            raise BackendError(f"{self.gpu.name}: {CAPTURED}")

    def streams(self, count: int) -> Sequence[_Stream]:
        with self._lock:
            cuda = self._cupy.cuda
            self._streams += [
                _Stream(self._cupy, cuda.Stream(non_blocking=True)) for _ in range(len(self._streams), count - 1)
            ]
            return [_Stream(self._cupy, cuda.get_current_stream()), *self._streams[: count - 1]]

    def graph(self, nodes: Sequence[Node]) -> CudaGraph | None:
        driver = bindings()
        if driver is None:
            return None
        return CudaGraph(driver, self._current, [_graph_node(node) for node in nodes])

    def call(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        self._library.call(form, operands, results)

    def empty(self, kind: TensorType) -> Any:
        return self._cupy.empty(kind.shape, kind.dtype.numpy)

    def adopt(self, value: Any) -> Any | None:
        runtime = self._cupy.cuda.runtime
        try:
            if isinstance(value, self._cupy.ndarray):
                array, device = value, value.device.id
            elif hasattr(value, "__cuda_array_interface__"):
                # CuPy would copy what lies on another device, and nobody would see what is written into the copy
                array, device = self._offered(value)
            elif hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _CUDA_MEMORY:
                array = self._cupy.from_dlpack(value)
                device = array.device.id
            else:
                return None
        except (runtime.CUDARuntimeError, self._cupy.cuda.driver.CUDADriverError):
            raise
        except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(f"a {type(value).__name__} cannot be read: {error}; pass a CuPy array") from error
        if device != self._device:
            raise ArgumentError(f"lies on device {device}, and the plan runs on device {self._device}: copy it there")
        return array

    def _offered(self, value: Any) -> tuple[Any, int]:
        """The array of an object that has `__cuda_array_interface__`, and the number of its device."""
        cupy, offered = self._cupy, value.__cuda_array_interface__
        pointer = int(offered["data"][0])
        device = int(cupy.cuda.runtime.pointerGetAttributes(pointer).device) if pointer else self._device
        if device != self._device:
            return None, device
        if offered["typestr"][1:2] != "V":
            return cupy.asarray(value), device
        kind = type_of_device_array(value).dtype.numpy  # as PyTorch's bfloat16: two bytes that CuPy knows nothing of
        return cupy.asarray(_AsBits(value, f"<u{kind.itemsize}")).view(kind), device

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def is_plain(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous) and array.data.ptr % ALIGNMENT == 0

    def copied(self, array: Any) -> Any:
        return array.copy(order="C")

    def write(self, pointer: int, source: NDArray[Any]) -> None:
        self._copy(pointer, source.ctypes.data, source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)

    def read(self, pointer: int, target: NDArray[Any]) -> None:
        self._copy(target.ctypes.data, pointer, target.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)
        self._cupy.cuda.get_current_stream().synchronize()

    def assign(self, target: Any, source: Any) -> None:
        self._cupy.copyto(target, source)

    def move(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, self._cupy.cuda.runtime.memcpyDeviceToDevice)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            stream = self._cupy.cuda.get_current_stream().ptr
            self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, kind, stream)

    def wait(self) -> None:
        with self._told():
            self._cupy.cuda.get_current_stream().synchronize()

    def clock(self) -> int:
        """By events, which the device stamps. What the host does between them does not count, if it is short.

        Neither what it needs to hear of the last one, nor what it then needs to start the next kernels: behind each
        reading the device is kept busy for a while, and its time goes on from there.
        """
        cuda = self._cupy.cuda
        with cuda.Device(self._device), self._told():
            now = cuda.Event()
            now.record()
            self.wait()
            with self._lock:
                if self._read is not None:  # milliseconds in f32: of the time since the last reading only
                    self._read.synchronize()  # it may be of another stream
                    self._now_ns += max(1, round(1e6 * cuda.get_elapsed_time(self._read, now)))
                self._delay((1,), (1,), (np.int64(_DELAY_S * self.gpu.clock_hz),))
                self._read = cuda.Event()
                self._read.record()
                return self._now_ns

    @cached_property
    def _delay(self) -> Any:
        return loaded_functions(self._cupy, machine_code(_DELAY, current_arch(), "delay").cubin, ["delay"])[0]


_DELAY_S = 50e-6
"""What Python needs to start several kernels."""
_DELAY = """extern "C" __global__ void delay(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}
"""


@dataclass(frozen=True, slots=True)
class CupyFunction:
    """See `autofuse.targets.cuda.driver.Function`."""

    loaded: LoadedKernel

    def __call__(self, pointers: Sequence[int]) -> None:
        self.loaded.launch(pointers)

    @property
    def launches(self) -> int:
        return len(self.loaded.kernel.launches)


def _graph_node(node: Node) -> KernelNode | CallNode:
    match node.function:
        case ProductFunction() as function:
            return CallNode(function.start, node.pointers, node.after)
        case CupyFunction(loaded):
            packed = bool(loaded.kernel.members)
            return KernelNode(loaded.handles, loaded.kernel.launches, node.pointers, packed, node.after)
        case _:
            raise BackendError(f"a {type(node.function).__name__} is not of this driver")


class _AsBits:
    """An array of another library as unsigned integers."""

    def __init__(self, value: Any, typestr: str) -> None:
        """`value`: has `__cuda_array_interface__`, and is kept as long as this is."""
        self._value = value
        self.__cuda_array_interface__ = {**value.__cuda_array_interface__, "typestr": typestr}


class _Stream:
    """See `autofuse.targets.cuda.driver.Stream`. CuPy's, but for events, which need no times."""

    def __init__(self, cupy: Any, own: Any) -> None:
        self._cupy, self._own = cupy, own

    def __enter__(self) -> None:
        self._own.__enter__()

    def __exit__(self, *failure: object) -> None:
        self._own.__exit__(*failure)

    def record(self) -> Any:
        return self._own.record(self._cupy.cuda.Event(disable_timing=True))

    def wait_event(self, event: Any) -> None:
        self._own.wait_event(event)


_CUDA_MEMORY = (2, 13)
"""DLPack's numbers of memory of a device, and of memory that device and host share."""


@cache
def _driver(device: int) -> CupyDriver:
    return CupyDriver(described(cupy_with_gpu(), device), device)


def described(cupy: Any, device: int) -> Gpu:
    """A device by its data sheet, if it is known, with what the driver says of it; else by the driver alone."""
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    attributes = cupy.cuda.Device(device).attributes
    name, arch = properties["name"].decode(), f"sm_{properties['major']}{properties['minor']}"
    known = next((gpu for key, gpu in _BY_DRIVER_NAME.items() if key in name.lower()), None)
    if known is not None and _is_of(known, properties):
        return known
    clock_hz = attributes["ClockRate"] * 1e3
    cores = properties["multiProcessorCount"]
    return Gpu(
        name=name,
        arch=arch,
        multiprocessors=cores,
        registers=attributes["MaxRegistersPerMultiprocessor"],
        shared_bytes=attributes["MaxSharedMemoryPerMultiprocessor"],
        shared_bytes_per_block=min(attributes["MaxSharedMemoryPerBlockOptin"], shared_bytes_per_block(arch)),
        threads=attributes["MaxThreadsPerMultiProcessor"],
        blocks=attributes["MaxBlocksPerMultiprocessor"],
        l2_bytes=attributes["L2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        memory_bytes_per_s=2e3 * attributes["MemoryClockRate"] * attributes["GlobalMemoryBusWidth"] / 8,
        clock_hz=clock_hz,
        f32_flops=2.0 * _F32_PER_CLOCK * cores * clock_hz,
        matrix_flops=16.0 * _F32_PER_CLOCK * cores * clock_hz,
        tf32_flops=8.0 * _F32_PER_CLOCK * cores * clock_hz,
        source="the driver; 128 f32 units a multiprocessor, and matrix units eight times as fast, of TF32 four times",
    )


def _is_of(gpu: Gpu, properties: Mapping[str, Any]) -> bool:
    """Whether the driver's figures are the data sheet's: parts of one name have other memory (an H100 NVL)."""
    same_memory = abs(properties["totalGlobalMem"] / gpu.memory_bytes - 1) < _MEMORY_KEPT
    return same_memory and gpu.multiprocessors == properties["multiProcessorCount"]


_MEMORY_KEPT = 0.1
"""Of the memory: at most so much is kept by the driver, or for error correction."""
_F32_PER_CLOCK = 128
_BY_DRIVER_NAME = {
    "h200": ALL["h200"],
    "h100 pcie": ALL["h100-pcie"],
    "h100": ALL["h100"],
    "a100-sxm": ALL["a100"],
    "nvidia l4": ALL["l4"],
    "rtx 4090": ALL["rtx4090"],
}
"""Data sheets by what the driver calls the device; the first that fits."""
