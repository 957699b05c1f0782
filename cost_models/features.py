"""What a cost model is told about a kernel under a schedule: counts of work and of memory, nothing about a device.

`features` describes one kernel; `matrix` turns many descriptions into the rows that a learned model reads. Examples in
the field descriptions are for `y = exp(x)` with x and y `f32[1000]`, vectors of 16 lanes, 4 in flight, unless they say
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autofuse.lazydataclass import dataclass, field
from autofuse.lower.tile import Space

FEATURES_VERSION = 10
"""Raised when a field or a column changes its meaning; a learned model of another version must not be used."""


@dataclass(frozen=True, slots=True)
class BufferFeatures:
    """One global buffer, over the whole kernel. `x`: 4000 bytes read in 1000 elements, 0 written."""

    name: str
    space: Space
    nbytes: int
    """Size of the whole buffer in bytes."""
    read_bytes: int
    """Bytes of the cache lines read at least once: `x[:, 0]` of `f32[100, 64]` reads 6400."""
    written_bytes: int
    """The same for writes."""
    floor_read_bytes: int
    """Bytes of elements that the kernel cannot do without reading: `x[:, 0]` of `f32[100, 64]`: 400. Accesses under a
    mask or at run-time positions count as one element."""
    floor_written_bytes: int
    """The same for writes."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much memory moves into a cache, by the cache's size.

    `levels` ascend in traffic: a cache that holds `capacity` bytes sees `read` and `written` bytes (of lines) move. If
    it holds none of them, the parts are looked at one by one; a part without parts moves what its last level says.
    """

    levels: tuple[tuple[int, int, int], ...]
    """(capacity, read, written) in bytes. `exp`: `((512, 4032, 4032),)`. A column sum of `f32[4096, 1024]`, 64 columns
    at a time, needs 1 MB (a line of every row) to move no more than the 16 MB that there are. Capacity 0: each access
    moves its lines."""
    parts: tuple[Reuse, ...] = ()

    def traffic(self, capacity: float) -> tuple[int, int]:
        """(bytes read, bytes written) across the boundary of a cache of `capacity` bytes.

        One that holds only a part of what it would have to hold keeps a part of the reuse, less and less up to twice
        its size.
        """
        kept, read, written = 1.0, 0.0, 0.0
        for needed, level_read, level_written in self.levels:
            share = 1.0 if needed <= capacity else max(2.0 - needed / capacity, 0.0) if capacity else 0.0
            read, written = read + kept * share * level_read, written + kept * share * level_written
            kept *= 1.0 - share
            if not kept:
                return round(read), round(written)
        inner = [part.traffic(capacity) for part in self.parts] or [self.levels[-1][1:] if self.levels else (0, 0)]
        read += kept * sum(part_read for part_read, _ in inner)
        written += kept * sum(part_written for _, part_written in inner)
        return round(read), round(written)


@dataclass(frozen=True, slots=True)
class Visits:
    """Lines that a kernel visits at run-time positions, none more often than others."""

    held: int
    """Bytes of what they are spread over."""
    once: int
    """Bytes that are read in any case."""
    read: int
    written: int
    """Bytes of the lines of all visits."""

    def traffic(self, capacity: float) -> tuple[float, float]:
        """(bytes read, bytes written) across the boundary of a cache of `capacity` bytes. It holds its part of them."""
        missed = max(0.0, 1.0 - capacity / self.held) if self.held else 0.0
        return self.once + missed * self.read, missed * self.written


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Memory instructions executed, in vectors (or single elements where a stage has no lanes), by how they walk."""

    contiguous: float = 0.0
    """Neighbouring lanes, neighbouring elements: `exp`: 126, 63 loads and 63 stores."""
    strided: float = 0.0
    """A constant step other than one: the load of `x.T` read along rows."""
    gather: float = 0.0
    """Positions that only the run knows, or quotients of the lane: `x[index]`."""
    uniform: float = 0.0
    """One element for all lanes: the load of `bias[i]` when lanes run over j; the stores of single results."""
    masked: float = 0.0
    """Those of the above under a mask that stays in the loop (a mask that cuts the loop in parts does not count)."""
    gathered_elements: float = 0.0
    """Elements of the strided and the gathered ones: 16 per vector of `f32`."""
    vector_bytes: float = 0.0
    """Bytes of all accesses, lanes without work included: `exp`: 126 vectors of 64 bytes = 8064."""
    far_steps: float = 0.0
    """Accesses that lie a page or more after the one before: a column sum of `f32[4096, 1024]`: one per row and strip
    of columns."""


