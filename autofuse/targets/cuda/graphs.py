"""Kernels as the nodes of a CUDA graph, built by hand through cuda-bindings: a replay is one call of the driver.

Capturing a stream would do for kernels too, but a captured graph does not say which node a launch became, and so could
not be told other addresses. Of a library nobody else knows the kernels: its call is captured, and becomes a child
graph, which another capture replaces where addresses change. Nothing here needs a GPU to be imported; cuda-bindings is
asked for by its module's name.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen.cudakernel import CudaLaunch


class Bindings(Protocol):
    """What of `cuda.bindings.driver` is used. Its functions give a status, and after it what they make."""

    CUDA_KERNEL_NODE_PARAMS: Callable[[], Any]
    CUfunction: Callable[[int], Any]
    CUstream: Callable[[int], Any]
    CUstreamCaptureMode: Callable[[int], Any]

    def cuGraphCreate(self, flags: int) -> tuple[Any, ...]: ...  # noqa: N802  # CUDA's names
    def cuGraphAddKernelNode(self, graph: Any, dependencies: Any, count: int, params: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphAddChildGraphNode(self, graph: Any, dependencies: Any, count: int, child: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphExecChildGraphNodeSetParams(self, execution: Any, node: Any, child: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]: ...  # noqa: N802
    def cuStreamDestroy(self, stream: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuStreamEndCapture(self, stream: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphExecKernelNodeSetParams(self, execution: Any, node: Any, params: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphLaunch(self, execution: Any, stream: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphExecDestroy(self, execution: Any) -> tuple[Any, ...]: ...  # noqa: N802
    def cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]: ...  # noqa: N802


@cache
def bindings() -> Bindings | None:
    """cuda-bindings, if it is installed."""
    try:
        return cast("Bindings", import_module("cuda.bindings.driver"))
    except ImportError:
        return None


@dataclass(frozen=True, slots=True)
class KernelNode:
    """The launches of one kernel, which follow each other."""

    handles: Sequence[int]
    """Of the driver (`CUfunction`), one for each launch."""
    launches: Sequence[CudaLaunch]
    pointers: Sequence[int]
    """Addresses of the parameters."""
    is_packed: bool
    """Whether its one argument is a structure of all addresses."""
    after: tuple[int, ...]
    """Earlier kernels that must be done before."""


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call of a library that starts kernels in a stream."""

    start: Callable[[Sequence[int], int], None]
    """(addresses, stream)."""
    pointers: Sequence[int]
    after: tuple[int, ...]
    """As of a kernel."""


_NON_BLOCKING, _OF_THIS_THREAD = 1, 1
"""CU_STREAM_NON_BLOCKING; CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile is their matter."""


class CudaGraph:
    """See `autofuse.targets.cuda.driver.Graph`. Belongs to the context that is current when it is made."""

    def __init__(self, driver: Bindings, stream: Callable[[], int], kernels: Sequence[KernelNode | CallNode]) -> None:
        """`stream`: gives the caller's current one. Raises BackendError, and then leaves nothing behind."""
        self._driver, self._stream, self._kernels = driver, stream, list(kernels)
        self._nodes: list[list[Any]] = []
        self._execution: Any = None
        self._graph = self._asked("cuGraphCreate", 0)
        for kernel in self._kernels:
            self._add(kernel)
        self._execution = self._asked("cuGraphInstantiate", self._graph, 0)

    def _add(self, kernel: KernelNode | CallNode) -> None:
        before = [self._nodes[number][-1] for number in kernel.after]
        if isinstance(kernel, CallNode):
            with self._captured(kernel, kernel.pointers) as child:
                self._nodes.append([self._asked("cuGraphAddChildGraphNode", self._graph, before, len(before), child)])
            return
        nodes: list[Any] = []
        for handle, launch in zip(kernel.handles, kernel.launches, strict=True):
            with_memory = _Parameters(self._driver, handle, launch, kernel.pointers, kernel.is_packed)
            nodes.append(self._asked("cuGraphAddKernelNode", self._graph, before, len(before), with_memory.parameters))
            before = nodes[-1:]
        self._nodes.append(nodes)

    def __call__(self, changed: Mapping[int, Sequence[int]]) -> None:
        for number, pointers in changed.items():
            kernel = self._kernels[number]
            if isinstance(kernel, CallNode):
                with self._captured(kernel, pointers) as child:
                    (node,) = self._nodes[number]
                    self._asked("cuGraphExecChildGraphNodeSetParams", self._execution, node, child)
                continue
            for node, handle, launch in zip(self._nodes[number], kernel.handles, kernel.launches, strict=True):
                with_memory = _Parameters(self._driver, handle, launch, pointers, kernel.is_packed)
                self._asked("cuGraphExecKernelNodeSetParams", self._execution, node, with_memory.parameters)
        self._asked("cuGraphLaunch", self._execution, self._driver.CUstream(self._stream()))

    @contextmanager
    def _captured(self, call: CallNode, pointers: Sequence[int]) -> Generator[Any]:
        """A graph of what a library starts, for as long as it takes to copy it."""
        driver = self._driver
        stream = self._asked("cuStreamCreate", _NON_BLOCKING)
        child: Any = None
        try:
            self._asked("cuStreamBeginCapture", stream, driver.CUstreamCaptureMode(_OF_THIS_THREAD))
            try:
                call.start(pointers, int(stream))
            except BaseException:
                driver.cuStreamEndCapture(stream)
                raise
            child = self._asked("cuStreamEndCapture", stream)
            yield child
        finally:
            if child is not None:
                driver.cuGraphDestroy(child)
            driver.cuStreamDestroy(stream)

    def _asked(self, name: str, *arguments: Any) -> Any:
        try:
            status, *made = getattr(self._driver, name)(*arguments)
        except (
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # of the bindings themselves: no driver, no such function
            raise BackendError(f"{name} failed: {type(error).__name__}: {error}") from error
        if int(status):
            raise BackendError(f"{name} failed: {getattr(status, 'name', status)}")
        return made[0] if made else None

    def __del__(self) -> None:
        """What is running is done first; the driver sees to it. At the end of the process all goes with its context."""
        if sys.is_finalizing():
            return
        if self._execution is not None:
            self._driver.cuGraphExecDestroy(self._execution)
        if getattr(self, "_graph", None) is not None:
            self._driver.cuGraphDestroy(self._graph)


class _Parameters:
    """The driver's structure for one launch, and the memory that it points into, which the driver copies."""

    def __init__(
        self, driver: Bindings, handle: int, launch: CudaLaunch, pointers: Sequence[int], is_packed: bool
    ) -> None:
        self._values = (ctypes.c_uint64 * max(1, len(pointers)))(*pointers)
        first, step = ctypes.addressof(self._values), ctypes.sizeof(ctypes.c_uint64)
        addresses = [first + step * number for number in range(1 if is_packed else max(1, len(pointers)))]
        self._addresses = (ctypes.c_void_p * len(addresses))(*addresses)
        self.parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        self.parameters.func = driver.CUfunction(handle)
        self.parameters.gridDimX, self.parameters.gridDimY, self.parameters.gridDimZ = launch.grid
        self.parameters.blockDimX, self.parameters.blockDimY, self.parameters.blockDimZ = launch.block
        self.parameters.sharedMemBytes = launch.shared_bytes
        self.parameters.kernelParams = ctypes.addressof(self._addresses)
