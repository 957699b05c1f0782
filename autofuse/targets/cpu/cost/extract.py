"""From a lowered kernel to its features."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.cost_models.features import (
    FEATURES_VERSION,
    BufferFeatures,
    DotFeatures,
    KernelFeatures,
    PhaseFeatures,
    Reuse,
    StageFeatures,
)
from autofuse.cost_models.liveness import StraightLine
from autofuse.cost_models.loopnest import LoopNest
from autofuse.cost_models.traffic import Access, Moved, Touched, dot_accesses, levels_between, touched_by
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import PRODUCTS, SIDES
from autofuse.lower.statements import Carry
from autofuse.lower.tile import Buffer, Dot, OpaqueProgram, Phase, RowGroup, Space, Step, TileProgram
from autofuse.targets.cpu.codegen.cachestores import streams_stores
from autofuse.targets.cpu.codegen.phaselayout import Layout, plan_layout
from autofuse.targets.cpu.codegen.products import dot_cycles
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.cost.blockwork import block_work
from autofuse.targets.cpu.cost.cuttests import grid_cuts
from autofuse.targets.cpu.cost.nests import grid_nest, row_nest, stage_nest, timed_nest
from autofuse.targets.cpu.cost.opaquework import opaque_features
from autofuse.targets.cpu.cost.scalarwork import Scalar
from autofuse.targets.cpu.cost.spills import Registers
from autofuse.targets.cpu.cost.stagework import StageWalk
from autofuse.targets.cpu.decisions import STATE, UNROLL, VECTOR_BITS


def features(program: TileProgram | OpaqueProgram, vector_bits: int = 512) -> KernelFeatures:
    """Describe a kernel, as the passes left it, for vectors of at most `vector_bits` bits.

    Raises BackendError for an unknown opcode.
    """
    return FeatureReader(vector_bits).features(program)


class FeatureReader:
    """Describes kernels one after another. Schedules of one lowering that lay out vectors alike share one walk."""

    def __init__(self, vector_bits: int = 512) -> None:
        """`vector_bits`: see `features`."""
        self._vector_bits = vector_bits
        self._walked: dict[tuple[object, ...], KernelFeatures] = {}
        self._programs: dict[int, tuple[TileProgram, bool, bool]] = {}
        """By the identity of its launches, a program of each lowering, kept for that; whether it has products, and
        loops that carry something."""

    def features(self, program: TileProgram | OpaqueProgram) -> KernelFeatures:
        """See `features`."""
        if isinstance(program, OpaqueProgram):
            return _opaque(program, self._vector_bits)
        lowering = id(program.launches)
        if lowering not in self._programs:
            steps = [step for phase in program.phases() for step in phase.steps]
            multiplies = any(isinstance(step, Dot) for step in steps)
            self._programs[lowering] = program, multiplies, any(map(_carries, steps))
        first, multiplies, carries = self._programs[lowering]
        # all that decides: what else a schedule says is no part of a walk
        schedule, products = program.schedule, program.schedule[PRODUCTS] if multiplies else ""
        sides = schedule[SIDES] if carries or schedule[SIDES] == "packed" else ""
        state = schedule[STATE] if carries else ""
        key = lowering, schedule[VECTOR_BITS], schedule[UNROLL], products, sides, state
        same = first.buffers is program.buffers
        found = self._walked.get(key) if same else None
        if found is None:
            found = _walked(program, Widths.chosen(program, self._vector_bits))
            if same:
                self._walked[key] = found
        streams = streams_stores(program)
        return found if found.stream_stores is streams else replace(found, stream_stores=streams)


def _carries(step: Step) -> bool:
    return isinstance(step, RowGroup) and any(Carry in map(type, stage.body) for stage in step.stages)


def _walked(program: TileProgram, widths: Widths) -> KernelFeatures:
    reader = _Reader(program, widths)
    phases: list[PhaseFeatures] = []
    touched: dict[str, Touched] = {}
    for number, launch in enumerate(program.launches):
        for phase in launch:
            phases.append(reader.phase(phase, number))
            _merge(touched, reader.touched)
    return KernelFeatures(
        version=FEATURES_VERSION,
        launches=len(program.launches),
        phases=tuple(phases),
        buffers=tuple(_buffer(b, touched) for b in program.parameters()),
        opaque=None,
        vector_bits=widths.vector_bits,
        stream_stores=widths.stream_stores,
        unroll=widths.unroll,
        panel_rows=max((phase.row_block.size for phase in program.phases() if phase.row_block is not None), default=0),
    )


def _merge(touched: dict[str, Touched], new: Mapping[str, Touched]) -> None:
    for name, t in new.items():
        before = touched.get(name)
        if before is not None:
            t = Touched(*map(max, before, t))
        touched[name] = t


_UNTOUCHED = Touched(0, 0, 0, 0)


def _buffer(buffer: Buffer, touched: Mapping[str, Touched]) -> BufferFeatures:
    t = touched.get(buffer.name, _UNTOUCHED)
    return BufferFeatures(
        buffer.name,
        buffer.space,
        buffer.type.nbytes,
        t.read_lines,
        t.written_lines,
        t.least_read,
        t.least_written,
    )


class _Reader:
    """Reads the phases of one program."""

    def __init__(self, program: TileProgram, widths: Widths) -> None:
        self.program, self.widths = program, widths
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.touched: dict[str, Touched] = {}
        """Of the phase read last."""

    def phase(self, phase: Phase, launch: int) -> PhaseFeatures:
        """Read one phase."""
        layout = plan_layout(self.program, phase, self.widths)
        grid = grid_nest(phase, layout)
        rows = row_nest(grid, phase)
        registers = Registers(phase, layout, self.widths)
        scalars: dict[int, Scalar] = {}
        accesses: list[Access] = []
        stages: list[StageFeatures] = []
        dots: list[DotFeatures] = []
        parts: list[Reuse] = []
        again = phase.iterations
        inside = range(0) if again is None else again.steps
        timed = grid if again is None else timed_nest(grid, again.symbol)
        timed_rows = rows if again is None else row_nest(timed, phase)
        repeated: list[Access] = []
        first = 0
        for number, step in enumerate(phase.steps):
            around, each = (timed, timed_rows) if number in inside else (grid, rows)
            if isinstance(step, Dot):
                own = dot_accesses(step, phase, around, self.buffers)
                dots.append(self._dot(step, phase, grid, phase.times(number)))
                inner = [levels_between(own, around, around.depth, around.depth, scratch_stays=False)]
            else:
                own, walked, inner = self._group(step, phase, each, scalars, layout, registers)
                stages += walked
            if phase.row_block is not None and isinstance(step, RowGroup):
                levels = levels_between(own, each, around.depth, each.depth, scratch_stays=False)
                inner = [Reuse(levels.levels, tuple(inner))]
            accesses += own
            if number == inside.start:
                first = len(parts)
            if number in inside:
                repeated += own
            parts += inner
            if number in inside and number + 1 == inside.stop:
                levels = levels_between(repeated, timed, grid.depth, timed.depth, scratch_stays=True)
                parts[first:] = [Reuse(levels.levels, tuple(parts[first:]))]
        scratch = {a.buffer.name: a.buffer.type.nbytes * a.copies for a in accesses if a.buffer.space is Space.SCRATCH}
        last = None
        if len(parts) == 1 and not parts[0].parts and len(parts[0].levels) == 1 and not scratch and rows is grid:
            last = Moved(*parts[0].levels[0])  # one stage without loops, or one product: what the inside moves
        around = levels_between(accesses, grid, 0, grid.depth, scratch_stays=True, last=last)
        self.touched = touched_by(accesses)
        points = math.prod(symbol.extent for symbol in phase.grid)
        return PhaseFeatures(
            launch=launch,
            points=points,
            blocks=max(layout.blocks, 1),
            shares=max(layout.blocks / layout.task_blocks, 1.0),
            stages=tuple(stages),
            dots=tuple(dots),
            reuse=Reuse(around.levels, tuple(parts)),
            scratch_bytes=sum(scratch.values()),
        )

    def _dot(self, dot: Dot, phase: Phase, grid: LoopNest, times: int) -> DotFeatures:
        """`times`: how often a grid point, or row block, does it."""
        calls = grid.rounds_to[-1] * times
        every = dot.rows * calls
        if phase.row_block is not None:
            every = phase.row_block.symbol.extent * grid.rounds_to[-2] * times
        types = {name: buffer.type.dtype for name, buffer in self.buffers.items()}
        cycles = dot_cycles(dot, types, self.widths)
        shape = dot.rows, dot.columns, dot.depth
        return DotFeatures(*shape, calls, every, dot.dtype.name, cycles is None, cycles or 0.0)

    def _group(
        self,
        group: RowGroup,
        phase: Phase,
        rows: LoopNest,
        scalars: dict[int, Scalar],
        layout: Layout,
        registers: Registers,
    ) -> tuple[list[Access], list[StageFeatures], list[Reuse]]:
        accesses: list[Access] = []
        stages: list[StageFeatures] = []
        parts: list[Reuse] = []
        seen: set[str] = set()
        cuts = grid_cuts(phase, layout)
        for stage in group.stages:
            nest = stage_nest(rows, stage, self.widths)
            block = block_work(phase, stage, layout, self.widths, scalars)
            walk = StageWalk(stage, (nest, rows), self.buffers, scalars, layout, cuts, block)
            line = StraightLine(stage.body)
            vectors = (nest.lanes, nest.unroll) if rows.vectorised is None else None
            stages.append(walk.features(seen, line.most_live(), registers.after(stage, line, vectors).beyond))
            accesses += walk.accesses
            span = rows.depth, nest.depth
            parts.append(levels_between(walk.accesses, walk.walked, *span, scratch_stays=False, innermost=True))
        return accesses, stages, parts


def _opaque(program: OpaqueProgram, vector_bits: int) -> KernelFeatures:
    touched = {
        b.name: Touched(b.type.nbytes, 0, 0, 0) if b.space is Space.INPUT else Touched(0, b.type.nbytes, 0, 0)
        for b in program.buffers
    }
    buffers = tuple(_buffer(b, touched) for b in program.buffers)
    return KernelFeatures(FEATURES_VERSION, 1, (), buffers, opaque_features(program, vector_bits), 64, False, 1, 0)