@dataclass(frozen=True, slots=True)
class FarWalk:
    """One access that leaves the page at every step."""

    steps: float
    """Over the whole kernel."""
    pages: float
    """Visited between two visits to the same page; what crowds into the same sets of a cache is told by `Reuse`."""
    write: bool


@dataclass(frozen=True, slots=True)
class StageFeatures:
    """One stage, over the whole kernel."""

    entries: float
    """Times the stage's loops are entered: once per grid point, or per group of vectors of grid points in flight.
    `exp`: 16."""
    iterations: float
    """Scalar iterations over all entries: `exp`: 1000."""
    vectors: float
    """Passes through the body, each for one vector: `exp`: 63."""
    lanes: int
    """Elements side by side: 16; 1 in a scalar stage."""
    unroll: int
    """Vectors in flight: 4."""
    operations: Mapping[tuple[str, str], float] = field(hash=False)
    """(class, dtype) -> instructions on vectors, hoisted ones once: `exp`: `("exp", "f32"): 63`.

    `fast` in place of the dtype: of f32, where a target approximates them.
    """
    scalar_operations: Mapping[tuple[str, str], float] = field(hash=False)
    """The same of what is computed once for all lanes, which is no part of `operations`. The logarithms of
    `x + log(y)[:, None]` for `x` of `f32[100, 64]`: `("log", "f32"): 100`; cosines stay in the loop over
    vectors: 400."""
    flops: float
    """Arithmetic on floats, per element, each opcode counted once; a lower bound of the real work. `exp`: 1000."""
    accesses: AccessCounts
    far_walks: tuple[FarWalk, ...]
    """Of each access with far steps. A column sum of `f32[4096, 1024]`: 4096 steps over as many pages, for each strip
    of columns."""
    reduces: int
    """Reductions completed, each for one grid point or vector of grid points. A row sum of 100 rows: 100."""
    horizontal: float
    """Of these, those that combine the lanes of a vector: a row sum of 100 rows: 100; a column sum: 0."""
    placed: float
    """Of these, those that find a position: `argmax` of the rows of `f32[100, 1024]`: 100."""
    chain: float
    """Dependent operations one after the other, over all entries: iterations of scans, rounds of reductions after the
    first. A cumulative sum of 1000 `f64`, 8 side by side: 125. A row sum of `f32[100, 1024]`: 100 * (1024 / 64 - 1) =
    1500."""
    scan_iterations: float
    """Of these, the iterations of scans."""
    first_touch_bytes: int
    """Bytes of lines, per entry, of global buffers that no stage before touched. Softmax of rows of 4096 `f32`: 16384
    in the first stage (x), 0 in the second, 16384 in the third (y)."""
    loops: bool
    """Whether the stage goes round at all: `exp`, whose grid is the loop: no. A row sum of 64: no, one round of four
    vectors; of 1024: yes."""
    live: int
    """Most values of one iteration that are alive at a time, over its straight line. `exp`: 1."""
    spilled: float = 0.0
    """Vectors that a round of the body, with all that is in flight, stores and loads again as no register is left for
    them: what the target expects. `exp`: 0."""
    transposes: bool = False
    """Whether squares are transposed in registers, in place of lanes that lie apart: `x.T` stored. `exp`: no."""


@dataclass(frozen=True, slots=True)
class DotFeatures:
    """One matrix product of a phase. Example: `f32[1024, 256] @ f32[256, 512]` in row blocks of 128 rows."""

    rows: int
    """Of one call: 128."""
    columns: int
    """512."""
    depth: int
    """256."""
    calls: int
    """8 row blocks."""
    all_rows: int
    """Of all calls together, 1024: the last row block may be shorter."""
    dtype: str
    """`f32`."""
    library: bool
    """Whether BLAS does it; else generated code."""
    cycles: float
    """Of generated code for one call on one core, its operands in cache: 128 rows by 32 vectors by 256 steps take two
    multiply-adds a cycle, 524288 cycles and a tenth more."""

    @property
    def flops(self) -> float:
        """Multiplications and additions of all calls: 2 * 1024 * 512 * 256."""
        return 2.0 * self.all_rows * self.columns * self.depth

    @property
    def packed_elements(self) -> float:
        """Elements of the right factor that BLAS lays out anew in all calls: 8 * 512 * 256."""
        return float(self.columns * self.depth * self.calls) if self.library else 0.0


