"""From a lowered kernel to its features: a vector is a warp, and its accesses are counted in sectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.cost_models.features import (
    FEATURES_VERSION,
    AccessCounts,
    BufferFeatures,
    DotFeatures,
    KernelFeatures,
    OpaqueFeatures,
    PhaseFeatures,
    Reuse,
    StageFeatures,
)
from autofuse.cost_models.liveness import most_live
from autofuse.cost_models.operations import StatementCosts, product_of
from autofuse.cost_models.regions import extent_of, steps_of
from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.statements import ArgReduce, Carry, Effect, Load, Reduce, Scalar, Scan, Store, Test
from autofuse.lower.tile import Buffer, Dot, Matrix, OpaqueProgram, Phase, RowBlock, Space, Stage, TileProgram
from autofuse.targets.cuda.codegen.access import alignment, flat_point, is_threaded, is_unit_stride
from autofuse.targets.cuda.codegen.program import Generator, Planned
from autofuse.targets.cuda.codegen.rowscratch import lane_of
from autofuse.targets.cuda.codegen.sharedinputs import SharedInput
from autofuse.targets.cuda.codegen.transposes import TransposePlan
from autofuse.targets.cuda.cost.fastwork import operations_of
from autofuse.targets.cuda.cost.launches import WARP, WAVEFRONT_BYTES, LaunchCounts, asked, together
from autofuse.targets.cuda.cost.onchip import in_registers, read_once
from autofuse.targets.cuda.cost.progress import dependent_rounds, pack_of
from autofuse.targets.cuda.cost.sweeps import invariants, swept_tiles
from autofuse.targets.cuda.decisions import PACKS
from autofuse.targets.cuda.passes.edges import edge_share, outsides

SECTOR_BYTES = 32
"""What memory moves at least, at a multiple of which it starts."""
_SHIFTED, _CHOSEN = 2.0, 12.0
"""Instructions for a pack that lies across two, at a known place and at any: counted in machine code for 9.0."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A kernel, counted."""

    features: KernelFeatures
    launches: tuple[LaunchCounts, ...]
    """() for what the host does."""


def features(program: TileProgram | OpaqueProgram, arch: str) -> KernelFeatures:
    """Describe a kernel. Raises BackendError for an unknown opcode, LegalityError for what `arch` has no room for."""
    return counted(program, arch).features


def counted(program: TileProgram | OpaqueProgram, arch: str) -> Counted:
    """Describe a kernel and its launches. Raises what `features` raises."""
    if isinstance(program, OpaqueProgram):
        return Counted(_opaque(program), ())
    reader, generator = _Reader(program), Generator(program, arch)
    phases: list[PhaseFeatures] = []
    launches: list[LaunchCounts] = []
    for number, launch in enumerate(program.launches):
        found: list[LaunchCounts] = []
        for planned in generator.planned(launch):
            phases.append(reader.phase(number, planned))
            found.append(asked(planned, phases[-1], program.schedule, reader.wavefronts, reader.shifts))
        launches.append(together(found))
    return Counted(_features(program, reader, tuple(phases)), tuple(launches))


def _features(program: TileProgram, reader: _Reader, phases: tuple[PhaseFeatures, ...]) -> KernelFeatures:
    row_blocks = (phase.row_block.size for phase in program.phases() if phase.row_block is not None)
    return KernelFeatures(
        version=FEATURES_VERSION,
        launches=len(program.launches),
        phases=phases,
        buffers=tuple(reader.buffer(buffer) for buffer in program.parameters()),
        opaque=None,
        vector_bits=WARP * 32,
        stream_stores=False,
        unroll=max(1, program.schedule[PACKS]),
        panel_rows=max(row_blocks, default=0),
    )


