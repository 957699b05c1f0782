"""A group of threads per grid point: part of a warp, a block, or a cluster. Stage lanes are spread over the group."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from autofuse.lower.statements import ArgReduce, Load, Reduce, Store
from autofuse.lower.tile import Buffer, Phase, Stage
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.access import stages_of
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.body import Accumulator, StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena, unwrapped
from autofuse.targets.cuda.codegen.rescaling import Rescaling
from autofuse.targets.cuda.codegen.rowgroups import Group, is_flattened, longest_loop
from autofuse.targets.cuda.codegen.rowloops import LaneLoop
from autofuse.targets.cuda.codegen.rowscratch import RowScratch, lane_of
from autofuse.targets.cuda.codegen.scans import write_scan
from autofuse.targets.cuda.codegen.sharedinputs import write_shared_inputs
from autofuse.targets.cuda.codegen.threads import write_serial_stage
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type


def row_places(
    stages: Sequence[Stage], buffers: Mapping[str, Buffer], group: Group, arena: SharedArena, code: PhaseCode
) -> dict[str, Place]:
    """Declare the scratch of a grid point: registers where threads own it and have enough, else shared memory."""
    scratch, share = RowScratch.of(stages, buffers), group.share(longest_loop(stages))
    homes = scratch.homes(share)
    places: dict[str, Place] = {}
    for kept in scratch.kept:
        buffer, home = kept.buffer, homes[kept.buffer.name]
        dtype, name = buffer.type.dtype, code.names.fresh(buffer.name)
        if home == "registers":
            code.out.line(f"{register_type(dtype)} {name}[{group.share(kept.extent)}];")
            places[buffer.name] = Place(name, dtype, "owned")
            continue
        size = group.part(kept.extent) if group.cluster > 1 else buffer.type.size
        step = -(-size * dtype.itemsize // 16) * 16 // dtype.itemsize
        offset = arena.take(step * dtype.itemsize * group.per_block, f"scratch {buffer.name} of {group.per_block} rows")
        moved = f" + slot * {step}" if group.per_block > 1 else " - edge" if group.cluster > 1 else ""
        code.out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)}{moved};")
        places[buffer.name] = Place(name, dtype, "memory", shared=home == "shared")
    return places


def write_group_head(code: PhaseCode, group: Group) -> None:
    """Define `rank` (and `slot`, `mask` in a warp): who this thread is in its group."""
    if group.per_block == 1 and not group.in_warp:
        code.out.line("const int rank = threadIdx.x;")
        return
    code.out.line(f"const int rank = threadIdx.x % {group.width}, slot = threadIdx.x / {group.width};")
    if group.width < 32:
        ones = (1 << group.width) - 1
        code.out.line(f"const unsigned int mask = {ones:#x}u << (threadIdx.x % 32 - rank);")


def write_rows(
    code: PhaseCode, phase: Phase, group: Group, buffers: Mapping[str, Buffer], block: str, arena: SharedArena
) -> None:
    """The code of a phase without row blocks; `block` is the C name of the block's number within the phase."""
    points, stages = math.prod(symbol.extent for symbol in phase.grid), tuple(stages_of(phase))
    write_group_head(code, group)
    if group.cluster > 1:
        part = group.part(longest_loop(stages))
        code.out.line(f"const {code.index.type} edge = {block} % {group.cluster} * {part};")
    code.places.update(row_places(stages, buffers, group, arena, code))
    if group.points_per_block > 1:
        stages = write_shared_inputs(code, stages, buffers, group.threads, arena)
    writer = RowWriter(code, group, arena)
    with ExitStack() as stack:
        point = block if group.cluster == 1 else f"{block} / {group.cluster}"
        if group.rounds > 1:
            stack.enter_context(code.out.braces(f"for (int round = 0; round < {group.rounds}; ++round)"))
            point = f"({block} * {group.rounds} + round)"
            if not group.in_warp or any(place.shared for place in code.places.values()):
                stack.callback(
                    code.out.line, group.barrier()
                )  # the next row's scratch and sums lie where this one's do
        if group.points_per_block > 1:
            slot = f" * {group.per_block} + slot" if group.per_block > 1 else ""
            code.out.line(f"const {code.index.type} point = {point}{slot};")
            point = "point"
            if points % group.points_per_block:
                stack.enter_context(code.out.braces(f"if (point < {points})"))
        define_symbols(code, phase.grid, point)
        writer.write(stages)
    if writer.met:
        code.out.line(f"{code.prelude.use('cluster_barrier')}();  // others may still read this block's shared memory")


