"""What a CUDA target asks of a driver: memory on the device, kernels, and a clock.

`autofuse.targets.cuda.cupydriver` is the real one. `autofuse.testing.simt.device` simulates one on the host: whatever
runs on one must run on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel
from autofuse.targets.cuda.codegen.together import Copies
from autofuse.targets.cuda.conditions import Conditions
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.library.form import Form, Given
from autofuse.targets.cuda.productcalls import LibraryCode


@dataclass(frozen=True, slots=True)
class CudaCode:
    """A lowered kernel with its CUDA C, or several that are launched together."""

    program: TileProgram | OpaqueProgram
    """Of several, the first."""
    kernel: CudaKernel
    together_us: float | None = None
    """Of several: what the model says that they take."""
    library: LibraryCode | None = None
    """What cuBLASLt does in place of the kernel."""
    copies: tuple[Copies, ...] = ()
    """Of several: all programs, and how many of each there are."""


class Function(Protocol):
    """A kernel, loaded on a device."""

    def __call__(self, pointers: Sequence[int]) -> None:
        """Start its launches, in order, on the caller's current stream.

        `pointers`: one device address for each of the kernel's parameters, in order. Raises BackendError.
        """
        ...

    @property
    def launches(self) -> int:
        """Grids that it starts."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """A function in a graph."""

    function: Function
    pointers: Sequence[int]
    after: tuple[int, ...]
    """Earlier nodes that it must wait for."""


class Graph(Protocol):
    """Functions that are started together. Its launches wait for each other; one thread at a time may call it."""

    def __call__(self, changed: Mapping[int, Sequence[int]]) -> None:
        """Start all of it on the caller's current stream.

        `changed`: nodes that see other addresses from now on, by number. Raises BackendError; then it is not to be
        called again.
        """
        ...


class Stream(Protocol):
    """Work that is done one after another. `with stream:` has this thread start work in it."""

    def __enter__(self) -> object: ...
    def __exit__(self, *failure: object) -> object: ...
    def record(self) -> Any:
        """An event: all that was started in it until now."""
        ...

    def wait_event(self, event: Any) -> None:
        """Have what is started in it from now on wait for an event."""
        ...


class Entrance(Protocol):
    """What each call of a plan asks for, made ready, where all arguments lie on the device."""

    def taken(self, arguments: Sequence[Any]) -> list[int] | None:
        """Addresses of the arguments.

        None where one is not the device's own array, plain and of its type, or where this thread may not use the device
        as it is: `Driver.entered` is for it then.
        """
        ...

    def made(self, addresses: list[int]) -> tuple[list[Any], Any]:
        """Arrays for the results, and one for the arena, whose memory goes back when nobody has it.

        Their addresses are added to those that there are. Raises what `said` is for.
        """
        ...

    def said(self, error: Exception) -> Exception:
        """What an error of the device means to whoever calls the plan; others are given back."""
        ...


CAPTURED = (
    "the current stream is being captured into a graph; a plan takes memory that is given back when its call ends, and "
    "starts its kernels as a graph of its own: call it outside the capture"
)
"""What a call says of such a stream."""


class Driver(Protocol):
    """One device. All methods may be called from any thread; work is ordered by the caller's current stream.

    Which stream that is holds within `entered` only, and so does which device memory is taken on.
    """

    @property
    def gpu(self) -> Gpu:
        """The device."""
        ...

    def version(self) -> str:
        """Of the driver, for the identity of plans."""
        ...

    def library(self) -> str:
        """The array library that calls are made with, and its version, for the identity of plans."""
        ...

    def cublas_version(self) -> str:
        """Of cuBLASLt, for the identity of plans; empty where there are no bindings of it."""
        ...

    def conditions(self) -> Conditions | str:
        """Clocks and temperature at the moment; or why they are not known."""
        ...

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        """Compile kernels and load them, beside each other. Raises BackendError.

        So it does where cuBLASLt is to compute one, and is not here or refuses.
        """
        ...

    def compiled(self, kernel: CudaKernel) -> CompiledFacts | None:
        """What the compiler of a kernel that was loaded said of it; None where that is another one than the device's.

        Raises BackendError for what it refuses.
        """
        ...

    def entered(self) -> AbstractContextManager[None]:
        """Have this thread use the device, for a call of a plan. Raises BackendError where that cannot be.

        So it is while the caller's current stream is being captured.
        """
        ...

    def entrance(self, arguments: Sequence[TensorType], results: Sequence[TensorType], arena_bytes: int) -> Entrance:
        """For calls of a plan with such arguments and results."""
        ...

    def streams(self, count: int) -> Sequence[Stream]:
        """The caller's current stream, and others that belong to the device: `count` in all.

        Several threads may use the others at once, which then wait for more than they must.
        """
        ...

    def graph(self, nodes: Sequence[Node]) -> Graph | None:
        """A graph of functions that this driver loaded; None where there are none. Raises BackendError."""
        ...

    def call(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        """Start what the device's array library computes, on the caller's current stream.

        Results may lie where no operand does. A form that `raises` is done when this returns. Raises CallError, for
        what the library refuses, BackendError and NotEnoughMemoryError.
        """
        ...

    def empty(self, kind: TensorType) -> Any:
        """An array on the device, its elements undefined, whose memory goes back when nobody has it.

        Raises NotEnoughMemoryError.
        """
        ...

    def adopt(self, value: Any) -> Any | None:
        """The device's array that `value` is, or that it offers by `__cuda_array_interface__` or DLPack.

        None for what is not on a device. Raises ArgumentError for an array on another device, or that cannot be read.
        """
        ...

    def pointer(self, array: Any) -> int:
        """The address of an array's first element."""
        ...

    def is_plain(self, array: Any) -> bool:
        """Whether a kernel takes the array as it is: C-contiguous, and aligned."""
        ...

    def copied(self, array: Any) -> Any:
        """A plain copy on the device."""
        ...

    def write(self, pointer: int, source: NDArray[Any]) -> None:
        """Copy a C-contiguous array of the host to the device. It may be changed when this returns."""
        ...

    def read(self, pointer: int, target: NDArray[Any]) -> None:
        """Copy from the device into a C-contiguous array of the host, when all that was started before is done."""
        ...

    def assign(self, target: Any, source: Any) -> None:
        """Copy the elements of an array of the device into another of the same type, with any strides."""
        ...

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device."""
        ...

    def wait(self) -> None:
        """Until all that was started is done. Raises BackendError for what went wrong meanwhile.

        DeviceLostError where nothing can be started any more: other methods then raise it too.
        """
        ...

    def clock(self) -> int:
        """Nanoseconds, when all that was started before is done."""
        ...
