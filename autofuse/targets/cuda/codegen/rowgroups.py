"""How many threads, and how many blocks, share a grid point of a row form.

The ladders are QuACK's (Dao and others 2025, "Getting memory-bound kernels to speed of light"): eight threads for rows
of up to 64 elements, 256 above 16,384, in blocks of 128 to 256 threads; clusters of 2 to 16 blocks above 32,768 f32.
Rows that keep more on chip than their threads have registers for, and rows that are few, get more threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Reduce, Scan
from autofuse.lower.tile import Buffer, Space, Stage
from autofuse.targets.cuda.codegen.access import accesses_of, vector_width
from autofuse.targets.cuda.codegen.places import SharedArena
from autofuse.targets.cuda.codegen.rowscratch import RowScratch, lane_of
from autofuse.targets.cuda.codegen.sharedinputs import (
    LARGEST_BLOCK,
    LEAST_BLOCKS,
    LEAST_THREADS,
    rows_wanted,
    shared_inputs,
)
from autofuse.targets.cuda.decisions import CLUSTER, PACK_BYTES, ROW_THREADS, THREADS
from autofuse.targets.cuda.gpus import has_clusters

LADDER = ((64, 8), (128, 16), (3072, 32), (6144, 64), (16384, 128))
"""(most elements of a row, threads that share it)."""
WARP = 32
_BEGUN = 8
"""Packs of a thread that are read before the first one is used, of several rows of a row block."""
MOST_SHARING = 256
"""Threads that share a longer row."""
LEAST_BLOCK = 128
"""Threads of a block, if there are rows for them."""
FILLING_THREADS = 1 << 17
"""Fewer threads leave a large GPU idle: half of what it holds."""
THREAD_SHARED_BYTES = 448
"""Shared memory of a row for each thread at most: a multiprocessor then has 512 of them at work."""
MOST_CROWDED = 512
"""Threads of a row that fills shared memory."""
BLOCK_SHARED_BYTES = 32 << 10
"""Several rows share a block as long as they keep no more than this."""
SHORT = 8
"""A loop so many times shorter than the longest takes what neighbours it can, and does not decide for the others."""
CLUSTERS = (1, 2, 4, 8, 16)
"""Blocks that may share a row. More than eight have to be allowed for a kernel when it is loaded."""
CLUSTER_ELEMENTS = 32768
"""Elements of four bytes that one block walks before a cluster does; half as many of other types."""


@dataclass(frozen=True, slots=True)
class Group:
    """The threads that work on one grid point."""

    threads: int
    """Threads of the block."""
    width: int
    """Threads of a block that share a grid point: a power of two up to 32, or whole warps."""
    vector: int
    """Neighbouring iterations of one thread."""
    cluster: int = 1
    """Blocks that share a grid point, each with a part of every loop."""
    rounds: int = 1
    """Grid points that a group takes one after the other."""

    @property
    def per_block(self) -> int:
        """Groups in a block."""
        return self.threads // self.width

    @property
    def points_per_block(self) -> int:
        """Grid points of a block."""
        return self.per_block * self.rounds

    @property
    def in_warp(self) -> bool:
        """Whether a group is a warp or part of one."""
        return self.width <= 32

    @property
    def mask(self) -> str:
        """The C name or value of the warp lanes in the group."""
        return "0xffffffffu" if self.width >= 32 else "mask"

    @property
    def step(self) -> int:
        """Iterations that a block does side by side."""
        return self.width * self.vector

    def barrier(self) -> str:
        """Groups of several warps meet with those of their block that do the same."""
        return f"__syncwarp({self.mask});" if self.in_warp else "__syncthreads();"

    def start(self, chunk: str) -> str:
        """The C expression of a thread's first iteration in a chunk. Needs `rank`, and `edge` in a cluster."""
        first = "rank" if chunk == "0" else f"{chunk} * {self.width} + rank"
        if self.vector > 1:
            first = f"({first}) * {self.vector}" if chunk != "0" else f"rank * {self.vector}"
        return first if self.cluster == 1 else f"edge + {first}"

    def of_stage(self, stage: Stage, holds: bool) -> Group:
        """The same threads, with neighbours that suit a stage. `holds`: it keeps them for other stages."""
        lane = lane_of(stage)
        if holds or lane is None or lane.extent % self.vector == 0:
            return self
        return replace(self, vector=math.gcd(self.vector, lane.extent))

    def part(self, extent: int) -> int:
        """Iterations of a loop that each block of a cluster takes; the last ones may have fewer."""
        return extent if self.cluster == 1 else -(-extent // (self.cluster * self.step)) * self.step

    def share(self, extent: int) -> int:
        """Iterations of a loop that one thread takes at most."""
        return -(-self.part(extent) // self.step) * self.vector


def is_flattened(stage: Stage, width: int) -> bool:
    """Whether all symbols together are spread, because the lane alone would leave threads idle."""
    lane = lane_of(stage)
    return lane is not None and len(stage.symbols) > 1 and lane.extent < width


def row_vector(stages: Sequence[Stage], buffers: Mapping[str, Buffer], schedule: Schedule) -> int:
    """Neighbouring iterations of one thread that all stages allow, but short ones that keep nothing for others."""
    lanes = [(stage, lane) for stage in stages if (lane := lane_of(stage)) is not None]
    longest = max((lane.extent for _, lane in lanes), default=1)
    straight = [
        (stage, lane)
        for stage, lane in lanes
        if not is_flattened(stage, 32) and (lane.extent * SHORT > longest or stage.is_ordered or _keeps(stage, buffers))
    ]
    accesses = [(access, lane) for stage, lane in straight for access in accesses_of(stage, buffers)]
    return vector_width(accesses, [lane.extent for _, lane in straight], schedule[PACK_BYTES])


def _keeps(stage: Stage, buffers: Mapping[str, Buffer]) -> bool:
    return any(access.buffer.space is Space.SCRATCH for access in accesses_of(stage, buffers))


def block_group(
    stages: Sequence[Stage], rows: int | None, threads: int, buffers: Mapping[str, Buffer], schedule: Schedule
) -> Group:
    """The threads for a row of a row block: few, to have many rows at a time, but so many that all have some.

    `rows`: of the block; None: there is one row, for all threads.
    """
    vector = row_vector(stages, buffers, schedule)
    if rows is None:
        return Group(threads, threads, vector)
    longest = longest_loop(stages)
    enough = _power_above(-(-longest // vector))
    width = next((width for most, width in LADDER if longest <= most), WARP)
    idle = 1 << (threads // max(rows, 1)).bit_length() - 1 if threads >= rows else 1
    return Group(threads, min(max(width, idle), enough, WARP), vector)


def rows_together(stages: Sequence[Stage], group: Group, rows: int) -> int:
    """Of `rows` of a row block, those that a group begins before the first one is done, if all blocks have so many."""
    turns, rest = divmod(rows, group.per_block)
    packs = max(group.share(longest_loop(stages)) // group.vector, 1)
    return 1 if rest or turns < 1 else max(1, min(turns, _BEGUN // packs))


def plan_group(
    stages: Sequence[Stage],
    points: int,
    buffers: Mapping[str, Buffer],
    schedule: Schedule,
    threads: int | None,
    arena: SharedArena,
) -> Group:
    """Choose groups, blocks and clusters; `threads` fixes the block's width if given, `points` are the grid's.

    Raises LegalityError where what is kept on chip does not fit the arena's architecture.
    """
    planner = _Planner(stages, points, buffers, schedule, threads)
    least = planner.least_cluster() if has_clusters(arena.arch) else 1
    wanted = schedule[CLUSTER] if planner.may_cluster and has_clusters(arena.arch) else 1
    tried = [wanted] if wanted else [c for c in CLUSTERS if c >= least] if planner.may_cluster else [1]
    group = planner.group(tried[0])
    for cluster in tried:
        group = planner.with_rounds(planner.group(cluster))
        if planner.shared_bytes(group) <= arena.capacity:
            return group
    raise LegalityError(
        f"a row keeps {planner.shared_bytes(group)} bytes of shared memory in each of {group.cluster} blocks; a block "
        f"on {arena.arch} has {arena.capacity} bytes: split the kernel, or keep less from stage to stage"
    )


class _Planner:
    def __init__(
        self,
        stages: Sequence[Stage],
        points: int,
        buffers: Mapping[str, Buffer],
        schedule: Schedule,
        threads: int | None,
    ) -> None:
        self.stages, self.points, self.schedule, self.threads = stages, points, schedule, threads
        self.buffers = buffers
        self.spread = [(stage, lane) for stage in stages if (lane := lane_of(stage)) is not None]
        self.longest = longest_loop(stages)
        self.vector = row_vector(stages, buffers, schedule)
        self.scratch = RowScratch.of(stages, buffers)
        self._most = max((kept.buffer.type.size for kept in self.scratch.kept), default=0)
        self._row_bytes = {kept.buffer.type.dtype.itemsize for kept in self.scratch.kept}

    @property
    def may_cluster(self) -> bool:
        """Whether the blocks of a cluster could share out every loop, and keep something by that."""
        same = all(len(stage.symbols) == 1 and lane.extent == self.longest for stage, lane in self.spread)
        scans = any(stage.is_ordered for stage in self.stages)
        return self.threads is None and same and not scans and bool(self.scratch.kept) and self.scratch.is_owned

    def least_cluster(self) -> int:
        """Blocks for a row by its length."""
        most = CLUSTER_ELEMENTS if self._row_bytes <= {4} else CLUSTER_ELEMENTS // 2
        return next((c for c in CLUSTERS if self.longest <= c * most), CLUSTERS[-1])

    def group(self, cluster: int) -> Group:
        """The group, if so many blocks share a row."""
        part = -(-self.longest // cluster)
        width = self._width(part, cluster)
        if self.threads is not None:
            return Group(self.threads, width if width <= 32 else self.threads, self.vector)
        if cluster > 1:
            width = max(32, width)
            return Group(width, width, self.vector, cluster)
        if width <= 32:
            most = max(32, self.schedule[THREADS] // 32 * 32)
            block = min(most, max(32, _power_above(self.points * width)))
            while block > 32 and self._kept_bytes(width) * (block // width) > BLOCK_SHARED_BYTES:
                block = max(32, block // 64 * 32)
            return Group(block, width, self.vector)
        rows = max(1, LEAST_BLOCK // width)
        while rows > 1 and (self.points % rows or self._kept_bytes(width) * rows > BLOCK_SHARED_BYTES):
            rows //= 2
        return Group(rows * width, width, self.vector)

    def with_rounds(self, group: Group) -> Group:
        """The same group, with several grid points if they read something alike."""
        if group.cluster > 1 or self.threads is not None:
            return group
        wanted, threads, rounds = rows_wanted(self.stages, self.buffers), group.threads, 1
        free = group.in_warp and THREADS.name not in dict(self.schedule.chosen) and not self._kept_bytes(group.width)
        while free and threads < LARGEST_BLOCK and threads < wanted * group.width:
            if self.points * group.width < 2 * threads * LEAST_BLOCKS:
                break
            threads *= 2
        rows = threads // group.width
        while rounds * rows < wanted and self.points * group.width >= 2 * rounds * LEAST_THREADS:
            rounds *= 2
        return replace(group, threads=threads, rounds=rounds)

    def _width(self, part: int, cluster: int) -> int:
        enough = _power_above(-(-part // self.vector))
        asked = self.schedule[ROW_THREADS]
        if asked:
            return min(asked, enough)
        width = next((threads for most, threads in LADDER if part <= most), MOST_SHARING)
        most = max(32, self.schedule[THREADS] // 32 * 32)
        while width < min(most, enough) and (
            self.points * cluster * width < FILLING_THREADS or self.scratch.is_crowded(self._share(part, width))
        ):
            width *= 2
        width = min(width, most)
        while width < MOST_CROWDED and self._kept_bytes(width, cluster) > THREAD_SHARED_BYTES * width:
            width = 2 * width
        return min(width, enough)

    def _share(self, part: int, width: int) -> int:
        return -(-part // (width * self.vector)) * self.vector

    def _kept_bytes(self, width: int, cluster: int = 1) -> int:
        part = self._most if cluster == 1 else -(-self.longest // cluster)
        return self.scratch.shared_bytes(self._share(-(-self.longest // cluster), width), part)

    def shared_bytes(self, group: Group) -> int:
        """Shared memory of a block."""
        combined = sum(isinstance(s, Reduce | ArgReduce | Scan) for stage in self.stages for s in stage.body)
        partial = 0 if group.in_warp else combined * 2 * (16 * (group.threads // 32) + 32)
        alike = sum(one.nbytes for one in shared_inputs(self.stages, self.buffers)) if group.points_per_block > 1 else 0
        part = self._most if group.cluster == 1 else group.part(self.longest)
        return self.scratch.shared_bytes(group.share(self.longest), part) * group.per_block + partial + alike


def longest_loop(stages: Sequence[Stage]) -> int:
    """Iterations of the longest loop that threads share out."""
    spread = [(stage, lane) for stage in stages if (lane := lane_of(stage)) is not None]
    return max((_spread_extent(stage, lane) for stage, lane in spread), default=1)


def _spread_extent(stage: Stage, lane: Symbol) -> int:
    return lane.extent if lane.extent >= 32 else math.prod(symbol.extent for symbol in stage.symbols)


def _power_above(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
