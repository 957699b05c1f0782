"""A phase as one LLVM function over its flattened blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Statement
from autofuse.lower.tile import Dot, Phase, Space, Stage, Step, TileProgram
from autofuse.targets.cpu.codegen.accesses import Place
from autofuse.targets.cpu.codegen.blockline import Room
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.conditions import used_scalars
from autofuse.targets.cpu.codegen.grid import At, write_points
from autofuse.targets.cpu.codegen.nest import Nest
from autofuse.targets.cpu.codegen.phaselayout import plan_layout, used_buffers
from autofuse.targets.cpu.codegen.products import dot_work_bytes, write_dot
from autofuse.targets.cpu.codegen.runtimebounds import bounds_of, left_to_do
from autofuse.targets.cpu.codegen.sweep import Sweep
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.targets.cpu.codegen.versioning import write_variants
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText
from autofuse.targets.cpu.native.nativeprogram import PhaseCode


def write_phase(
    module: ModuleText, program: TileProgram, phase: Phase, symbol: str, widths: Widths, tags: Mapping[str, str]
) -> PhaseCode:
    """Add the function `symbol` to the module. `tags` are the alias metadata of each buffer's loads and stores."""
    fn = module.function(
        symbol,
        "void",
        [("ptr noalias readonly captures(none)", "buffers"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch")],
    )
    layout = plan_layout(program, phase, widths)
    places, scratch_bytes = _places(fn, program, phase, tags, layout.copies)
    work = fn.emit(f"getelementptr inbounds i8, ptr %scratch, i64 {scratch_bytes}")
    scratch_bytes += _work_bytes(program, phase, widths)
    body = Body(fn, places, widths.registers, widths.sides)

    def emit(statements: Sequence[Statement], group: Group) -> None:
        made = {s.result for s in statements}  # type: ignore[union-attr]  # what is computed here is no effect
        body.write(statements, [group], [{}], used_scalars(statements) | made)

    nest = Nest(body, widths, Room(fn), bounds_of(fn, program, phase, emit))
    if layout.blocks and phase.vectorised is not None:
        Sweep.of(phase.grid, phase.steps, nest, layout).write()
    elif layout.blocks:
        _Points(fn, phase, nest, work).write()
    if widths.stream_stores or (widths.stream_transposed and layout.transpose is not None):
        fn.line("fence seq_cst")
    fn.ret()
    return PhaseCode(symbol, layout.blocks, layout.task_blocks, scratch_bytes, layout.tasks)


@dataclass(frozen=True, slots=True)
class _Points:
    """Writes a phase that visits grid points, or row blocks, one by one."""

    fn: FunctionText
    phase: Phase
    nest: Nest
    work: str
    """Pointer to what products need beside scratch."""

    def write(self) -> None:
        """Append the loops over the blocks and all inside."""
        phase = self.phase
        if phase.row_block is None:
            write_points(self.fn, phase.grid, self._point)
            return
        outer = [symbol for symbol in phase.grid if symbol != phase.row_block.symbol]
        row_blocks = Symbol("panel", -(-phase.row_block.symbol.extent // phase.row_block.size))
        write_points(self.fn, [*outer, row_blocks], lambda at: self._row_block(at, row_blocks))

    def _each(self, at: At, write: Callable[[Step, At], None]) -> None:
        """The steps in order, those of iterations as often as these are."""
        steps, again = self.phase.steps, self.phase.iterations
        inside = range(0) if again is None else again.steps
        for step in steps[: inside.start]:
            write(step, at)
        if again is not None:
            trips = str(again.symbol.extent)
            with counted_loop(self.fn, "0", trips, 1, nonempty=True, as_written=True, hint="t") as number:
                for step in steps[inside.start : inside.stop]:
                    write(step, {**at, again.symbol: Index(number)})
        for step in steps[inside.stop :]:
            write(step, at)

    def _point(self, at: At) -> None:
        def write(step: Step, at: At) -> None:
            group = Group(Lanes(), dict(at), {}, {})
            if isinstance(step, Dot):
                self._dot(step, group, (str(step.rows), [step.rows]))
            else:
                self._rows(step.stages, group)

        self._each(at, write)

    def _rows(self, stages: Sequence[Stage], group: Group) -> None:
        """The stages at one grid point."""

        def inside(point: Group) -> None:
            left = left_to_do(stages, point.ranges, point.assumed) if point.assumed else ()
            for stage in [stages[number] for number, _ in left] or stages:
                self.nest.write(stage, [point])

        def bounded(point: Group) -> None:
            self.nest.bounds.branches(self.fn, point, lambda assumed: left_to_do(stages, point.ranges, assumed), inside)

        write_variants(self.fn, self.phase.grid, stages, group, bounded, tile=self.phase.tile)

    def _row_block(self, at: At, row_blocks: Symbol) -> None:
        row_block = self.phase.row_block
        assert row_block is not None
        number = at[row_blocks]
        first, rows = Index("", 0), str(min(row_block.size, row_block.symbol.extent))
        if number.base:
            first = Index(self.fn.emit(f"mul nuw nsw i64 {number.base}, {row_block.size}"))
            left = self.fn.emit(f"sub nuw nsw i64 {row_block.symbol.extent}, {first.base}")
            rows = str(row_block.size)
            if row_block.symbol.extent % row_block.size:
                rows = self.fn.intrinsic("llvm.smin.i64", "i64", [("i64", left), ("i64", rows)])
        outer = {symbol: index for symbol, index in at.items() if symbol != row_blocks}
        extent, size = row_block.symbol.extent, min(row_block.size, row_block.symbol.extent)
        counts = [size, extent % size] if size and extent % size else [size]

        def write(step: Step, at: At) -> None:
            if isinstance(step, Dot):
                group = Group(Lanes(), {**at, row_block.symbol: first, row_block.local: Index("", 0)}, {}, {})
                self._dot(step, group, (rows, counts))
                return
            with counted_loop(self.fn, "0", rows, 1, nonempty=True, hint="row") as local:
                row = Index(self.fn.emit(f"add nuw nsw i64 {first.base}, {local}") if first.base else local)
                group = Group(Lanes(), {**at, row_block.symbol: row, row_block.local: Index(local)}, {}, {})
                self._rows(step.stages, group)

        self._each(outer, write)

    def _dot(self, dot: Dot, group: Group, rows: tuple[str, Sequence[int]]) -> None:
        write_dot(self.fn, self.nest.body.places, dot, group, rows, self.nest.widths, self.work)


def _work_bytes(program: TileProgram, phase: Phase, widths: Widths) -> int:
    types = {buffer.name: buffer.type.dtype for buffer in program.buffers}
    return max((dot_work_bytes(step, types, widths) for step in phase.steps if isinstance(step, Dot)), default=0)


def _places(
    fn: FunctionText, program: TileProgram, phase: Phase, tags: Mapping[str, str], copies: int
) -> tuple[dict[str, Place], int]:
    """Where the phase finds its buffers, and the bytes of scratch that it needs."""
    numbers = {buffer.name: number for number, buffer in enumerate(program.parameters())}
    used = used_buffers(phase)
    places: dict[str, Place] = {}
    scratch_bytes = 0
    for buffer in program.buffers:
        if buffer.name not in used:
            continue
        if buffer.space is Space.SCRATCH:
            base = fn.emit(f"getelementptr inbounds i8, ptr %scratch, i64 {scratch_bytes}")
            scratch_bytes += -(-buffer.type.nbytes * copies // 64) * 64
        else:
            slot = fn.emit(f"getelementptr inbounds ptr, ptr %buffers, i64 {numbers[buffer.name]}")
            base = fn.emit(f"load ptr, ptr {slot}, align 8")
        places[buffer.name] = Place(buffer, base, tags[buffer.name])
    return places, scratch_bytes