@dataclass(frozen=True, slots=True)
class PhaseFeatures:
    """One parallel loop nest."""

    launch: int
    """Number of the launch that it belongs to."""
    points: int
    """Grid points: `exp`: 1000; softmax over rows of `f32[64, 256]`: 64."""
    blocks: int
    """Most pieces that workers could share: row blocks, grid points, or runs of grid points. `exp`: 2."""
    shares: float
    """Pieces worth handing out, by the code generator's own estimate of the work. `exp`: 1, the calling thread's."""
    stages: tuple[StageFeatures, ...]
    dots: tuple[DotFeatures, ...]
    reuse: Reuse
    scratch_bytes: int
    """On-chip memory of one worker: softmax of rows of 256 `f32`: 1024."""


@dataclass(frozen=True, slots=True)
class OpaqueFeatures:
    """A kernel without stages: a call of the interpreter, or a scatter or sort in loops of its own.

    Examples of loops: `x[index] += u` for x of `f32[1000, 64]` and u of `f32[100, 64]`.
    """

    nodes: int
    """Operations interpreted, a convolution as many as it calls; in loops of its own: 0."""
    moved_bytes: int
    """Bytes of all operands and results, but for `copied_bytes`: 26000."""
    sort_steps: float
    """Sum of n * log2(length) over sorted operands of n elements."""
    scattered: int
    """Elements written at run-time positions."""
    elements: int
    """Results of all other operations, as often as they are copied."""
    multiply_adds: float = 0.0
    """Of products and convolutions that are interpreted."""
    coded_ns: float = 0.0
    """What the code generator expects its loops to take on one core: 132."""
    shares: int = 1
    """Pieces that workers share of these loops."""
    copied_bytes: int = 0
    """Bytes moved before, by all workers: x to the result, 512000."""
    visits: Visits = Visits(0, 0, 0, 0)
    """What loops with run-time positions move into a cache. One that holds x, and whatever else such positions are of,
    reads `moved_bytes`; one that holds a part, of the other visits the lines: 100 times 256 bytes, read and written."""


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """One kernel under one schedule."""

    version: int
    """FEATURES_VERSION of the code that made it."""
    launches: int
    """Launches, each a fork and join of its own."""
    phases: tuple[PhaseFeatures, ...]
    buffers: tuple[BufferFeatures, ...]
    """Inputs, outputs and workspaces."""
    opaque: OpaqueFeatures | None
    """Set for a call of the interpreter, which has no phases."""
    vector_bits: int
    """Width of the vectors."""
    stream_stores: bool
    """Whether element-wise stages write past the caches."""
    unroll: int
    """Vectors in flight that the schedule asks for."""
    panel_rows: int
    """Rows of a row block; 0 without one."""

    @property
    def read_bytes(self) -> int:
        """Bytes of global memory read at least once."""
        return sum(b.read_bytes for b in self.buffers)

    @property
    def written_bytes(self) -> int:
        """Bytes of global memory written."""
        return sum(b.written_bytes for b in self.buffers)


# ---- rows of a matrix --------------------------------------------------------------------------------------------

CAPACITIES = (24 << 10, 96 << 10, 768 << 10, 3 << 20, 24 << 20)
"""Cache sizes at which traffic enters the matrix, in bytes."""
_CLASSES = (
    *("add", "multiply", "compare", "convert", "integer", "divide", "sqrt", "exp", "log", "tanh", "sin", "erf"),
    *("power", "gather", "scatter"),
)

