"""What a kernel asks of memory, counted: bytes, sectors and wavefronts of its warps' instructions, without a GPU.

The unchanged kernel runs in the shim, compiled with hooks at each access. Accesses that the threads of a warp make at
the same place and for the same time are one instruction. A few blocks stand for all: they are spread evenly over the
launch, and what they need is counted of them alone.

A byte that several lanes of an instruction ask for is asked for once: memory is asked once, and all of them get it.
What a block reads again soon is in L1; so a stencil's points, and a scalar that all threads read, cost no memory twice.
Warps run one after the other between two barriers, so what one walks alone is found there more often than on a GPU.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch
from autofuse.testing.simt.memory import Block
from autofuse.testing.simt.runner import compiled, namespace_of, translation_unit

_MESSAGE = 1024
SECTOR_BYTES = 32
_VECTOR_BYTES = 16
_L1_BYTES = 128 << 10
"""Of a multiprocessor: of the 192 KiB (sm_80) or 256 KiB (sm_90) that it shares with shared memory."""
_THREADS = 2048
"""That a multiprocessor holds."""
_FEWEST_THREADS = 64
"""Of a block's share of it: a multiprocessor holds at most 32 blocks."""
_LARGE = 16
"""A parameter of a launch counts as large if it has at least one part in so many of the bytes of the largest."""
_FIGURES = 12


@dataclass(frozen=True, slots=True)
class Counts:
    """Of the blocks of one launch that ran. Bytes and sectors are those of global memory."""

    function: str
    blocks: int
    """Of the launch."""
    ran: int
    """Of these, how many ran and were counted."""
    read_bytes: int
    """Asked for by all instructions of warps."""
    written_bytes: int
    needed_read_bytes: int
    """Distinct bytes among them."""
    needed_written_bytes: int
    fetched_bytes: int
    """Of those read, what was not in the block's share of L1."""
    sectors: int
    """Of 32 bytes, asked for by all instructions of warps; a sector twice in one instruction counts once."""
    ideal_sectors: int
    """If the bytes of each instruction lay side by side."""
    wide_bytes: int
    """Asked for by accesses of 16 bytes a thread, or of as many elements as 16 bytes hold of the widest type: a thread
    that had 16 bytes of narrower ones would walk the widest with gaps."""
    instructions: int
    """Loads and stores, by warps."""
    wavefronts: int
    """Of shared memory: a bank gives one word in each."""
    ideal_wavefronts: int
    copied_bytes: int = 0
    """Of asynchronous copies, the most that a thread has under way."""
    fetched_of: tuple[int, ...] = ()
    """`fetched_bytes` of each parameter."""

    @property
    def repeated(self) -> float:
        """Bytes asked of memory over bytes needed: 1 where everything is asked for once, or soon again."""
        return _ratio(self.fetched_bytes + self.written_bytes, self.needed_read_bytes + self.needed_written_bytes)

    @property
    def scattered(self) -> float:
        """Sectors asked for over those that the same bytes fill: 1 where neighbours ask for neighbours."""
        return _ratio(self.sectors, self.ideal_sectors)

    @property
    def wide(self) -> float:
        """Share of bytes that come by wide accesses."""
        return self.wide_bytes / max(self.read_bytes + self.written_bytes, 1)

    @property
    def conflicted(self) -> float:
        """Wavefronts over those that a layout without bank conflicts takes."""
        return _ratio(self.wavefronts, self.ideal_wavefronts)


def _ratio(what: int, of: int) -> float:
    return what / of if of else 1.0