class StageWriter(ABC):
    """Writes the stages of one grid point in order, with the barriers that shared scratch needs."""

    def __init__(self, code: PhaseCode, barrier: str) -> None:
        self.code = code
        self._barrier = barrier
        self._read: set[str] = set()
        self._written: set[str] = set()

    def write(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            self._order(stage)
            if lane_of(stage) is None:
                self.single(stage)
            else:
                self.spread(stage)

    @abstractmethod
    def single(self, stage: Stage) -> None:
        """A stage that every thread walks alike."""

    @abstractmethod
    def spread(self, stage: Stage) -> None:
        """A stage whose iterations the threads share."""

    def barrier(self) -> None:
        """All threads of the group meet; what they stored before is visible behind."""
        self.code.out.line(self._barrier)
        self._read, self._written = set(), set()

    def _order(self, stage: Stage) -> None:
        """A barrier, if this stage touches shared scratch that other threads wrote or still read."""
        reads, writes = self._touched(stage)
        if reads & self._written or writes & (self._written | self._read):
            self.barrier()
        self._read |= reads
        self._written |= writes

    def _touched(self, stage: Stage) -> tuple[set[str], set[str]]:
        places = self.code.places
        reads = {s.buffer for s in stage.body if isinstance(s, Load) and places[s.buffer].shared}
        writes = {s.buffer for s in stage.body if isinstance(s, Store) and places[s.buffer].shared}
        return reads, writes


class RowWriter(StageWriter):
    """The stages of a group's grid point."""

    def __init__(self, code: PhaseCode, group: Group, arena: SharedArena) -> None:
        super().__init__(code, group.barrier())
        self.group = group
        self.reductions = ThreadReductions(code, arena)
        self.met = False
        """Whether blocks of a cluster read each other's shared memory."""

    def single(self, stage: Stage) -> None:
        """All threads walk the same iterations; one of them stores."""
        leader = "rank == 0" if self.group.cluster == 1 else "rank == 0 && edge == 0"
        write_serial_stage(self.code, stage, Copies(None, 1, leader=leader))

    def spread(self, stage: Stage) -> None:
        """Lanes are spread over the group's threads, and what they reduced is combined."""
        if stage.is_ordered:
            scanned = write_scan(self.code, stage, self.group, self.reductions.arena)
            self._combine(stage, scanned)
            scanned.finish()
            return
        body = StageBody(self.code, stage, 1)
        body.declare()
        body.ahead(Copies(None, 1))
        if body.rescaling is None or not body.rescaling.weighed:
            self._walk(stage, body)
        else:
            self._walk_until_known(stage, body, body.rescaling)
        body.finish()

    def _walk(self, stage: Stage, body: StageBody) -> None:
        if is_flattened(stage, self.group.width):
            self._flat_loop(stage, body)
        else:
            LaneLoop(self.code, self.group, stage, body).write()
        self._combine(stage, body)

    def _walk_until_known(self, stage: Stage, body: StageBody, rescaling: Rescaling) -> None:
        """Once, and again with the maximum if a sum is infinite. All threads that meet do alike."""
        code, group = self.code, self.group
        known = code.names.fresh("known")
        with code.out.braces(f"for (bool {known} = false;; {known} = true)"):
            self._walk(stage, body)
            tests: list[str] = []
            for reduce in (s for s in stage.body if isinstance(s, Reduce) and s.result in rescaling.weighed):
                total, infinite = body.accumulators[reduce.result].values[0], literal(math.inf, reduce.dtype)
                tests.append(f"{total} == {infinite} || {total} == -{infinite}")
            special = " || ".join(tests)
            if not group.in_warp and group.per_block > 1:
                special = f"__syncthreads_or({special})"
            code.out.line(f"if ({known} || !({special})) break;")
            for reduce in (s for s in stage.body if isinstance(s, Reduce) and s.result != rescaling.maximum):
                start = unwrapped(scalars.identity(reduce.combiner, reduce.dtype))
                code.out.line(f"{body.accumulators[reduce.result].values[0]} = {start};")
            self.barrier()

    def _flat_loop(self, stage: Stage, body: StageBody) -> None:
        code, total = self.code, math.prod(symbol.extent for symbol in stage.symbols)
        with code.out.braces(f"for ({code.index.type} each = rank; each < {total}; each += {self.group.width})"):
            define_symbols(code, stage.symbols, "each")
            body.body(Copies(None, 1, combined=True))

    def _combine(self, stage: Stage, body: StageBody) -> None:
        """Combine each thread's partial results over the group; every thread gets the result."""
        pairs = [(s, body.accumulators[s.result]) for s in stage.body if isinstance(s, Reduce | ArgReduce)]
        rescaling = body.rescaling
        if rescaling is None:
            self._combine_alike(pairs)
            return
        maximum = body.accumulators[rescaling.maximum].values[0]
        sums = [body.accumulators[scalar].values[0] for scalar in rescaling.sums]
        rescaling.keep(maximum)
        self._combine_alike([pair for pair in pairs if pair[0].result == rescaling.maximum])
        rescaling.apply(maximum, sums)
        self._combine_alike([pair for pair in pairs if pair[0].result != rescaling.maximum])
        rescaling.end(maximum, sums)

    def _combine_alike(self, pairs: Sequence[tuple[Reduce | ArgReduce, Accumulator]]) -> None:
        """Combine reductions that do not wait for one another."""
        group = self.group
        for reduction, total in pairs:
            self.reductions.across_lanes(reduction, total, min(32, group.width), group.mask)
        if not pairs:
            return
        if not group.in_warp:
            self._across_warps(pairs)
        if group.cluster > 1:
            self._across_blocks(pairs)

    def _across_warps(self, pairs: Sequence[tuple[Reduce | ArgReduce, Accumulator]]) -> None:
        group, warps = self.group, self.group.width // 32
        parts = [
            self.reductions.publish(s, total, group.threads // 32, "threadIdx.x / 32", "rank % 32 == 0")
            for s, total in pairs
        ]
        self.barrier()
        for (reduction, total), part in zip(pairs, parts, strict=True):
            at = "{}" if group.per_block == 1 else f"slot * {warps} + {{}}"
            self.reductions.collect(reduction, total, part, warps, at)

    def _across_blocks(self, pairs: Sequence[tuple[Reduce | ArgReduce, Accumulator]]) -> None:
        parts = [self.reductions.publish(s, total, 1, "0", "rank == 0") for s, total in pairs]
        self.code.out.line(f"{self.code.prelude.use('cluster_barrier')}();")
        for (reduction, total), part in zip(pairs, parts, strict=True):
            self.reductions.collect_blocks(reduction, total, part, self.group.cluster)
        self.met = True
