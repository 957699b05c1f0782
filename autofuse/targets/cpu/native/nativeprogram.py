"""What the CPU code generator hands to the native runtime: kernels as LLVM IR text, and the calls of one program.

The layers above build a `CpuProgram`; `entry.NativeProgram` compiles it and makes it callable.
"""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray

from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Space = Literal["input", "output", "arena", "constant", "frame"]


@dataclass(frozen=True, slots=True)
class PhaseCode:
    """One parallel loop nest: an LLVM function `void @symbol(ptr %buffers, i64 %begin, i64 %end, ptr %scratch)`.

    `%buffers` is a table of the data pointers of the call, in the order of `KernelCall.buffers`; the function runs the
    blocks `begin` up to but not including `end`.
    """

    symbol: str
    """Name of the LLVM function, without @; not internal, unique within the program."""
    blocks: int
    """Number of independent iterations; any order and any contiguous split gives the same result."""
    task_blocks: int = 1
    """Least number of blocks worth giving one worker; 1 / `task_blocks` is also the relative cost of a block when
    phases share a launch. `blocks` or more of them keep the phase on the calling thread."""
    scratch_bytes: int = 0
    """Private memory of each worker, 64-byte aligned, contents undefined at entry; with 0, do not use the pointer."""
    tasks: float = 0.0
    """Work of all blocks together, in pieces worth giving one worker; 0: `blocks / task_blocks`. More where a single
    block is worth several."""

    @property
    def work(self) -> float:
        """The work of all blocks, in tasks."""
        return self.tasks or self.blocks / self.task_blocks


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The code of one fused kernel; compiled and cached as a unit of its own."""

    name: str
    """Unique within the program; also the prefix of its phase symbols, by convention."""
    ir: str
    """Definitions of functions, globals and metadata; no data layout, no triple, no `declare` lines. Everything but
    the phase functions should be `internal`."""
    declares: tuple[str, ...]
    """Full `declare ...` lines: intrinsics, functions of the C library, those of `nativeruntime.KERNEL_SYMBOLS`. A
    line that names a wrapper of `blas.DECLARATIONS` (`af_sgemm`) is replaced by the wrapper's definition."""
    launches: tuple[tuple[PhaseCode, ...], ...]
    """Launches run one after another; the phases of one launch are independent of each other and run as one
    fork-join over their concatenated blocks."""


@dataclass(frozen=True, slots=True)
class BufferRef:
    """Where one buffer of a kernel call lives."""

    space: Space
    index: int
    """Number of the input, output or constant; in the arena the byte offset, a multiple of 64. Inside a loop or branch,
    of the frame's pointer: calls there have no inputs and outputs but these."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One run of a kernel's code on given buffers; several calls may name one kernel."""

    kernel: str
    buffers: tuple[BufferRef, ...]
    group_place: int = 0
    """Consecutive calls whose places strictly increase (0, 1, 2) are independent of each other: their n-th launches
    are joined into one fork-join. A place that does not increase starts after everything before it has ended."""


@dataclass(frozen=True, slots=True)
class FramePointer:
    """A pointer that calls inside a loop or branch take their buffers from."""

    buffer: BufferRef
    """Where it points to when the loop begins."""
    offset: int = 0
    """Bytes behind that."""
    step: int = 0
    """Bytes by which it moves after each iteration."""


@dataclass(frozen=True, slots=True)
class RegionCall:
    """A loop or a branch around other calls, which the driver runs. See `autofuse.runtime.frames`."""

    kind: Literal["counted", "while", "branch"]
    pointers: tuple[FramePointer, ...]
    programs: tuple[tuple[Call, ...], ...]
    """What stands before all, then the body; of a `while` condition and body; of a branch the two sides."""
    moves: tuple[tuple[int, int], ...] = ()
    """(to, from), by number of pointer: after each iteration, all at once and before the steps."""
    results: tuple[tuple[int, int, int], ...] = ()
    """(to, from, bytes): copied after the last iteration, in this order, unless they are the same address."""
    trips: int = 0
    flag: int = 0
    """The pointer to the bool that decides, of a `while` and of a branch."""


Call = KernelCall | RegionCall


@dataclass(frozen=True, slots=True)
class OutputAlias:
    """An output that has no array of its own: it is written into the memory of an input (a write-back).

    The kernels must not need the input's old value after they have begun to write the output. The input must be
    writeable and of the output's type; the caller gets the input array itself back as this output.
    """

    output: int
    input: int


@dataclass(frozen=True, slots=True)
class CpuProgram:
    """All that is needed to run one plan on the CPU.

    An input must arrive as a C-contiguous, aligned array of native byte order with exactly the type stated; nothing
    may be assumed about its alignment beyond that of its element. Outputs are fresh arrays, C-contiguous.
    """

    name: str
    kernels: tuple[KernelCode, ...]
    calls: tuple[Call, ...]
    """In execution order."""
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    output_aliases: tuple[OutputAlias, ...] = ()
    constants: tuple[NDArray[Any], ...] = ()
    """Passed to kernels as C-contiguous memory, 64-byte aligned (copied where they are not)."""
    arena_bytes: int = 0
    """Size of the memory for intermediates, 64-byte aligned; each concurrent call has its own, contents undefined."""
    in_trees: tuple[Tree, ...] | None = None
    """Structures of the arguments whose arrays, in order, are the inputs; with `out_tree`, it makes `call_tree`."""
    out_tree: Tree | None = None
    """Structure of the result; its arrays are the first of the outputs, in order."""
    threads: int | None = None
    """Most threads that a launch uses, the caller included; None = as many as the process does."""