COLUMNS: tuple[str, ...] = (
    *("launches", "phases", "points", "blocks", "shares", "read_bytes", "written_bytes", "workspace_bytes"),
    "scratch_bytes",
    *(f"traffic_{capacity >> 10}k" for capacity in CAPACITIES),
    *("contiguous", "strided", "gathers", "uniform", "masked", "gathered_elements", "vector_bytes", "far_steps"),
    "spilled",
    *(f"op_{name}_{dtype}" for name in _CLASSES for dtype in ("f32", "f64")),
    *("vectors", "iterations", "entries", "horizontal", "chain", "scan_iterations"),
    *("dot_flops", "dot_calls", "packed_elements", "dot_rows", "dot_columns", "dot_depth"),
    *("opaque_nodes", "opaque_bytes", "sort_steps", "scattered", "coded_ns"),
    *("efficiency", "live", "unroll", "vector_bits", "stream_stores", "panel_rows"),
)
"""Columns of `matrix`. Counts enter as log(1 + count); the last six as they are."""
_PLAIN = 6


def matrix(kernels: Sequence[KernelFeatures]) -> NDArray[np.float64]:
    """One row per kernel, one column per name in COLUMNS; f64[n, len(COLUMNS)]."""
    rows = np.array([_row(kernel) for kernel in kernels], np.float64).reshape(len(kernels), len(COLUMNS))
    rows[:, :-_PLAIN] = np.log1p(rows[:, :-_PLAIN])
    return rows


def _counted(operations: Mapping[tuple[str, str], float], name: str, price_classes: tuple[str, ...]) -> float:
    return sum(operations.get((name, one), 0.0) for one in price_classes)


def _row(kernel: KernelFeatures) -> list[float]:
    phases = kernel.phases
    stages = [stage for phase in phases for stage in phase.stages]
    dots = [dot for phase in phases for dot in phase.dots]
    largest = max(dots, key=lambda dot: dot.flops, default=None)
    opaque = kernel.opaque or OpaqueFeatures(0, 0, 0.0, 0, 0)
    vectors = sum(stage.vectors for stage in stages)
    slots = sum(stage.vectors * stage.lanes for stage in stages)
    iterations = sum(stage.iterations for stage in stages)
    operations: dict[tuple[str, str], float] = {}
    for stage in stages:
        for key, count in stage.operations.items():
            operations[key] = operations.get(key, 0.0) + count
    counts = [stage.accesses for stage in stages]
    return [
        kernel.launches,
        len(phases),
        sum(phase.points for phase in phases),
        sum(phase.blocks for phase in phases),
        sum(phase.shares for phase in phases),
        kernel.read_bytes,
        kernel.written_bytes,
        sum(b.nbytes for b in kernel.buffers if b.space is Space.WORKSPACE),
        max((phase.scratch_bytes for phase in phases), default=0),
        *(sum(sum(phase.reuse.traffic(capacity)) for phase in phases) for capacity in CAPACITIES),
        math.fsum(c.contiguous for c in counts),
        math.fsum(c.strided for c in counts),
        math.fsum(c.gather for c in counts),
        math.fsum(c.uniform for c in counts),
        math.fsum(c.masked for c in counts),
        math.fsum(c.gathered_elements for c in counts),
        math.fsum(c.vector_bytes for c in counts),
        math.fsum(c.far_steps for c in counts),
        math.fsum(stage.spilled * stage.vectors / stage.unroll for stage in stages),
        *(_counted(operations, name, dtypes) for name in _CLASSES for dtypes in (("f32", "fast"), ("f64",))),
        vectors,
        iterations,
        sum(stage.entries for stage in stages),
        sum(stage.horizontal for stage in stages),
        sum(stage.chain for stage in stages),
        sum(stage.scan_iterations for stage in stages),
        math.fsum(dot.flops for dot in dots),
        sum(dot.calls for dot in dots),
        math.fsum(dot.packed_elements for dot in dots),
        *((largest.rows, largest.columns, largest.depth) if largest else (0, 0, 0)),
        opaque.nodes,
        opaque.moved_bytes + opaque.copied_bytes,
        opaque.sort_steps,
        opaque.scattered,
        opaque.coded_ns,
        iterations / slots if slots else 1.0,
        max((stage.live for stage in stages), default=0),
        kernel.unroll,
        kernel.vector_bits,
        float(kernel.stream_stores),
        kernel.panel_rows,
    ]
