"""Launching a CudaKernel through CuPy, on the caller's current device and stream.

Machine code comes from `nvrtc.compile_source` (so that what runs is what was inspected), and every launch goes to
`cupy.cuda.get_current_stream()`. CuPy is imported on first use.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from autofuse.errors import ArgumentError, BackendError
from autofuse.lower.tile import Buffer, Space
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel
from autofuse.targets.cuda.cupycalls import Launcher
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.nvrtc import Compiled

DEFAULT_SHARED_BYTES = 48 * 1024
"""What a block may have without asking."""
MOST_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every device with clusters has room for."""
_MOST_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTERS = 8, 14
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED of the
driver's interface."""


@cache
def gpu_problem() -> str | None:
    """Why no kernel can be launched on this machine, in one line; None if one can."""
    if not _has_driver():
        return "there is no NVIDIA driver on this machine"
    try:
        cupy: Any = import_module("cupy")
    except ImportError:
        return "CuPy is not installed; install it with: pip install 'autofuse[cuda]'"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "InsufficientDriver" in str(error):
            return f"the NVIDIA driver is older than the CUDA that CuPy was built for; update the driver ({error})"
        return f"CUDA finds no GPU: {error}"
    return None if count else "CUDA finds no GPU: there is no device"


def driver_library() -> str | None:
    """The driver's library if it can be loaded, from wherever the system finds it."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    return name


def _has_driver() -> bool:
    """A quick look, so that machines without a GPU need not import CuPy to know."""
    return driver_library() is not None


def cupy_with_gpu() -> Any:
    """The cupy module. Raises BackendError where no kernel can be launched."""
    problem = gpu_problem()
    if problem is not None:
        raise BackendError(problem)
    return import_module("cupy")


def current_arch() -> str:
    """The architecture of the current device, as NVRTC names it: `sm_90`."""
    return f"sm_{cupy_with_gpu().cuda.Device().compute_capability}"


class LoadedKernel:
    """A kernel loaded on the current device.

    Launches are asynchronous, as all CuPy work is. Safe to call from several threads; the workspace of one object is
    shared by its calls, which therefore must be on one stream (or ordered by events).
    """

    def __init__(self, kernel: CudaKernel) -> None:
        """Compile for the current device and load. Raises BackendError without a GPU, or if it is too small."""
        cupy = cupy_with_gpu()
        self.kernel = kernel
        device = cupy.cuda.Device()
        most = int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        for launch in kernel.launches:
            if launch.shared_bytes > most:
                raise BackendError(
                    f"{launch.function} was generated for {kernel.arch} and needs {launch.shared_bytes} bytes of "
                    f"shared memory per block; this device has {most}: generate it for {current_arch()}"
                )
        self.compiled: Compiled = machine_code(kernel.source, current_arch(), kernel.name)
        self._functions = self._load(cupy)
        self.launch = Launcher(cupy, kernel, self.handles)
        """Runs it on device addresses, one for each parameter in order, on the current stream."""
        self._workspaces: dict[str, Any] = {}

    def _load(self, cupy: Any) -> list[Any]:
        names = [launch.function for launch in self.kernel.launches]
        functions = loaded_functions(cupy, self.compiled.cubin, names)
        for function, launch in zip(functions, self.kernel.launches, strict=True):
            if launch.shared_bytes > DEFAULT_SHARED_BYTES:
                cupy.cuda.driver.funcSetAttribute(function.ptr, _MOST_DYNAMIC_SHARED, launch.shared_bytes)
            if launch.cluster > MOST_PORTABLE_CLUSTER:
                cupy.cuda.driver.funcSetAttribute(function.ptr, _NON_PORTABLE_CLUSTERS, 1)
        return functions

    def __call__(self, buffers: Mapping[str, Any]) -> None:
        """Run on CuPy arrays by buffer name (a WORKSPACE may be left out), on the current stream.

        Raises ArgumentError for an array that is missing, of another shape, dtype or layout, or not aligned.
        """
        self.launch([self._argument(buffer, buffers).data.ptr for buffer in self.kernel.parameters])

    @property
    def handles(self) -> list[int]:
        """The driver's own of its launches (`CUfunction`)."""
        return [int(function.ptr) for function in self._functions]

    def _argument(self, buffer: Buffer, buffers: Mapping[str, Any]) -> Any:
        if buffer.space is Space.WORKSPACE and buffer.name not in buffers:
            if buffer.name not in self._workspaces:
                self._workspaces[buffer.name] = cupy_with_gpu().empty(buffer.type.shape, buffer.type.dtype.numpy)
            return self._workspaces[buffer.name]
        array = buffers.get(buffer.name)
        if array is None:
            raise ArgumentError(f"kernel {self.kernel.name} needs buffer {buffer.name}; got {', '.join(buffers)}")
        check_argument(buffer, array)
        return array


def loaded_functions(cupy: Any, cubin: bytes, names: Sequence[str]) -> list[Any]:
    """Functions of machine code on the current device, which is unloaded when nobody has them."""
    module = cupy.cuda.function.Module()
    module.load(cubin)
    return [module.get_function(name) for name in names]


def check_argument(buffer: Buffer, array: Any) -> None:
    """Raise ArgumentError unless a device array can be passed for `buffer`."""
    type_ = buffer.type
    itemsize = type_.dtype.itemsize
    if tuple(array.shape) != type_.shape or array.dtype.itemsize != itemsize or not array.flags.c_contiguous:
        raise ArgumentError(
            f"buffer {buffer.name} must be a C-contiguous {type_}, got {array.dtype}{list(array.shape)}; "
            "convert it with cupy.ascontiguousarray(array, dtype)"
        )
    if type_.size and array.data.ptr % ALIGNMENT:
        raise ArgumentError(
            f"buffer {buffer.name} must start at a multiple of {ALIGNMENT} bytes, got address {array.data.ptr:#x} "
            "(a view into a larger array?); pass a copy of it"
        )
