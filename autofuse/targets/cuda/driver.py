"""What a CUDA target asks of a driver: memory on the device, kernels, and a clock.

`autofuse.targets.cuda.cupydriver` is the real one. `autofuse.testing.simt.device` simulates one on the host: whatever
runs on one must run on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel
from autofuse.targets.cuda.gpus import Gpu


@dataclass(frozen=True, slots=True)
class CudaCode:
    """A lowered kernel with its CUDA C, or several that are launched together."""

    program: TileProgram
    """Of several, the first."""
    kernel: CudaKernel
    together_us: float | None = None
    """Of several: what the model says that they take."""


class Function(Protocol):
    """A kernel, loaded on a device."""

    def __call__(self, pointers: Sequence[int]) -> None:
        """Start its launches, in order, on the caller's current stream.

        `pointers`: one device address for each of the kernel's parameters, in order. Raises BackendError.
        """
        ...


class Driver(Protocol):
    """One device. All methods may be called from any thread; work is ordered by the caller's current stream."""

    @property
    def gpu(self) -> Gpu:
        """The device."""
        ...

    def version(self) -> str:
        """Of the driver, for the identity of plans."""
        ...

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        """Compile kernels and load them, beside each other. Raises BackendError."""
        ...

    def empty(self, kind: TensorType) -> Any:
        """An array on the device, its elements undefined, whose memory goes back when nobody has it.

        Raises NotEnoughMemoryError.
        """
        ...

    def adopt(self, value: Any) -> Any | None:
        """The device's array that `value` is, or that it offers by `__cuda_array_interface__` or DLPack.

        None for what is not on a device. Raises ArgumentError for an array on another device.
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

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device."""
        ...

    def wait(self) -> None:
        """Until all that was started is done. Raises BackendError for what went wrong meanwhile."""
        ...

    def clock(self) -> int:
        """Nanoseconds, when all that was started before is done."""
        ...