class _Reader:
    """Reads the phases of one program, and keeps what they touch, by buffer."""

    def __init__(self, program: TileProgram) -> None:
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.costs = StatementCosts()
        self.tiled: dict[int, Symbol] = {}
        """What goes through a tile in shared memory, and along which symbol it is walked in memory."""
        self.inside = frozenset[str]()
        """Scratch in registers, in the phase at hand."""
        self.wavefronts = 0.0
        """Of shared memory, in the phase at hand."""
        self.shifts = 0.0
        """Instructions of warps that put packs together which lie across two, in the phase at hand."""
        self.alike: dict[SharedInput, int] = {}
        """What a block reads once for all its rows, and the bytes that all blocks of the phase at hand read of it."""
        self.run = 1
        """Neighbours that a block reads at about the same time, in the phase at hand."""
        self.inner: Symbol | None = None
        """The innermost loop that a thread walks alone, in the stage at hand."""
        self.again: tuple[Symbol, ...] = ()
        """The loop over iterations that the step at hand is in."""
        self.outsides: Mapping[Scalar, Test] = {}
        """By masks of loads that edges alone need, the tests of what lies inside, in the stage at hand."""
        self.near: dict[tuple[str, Affine], list[int]] = {}
        """Where loads of the stage at hand begin, by buffer and by how they walk."""
        self.touched: dict[tuple[str, bool], tuple[int, int]] = {}
        """(bytes of sectors, bytes of elements that are touched for certain), by buffer and whether it is written."""

    def phase(self, launch: int, planned: Planned) -> PhaseFeatures:
        """Read one phase, cut into tiles as it will be."""
        self.wavefronts, self.shifts, phase = 0.0, 0.0, planned.phase
        points = math.prod(symbol.extent for symbol in phase.grid)
        moved: dict[tuple[str, bool], int] = {}
        plan, self.inside = planned.plan, in_registers(planned)
        self.tiled = {id(slot.access): plan.rows for slot in plan.slots} if isinstance(plan, TransposePlan) else {}
        self.run = -(-points // planned.blocks) if is_threaded(phase) else planned.threads * pack_of(planned)
        self.alike = {one: one.nbytes * planned.blocks for one in read_once(planned)}
        stages: list[StageFeatures] = []
        dots: list[DotFeatures] = []
        for number, step in enumerate(phase.steps):
            repeated = phase.iterations is not None and number in phase.iterations.steps
            self.again = (phase.iterations.symbol,) if phase.iterations is not None and repeated else ()
            if isinstance(step, Dot):
                dots.append(self._dot(step, phase, points, moved))
            else:
                stages += (self._stage(stage, planned, points * phase.times(number), moved) for stage in step.stages)
        scratch = [buffer.type.nbytes for buffer in self.buffers.values() if buffer.space is Space.SCRATCH]
        read = sum(nbytes for (_, write), nbytes in moved.items() if not write)
        written = sum(nbytes for (_, write), nbytes in moved.items() if write)
        reuse = Reuse(((0, read, written),))
        everybody = float(planned.blocks * planned.threads)
        return PhaseFeatures(launch, points, planned.blocks, everybody, tuple(stages), tuple(dots), reuse, sum(scratch))

    def buffer(self, buffer: Buffer) -> BufferFeatures:
        """What the whole kernel does with a global buffer."""
        read, least_read = self.touched.get((buffer.name, False), (0, 0))
        written, least_written = self.touched.get((buffer.name, True), (0, 0))
        return BufferFeatures(buffer.name, buffer.space, buffer.type.nbytes, read, written, least_read, least_written)

    def _stage(self, stage: Stage, planned: Planned, points: int, moved: dict[tuple[str, bool], int]) -> StageFeatures:
        """`points`: how often all grid points together come to it."""
        phase = planned.phase
        lane: Symbol | None = phase.grid[-1] if is_threaded(phase) and phase.grid else lane_of(stage)
        loops = math.prod(stage.trips)
        own = lane is not None and lane in stage.symbols
        entries = points if own else -(-points // WARP)
        rounds = loops // max(lane.extent, 1) * -(-lane.extent // WARP) if lane is not None and own else loops
        used = lane.extent / (-(-lane.extent // WARP) * WARP) if lane is not None and own and lane.extent else 1.0
        tiles = swept_tiles(planned, stage)
        vectors = entries * rounds if tiles is None else math.ceil(entries * rounds * tiles.visible)
        alike = invariants(stage) if tiles is not None else frozenset[Scalar]()
        varied = varying(stage, lane)
        self.near, self.outsides = {}, outsides(stage)
        self.inner = next((symbol for symbol in reversed(stage.symbols) if symbol != lane), None)
        operations: dict[tuple[str, str], float] = {}
        flops = 0.0
        counts: dict[str, float] = dict.fromkeys(
            ("contiguous", "strided", "gather", "uniform", "masked", "vector_bytes"), 0.0
        )
        for statement in stage.body:
            times = vectors
            if tiles is not None and not isinstance(statement, Effect) and statement.result in alike:
                times = math.ceil(entries * tiles.each_row)
            elif tiles is None and not isinstance(statement, Effect) and statement.result not in varied:
                times = math.ceil(vectors / pack_of(planned))  # neighbours of a thread share it
            if isinstance(statement, Load | Store):
                walked = self.tiled.get(id(statement), lane)
                lanes = used if walked is lane else 1.0
                symbols = (*phase.grid, *self.again, *stage.symbols)
                self._access(statement, symbols, walked, times, lanes, points * loops, counts, moved)
                if walked is not None and isinstance(statement, Load) and statement.buffer not in self.inside:
                    grid, pack = phase.grid if is_threaded(phase) else (), pack_of(planned)
                    self.shifts += times / pack * shift_instructions(statement, grid, walked, pack)
            for key, dtype, count in operations_of(self.costs, statement):
                operations[key] = operations.get(key, 0.0) + count * times
                flops += float(dtype.is_float) * points * loops
        if stage.stabiliser is not None:  # once for neighbours that a thread takes together
            for name in ("exp", "add", "multiply", "compare"):
                operations[name, "f32"] = operations.get((name, "f32"), 0.0) + vectors / pack_of(planned)
        reduces = sum(isinstance(statement, Reduce | ArgReduce) for statement in stage.body)
        scans = any(isinstance(statement, Scan) for statement in stage.body)
        chain = float(entries * max(dependent_rounds(planned, stage, rounds) - 1, 0)) if reduces or scans else 0.0
        return StageFeatures(
            entries=entries,
            iterations=points * loops,
            vectors=vectors,
            lanes=WARP,
            unroll=1,
            operations=operations,
            scalar_operations={},
            flops=flops,
            accesses=AccessCounts(**counts, gathered_elements=WARP * (counts["strided"] + counts["gather"])),
            far_walks=(),
            reduces=points * reduces,
            horizontal=float(points * reduces if own else 0),
            placed=0.0,
            chain=chain,
            scan_iterations=chain if scans else 0.0,
            first_touch_bytes=0,
            loops=rounds > 1,
            live=most_live(stage.body),
        )

    def _access(
        self,
        access: Load | Store,
        symbols: tuple[Symbol, ...],
        lane: Symbol | None,
        vectors: int,
        used: float,
        iterations: int,
        counts: dict[str, float],
        moved: dict[tuple[str, bool], int],
    ) -> None:
        """Count one load or store. `used`: of a warp's lanes, those that have an element of a row."""
        buffer = self.buffers[access.buffer]
        itemsize = buffer.type.dtype.itemsize
        kind, step = _walk(access.offset, lane)
        counts[kind] += vectors
        counts["masked"] += vectors * (access.mask is not None)
        if buffer.space is Space.SCRATCH:
            if buffer.name in self.inside:
                return
            self.wavefronts += vectors * max(1.0, WARP * itemsize / WAVEFRONT_BYTES if kind != "uniform" else 1.0)
            return
        one = next((one for one in self.alike if one.is_read_by(access, lane)), None)
        touched, least = _touched(access.offset, symbols, itemsize, iterations)
        share = self._edges(access, lane, itemsize)
        least = 0 if access.mask is not None else least
        self._touch(buffer, isinstance(access, Store), math.ceil(share * touched), least, moved)
        if one is not None:
            self.wavefronts += vectors * max(1.0, WARP * itemsize / WAVEFRONT_BYTES)
            counts["vector_bytes"] += self.alike[one]
            self.alike[one] = 0  # other stages find it there
            return
        wanted = {"uniform": 1.0, "gather": WARP * used}.get(kind, min(WARP, max(1, step * itemsize)) * used)
        sectors = max(1.0, wanted)
        fresh = self._fresh(access) if kind != "uniform" else min(self._fresh(access), self._walked(access, itemsize))
        counts["vector_bytes"] += vectors * sectors * SECTOR_BYTES * fresh * share

    def _edges(self, access: Load | Store, lane: Symbol | None, itemsize: int) -> float:
        """The share of an access that is made, where edges alone need it."""
        test = self.outsides.get(access.mask) if access.mask is not None else None
        return 1.0 if test is None else edge_share(test, lane, SECTOR_BYTES // itemsize)

    def _fresh(self, access: Load | Store) -> float:
        """The share of an access that goes to the L2: what a block has just read nearby is in the first-level cache."""
        if isinstance(access, Store):
            return 1.0
        known = self.near.setdefault((access.buffer, Affine(0, access.offset.terms)), [])
        apart = min((abs(access.offset.constant - start) for start in known), default=self.run)
        known.append(access.offset.constant)
        return min(1.0, apart / max(self.run, 1))

    def _walked(self, access: Load | Store, itemsize: int) -> float:
        """The share of what threads read alike that is not in the sector of the iteration before."""
        if self.inner is None or isinstance(access, Store):
            return 1.0
        rest = Affine(0, tuple((atom, step) for atom, step in access.offset.terms if atom != self.inner))
        if self.inner in index.symbols_of(rest):
            return 1.0
        step = abs(access.offset.coefficient(self.inner)) * itemsize
        return min(1.0, max(step / SECTOR_BYTES, 1.0 / max(self.inner.extent, 1)))

    def _touch(self, buffer: Buffer, write: bool, nbytes: int, least: int, moved: dict[tuple[str, bool], int]) -> None:
        """A buffer is touched once more; other parts of it, up to all that there is."""
        key = buffer.name, write
        most = -(-buffer.type.nbytes // SECTOR_BYTES) * SECTOR_BYTES
        if buffer.space is not Space.SCRATCH:
            moved[key] = min(most, moved.get(key, 0) + nbytes)
            before, certain = self.touched.get(key, (0, 0))
            self.touched[key] = (
                min(most, before + nbytes),
                min(buffer.type.nbytes, max(certain, least), most, before + nbytes),
            )

    def _dot(self, dot: Dot, phase: Phase, points: int, moved: dict[tuple[str, bool], int]) -> DotFeatures:
        """Count a product: of each matrix, what all grid points touch together."""
        row, column, depth = Symbol("row", dot.rows), Symbol("column", dot.columns), Symbol("depth", dot.depth)
        for matrix, down, across in ((dot.lhs, row, depth), (dot.rhs, depth, column), (dot.out, row, column)):
            buffer = self.buffers[matrix.buffer]
            block = phase.row_block if down is row else None
            around = (*phase.grid, *self.again)
            touched, least = _matrix_bytes(matrix, around, down, across, block, buffer.type.dtype.itemsize)
            self._touch(buffer, matrix is dot.out, touched, least if matrix is dot.out else 0, moved)
        return product_of(dot, phase, points, math.prod(symbol.extent for symbol in self.again))


def shift_instructions(load: Load, grid: Sequence[Symbol], lane: Symbol, pack: int) -> float:
    """Those that a thread has for a pack that does not begin at a multiple of its width, beside one that loads it.

    `grid`: whose points packs go through, if these are what threads are given. A place that is known within a pack
    needs the load of another one; else what is wanted of both is chosen word by word.
    """
    if pack == 1 or not is_unit_stride(load.offset, lane):
        return 0.0
    start = flat_point(grid) if grid and lane.extent % pack else index.of(lane)
    if alignment(load.offset, start, pack) == pack:
        return 0.0
    known = lane.extent % pack == 0 and alignment(Affine(0, load.offset.terms), start, pack) == pack
    return _SHIFTED if known else _CHOSEN


def varying(stage: Stage, lane: Symbol | None) -> frozenset[Scalar]:
    """Scalars of a stage that differ between neighbours along the lane."""
    found: set[Scalar] = set()
    for statement in stage.body:
        if isinstance(statement, Effect):
            continue
        walked = any(lane in index.symbols_of(value) for value in affines(statement))
        ordered = isinstance(statement, Reduce | ArgReduce | Scan | Carry)
        if walked or ordered or not found.isdisjoint(operands(statement)):
            found.add(statement.result)
    return frozenset(found)


def _matrix_bytes(
    matrix: Matrix, grid: tuple[Symbol, ...], down: Symbol, across: Symbol, block: RowBlock | None, itemsize: int
) -> tuple[int, int]:
    """What all grid points touch of a matrix, as `_touched` says it.

    `down` and `across`: its rows and columns at one grid point. `block`: of whose rows, which the grid goes through.
    """
    reach = matrix.offset + index.of(across) * matrix.column_stride
    inside = [across]
    if block is None or matrix.offset.coefficient(block.symbol) != matrix.row_stride:
        reach += index.of(down) * matrix.row_stride
        inside = [down, across]
    symbols = (*grid, *inside)
    return _touched(reach, symbols, itemsize, math.prod(symbol.extent for symbol in symbols))


def _walk(offset: Affine, lane: Symbol | None) -> tuple[str, int]:
    """How neighbouring threads walk, and by how many elements."""
    if lane is None or lane not in index.symbols_of(offset):
        return "uniform", 0
    rest = Affine(0, tuple((atom, step) for atom, step in offset.terms if atom != lane))
    if lane in index.symbols_of(rest):
        return "gather", 0
    step = abs(offset.coefficient(lane))
    return ("contiguous" if step == 1 else "strided"), step


def _touched(offset: Affine, symbols: tuple[Symbol, ...], itemsize: int, iterations: int) -> tuple[int, int]:
    """Bytes of the sectors that all iterations touch, and of the elements that they touch for certain."""
    if all(isinstance(atom, Symbol) for atom, _ in offset.terms):
        steps = steps_of([(offset.coefficient(symbol), symbol.extent) for symbol in symbols])
        extent = extent_of(steps, itemsize)
        if not iterations:
            return 0, 0
        sectors = max(extent.elements // max(extent.run_elements, 1), 1)
        run = -(-extent.run_elements * itemsize // SECTOR_BYTES) * SECTOR_BYTES
        return min(sectors * run, extent.line_bytes), extent.elements * itemsize
    low, high = index.bounds(offset)
    return min(iterations * SECTOR_BYTES, (high - low + 1) * itemsize), min(1, iterations) * itemsize


def _opaque(program: OpaqueProgram) -> KernelFeatures:
    elements = sum(value.type.size for node in program.graph.nodes for value in node.outputs)
    moved = sum(buffer.type.nbytes for buffer in program.buffers)
    found = OpaqueFeatures(len(program.graph.nodes), moved, sort_steps=0.0, scattered=0, elements=elements)
    buffers = tuple(_whole(buffer) for buffer in program.buffers)
    return KernelFeatures(FEATURES_VERSION, 1, (), buffers, found, WARP * 32, False, 1, 0)


def _whole(buffer: Buffer) -> BufferFeatures:
    nbytes = buffer.type.nbytes
    read, written = (nbytes, 0) if buffer.space is Space.INPUT else (0, nbytes)
    return BufferFeatures(buffer.name, buffer.space, nbytes, read, written, 0, 0)
