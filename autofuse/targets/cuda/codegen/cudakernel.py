"""What code generation yields: CUDA C text, and how to launch it."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer

ALIGNMENT = 16
"""Every buffer passed to a kernel must start at a multiple of this many bytes: vector loads rely on it."""


@dataclass(frozen=True, slots=True)
class CudaLaunch:
    """One `__global__` function and its launch configuration."""

    function: str
    grid: tuple[int, int, int]
    """Blocks."""
    block: tuple[int, int, int]
    """Threads."""
    shared_bytes: int
    """Dynamic shared memory of one block; above 48 KiB the function's attribute must be raised first."""
    cluster: int = 1
    """Neighbouring blocks that run together and reach each other's shared memory, as the function itself says. More
    than eight have to be allowed by an attribute of the function."""
    tasks: int = 0
    """Equal parts of the work, which blocks take in turn: a grid of fewer blocks does the same. 0: each block has a
    part of its own, and the grid is as it must be."""


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """The CUDA C of one TileProgram."""

    name: str
    """The program's name; symbols start with it."""
    source: str
    launches: tuple[CudaLaunch, ...]
    """Run in order on one stream."""
    parameters: tuple[Buffer, ...]
    """The pointer arguments of every function, in order; row-major and aligned to `ALIGNMENT`."""
    arch: str
    """The architecture that the capacities were taken from."""
    members: tuple[int, ...] = ()
    """How many parameters each kernel has of those that are launched together; then every function takes one argument,
    a structure of all addresses. Empty: the kernel is one, and each address an argument."""