def count(
    kernel: CudaKernel, inputs: Mapping[str, NDArray[Any]] | None = None, most_blocks: int = 32
) -> tuple[Counts, ...]:
    """Run some blocks of each launch of a kernel, and count. A block has one task, where it could take several.

    `inputs`: values of parameters, by name; zeros for the others. `most_blocks`: of each launch, at most so many run.
    Raises BackendError for what the shim detects, and without a C++ compiler.
    """
    # unrolled as on a device, so that each round of a loop is a place of its own where lanes may sit it out
    source = re.sub(r"#pragma unroll( 8)?\n", "#pragma GCC unroll 64\n", translation_unit([kernel]))
    library = ctypes.CDLL(str(compiled(source, "counts")))
    blocks = [Block(buffer.type.nbytes) for buffer in kernel.parameters]
    for buffer, block in zip(kernel.parameters, blocks, strict=True):
        block.begin(buffer.type.nbytes)
        elements = block.bytes_at(block.address, buffer.type.nbytes).view(buffer.type.dtype.numpy)
        elements.reshape(buffer.type.shape)[...] = (inputs or {}).get(buffer.name, 0)
    return tuple(_counted(library, kernel, launch, blocks, most_blocks) for launch in kernel.launches)


def _counted(
    library: ctypes.CDLL, kernel: CudaKernel, launch: CudaLaunch, buffers: Sequence[Block], most_blocks: int
) -> Counts:
    pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.address for buffer in buffers))
    sizes = (ctypes.c_ulonglong * max(1, len(buffers)))(*(buffer.nbytes or 0 for buffer in buffers))
    grid = (launch.tasks, 1, 1) if launch.tasks else launch.grid
    blocks = math.prod(grid)
    clusters = blocks // launch.cluster
    every = max(1, -(-clusters * launch.cluster // max(most_blocks, launch.cluster)))
    step = ctypes.c_uint64.in_dll(library, "_ZN4simt11count_everyE")  # one for all libraries of this process
    wide = (ctypes.c_int * max(1, len(buffers)))(*_wide_from(kernel))
    threads = max(_FEWEST_THREADS, launch.block[0] * launch.block[1] * launch.block[2])
    library.count_begin(len(buffers), pointers, sizes, wide, _L1_BYTES * threads // _THREADS)
    shape, block = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*launch.block)
    message = ctypes.create_string_buffer(_MESSAGE)
    run: Any = getattr(library, f"run_{namespace_of(0)}_{launch.function}")
    sizes_of_blocks = (ctypes.c_size_t(launch.shared_bytes), ctypes.c_int(launch.cluster))
    try:
        step.value = every
        failed = run(pointers, shape, block, *sizes_of_blocks, ctypes.c_int(0), message)
    finally:
        step.value = 1
    if failed:
        raise BackendError(f"{kernel.name}: {launch.function}: {message.value.decode()}")
    figures, fetched_of = np.zeros(_FIGURES, np.uint64), np.zeros(len(buffers), np.uint64)
    library.count_end(ctypes.c_void_p(figures.ctypes.data), ctypes.c_void_p(fetched_of.ctypes.data))
    read, written, needed_read, needed_written, fetched, sectors, packed, wide_bytes, asked, waves, ideal, copied = (
        figures
    )
    return Counts(
        function=launch.function,
        blocks=blocks,
        ran=-(-clusters // every) * launch.cluster,
        read_bytes=int(read),
        written_bytes=int(written),
        needed_read_bytes=int(needed_read),
        needed_written_bytes=int(needed_written),
        fetched_bytes=int(fetched),
        sectors=int(sectors),
        ideal_sectors=int(packed),
        wide_bytes=int(wide_bytes),
        instructions=int(asked),
        wavefronts=int(waves),
        ideal_wavefronts=int(ideal),
        copied_bytes=int(copied),
        fetched_of=tuple(map(int, fetched_of)),
    )


def _wide_from(kernel: CudaKernel) -> list[int]:
    """For each parameter, the bytes from which on an access is wide. The types of large ones alone count."""
    largest = max((buffer.type.nbytes for buffer in kernel.parameters), default=0)
    large = [buffer.type.dtype.itemsize for buffer in kernel.parameters if buffer.type.nbytes * _LARGE >= largest]
    widest = max(large, default=1)
    return [min(_VECTOR_BYTES, _VECTOR_BYTES * b.type.dtype.itemsize // widest) for b in kernel.parameters]
