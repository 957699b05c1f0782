"""One block per row block (or per grid point with dots): rows are walked by warps, dots by all threads together."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager

from autofuse.ir.index import Symbol
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Dot, Iterations, Phase, RowGroup
from autofuse.targets.cuda.codegen.blockorder import define_tiles
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan, scratch_of
from autofuse.targets.cuda.codegen.blockproducts import DotWriter
from autofuse.targets.cuda.codegen.fewrowwriting import FewRowsWriter
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.producttiles import TileShape
from autofuse.targets.cuda.codegen.rowgroups import Group, rows_together
from autofuse.targets.cuda.codegen.rows import RowWriter, write_group_head
from autofuse.targets.cuda.codegen.sweeps import SweepWriter
from autofuse.targets.cuda.codegen.sweepshapes import swept_bytes
from autofuse.targets.cuda.codegen.threads import serial_loop
from autofuse.targets.cuda.ctypes_text import memory_type


class RowBlockWriter:
    """Writes one phase."""

    def __init__(
        self,
        code: PhaseCode,
        phase: Phase,
        plan: RowBlockPlan,
        buffers: Mapping[str, Buffer],
        schedule: Schedule,
        arena: SharedArena,
    ) -> None:
        self.code, self.phase, self.plan = code, phase, plan
        self.buffers, self.schedule, self.arena = buffers, schedule, arena

    def write(self, block: str) -> None:
        """The code of the phase. `block`: C, the number of the block among those of the phase."""
        code, plan = self.code, self.plan
        rows, columns = plan.row_block, plan.column_tiles
        if rows is None or columns is None or plan.together == 1:
            define_symbols(code, plan.grid, block)
        else:
            define_tiles(code, plan.grid, rows, columns, plan.together, block)
        written = self._write_rows_head()
        writer = DotWriter(code, self.arena, plan.threads, self.buffers, plan.dots, self._steps(), self._least_bytes())
        code.places.update(self._declare_scratch(writer.offset))
        cut = None if self.phase.row_block is None else plan.rows
        few = FewRowsWriter(code, self.arena, plan.threads, plan.few_rows, self._steps(), cut)
        few.begin()
        sweep, again = self.phase.sweep, self.phase.iterations
        swept = () if sweep is None else sweep.steps[1:]
        with ExitStack() as loop:
            for number in range(len(self.phase.steps)):
                if number in swept:
                    continue  # written with the first of them
                if again is not None and number == again.steps.stop:
                    loop.close()
                if number:
                    code.out.line("__syncthreads();")
                if again is not None and number == again.first:
                    loop.enter_context(self._each_iteration(again))
                with code.out.braces(""):
                    self._write_step(number, (writer, few), written)

    def _write_step(self, number: int, writers: tuple[DotWriter, FewRowsWriter], rows: str) -> None:
        """A step, or the sweep that begins with it. `writers`: of products in tiles, and of those of few rows."""
        step, sweep = self.phase.steps[number], self.phase.sweep
        writer, few = writers
        if sweep is not None and number == sweep.first:
            self._write_sweep(rows, writer.offset)
        elif isinstance(step, Dot) and self.plan.few_rows:
            self._at_first_row()
            shape = next(shape for dot, shape in self.plan.few_rows if dot is step)
            few.write(step, shape, str(step.rows) if self.phase.row_block is None else rows)
        elif isinstance(step, Dot):
            shape = next(shape for dot, shape in self.plan.dots if dot is step)
            self._write_dot(writer, step, shape, rows)
        else:
            self._write_row_group(step, rows)

    @contextmanager
    def _each_iteration(self, again: Iterations) -> Generator[None]:
        """A loop over time: what an iteration has made, all threads find in the next one."""
        out = self.code.out
        out.line("#pragma unroll 1")  # a body is long
        with out.braces(serial_loop(self.code, again.symbol)):
            out.line(f"if ({self.code.symbols[again.symbol]}) __syncthreads();")
            yield

    def _steps(self) -> dict[Symbol, int]:
        """What the symbols in a dot's offsets are multiples of."""
        block = self.phase.row_block
        return {} if block is None else {block.symbol: self.plan.rows, block.local: 0}

    def _least_bytes(self) -> int:
        """Of what shares memory with the operands' tiles of products: scratch, or the tiles of a sweep."""
        plan, block = self.plan, self.phase.row_block
        if plan.sweep is not None:
            return swept_bytes(self.phase, plan.sweep, self.buffers)
        if plan.aliased is None or block is None:
            return 0
        return self.buffers[plan.aliased].type.nbytes // block.size * plan.rows

    def _write_rows_head(self) -> str:
        """Define `first` and `rows`; returns the C expression for the number of rows."""
        code, plan, block = self.code, self.plan, self.phase.row_block
        if block is None:
            return str(plan.rows)
        extent, number = block.symbol.extent, code.symbols[plan.row_block] if plan.row_block else "0"
        code.out.line(f"const {code.index.type} first = {number} * {plan.rows};")
        if extent % plan.rows == 0:
            return str(plan.rows)
        code.out.line(f"const int rows = first + {plan.rows} <= {extent} ? {plan.rows} : (int)({extent} - first);")
        return "rows"

    def _declare_scratch(self, tiles: int) -> dict[str, Place]:
        """`tiles`: where the operands' tiles lie, and so what may share their memory."""
        block, arena = self.phase.row_block, self.arena
        places: dict[str, Place] = {}
        for buffer in scratch_of(self.phase, self.buffers):
            dtype, size = buffer.type.dtype, buffer.type.size
            if block is not None:
                size = size // block.size * self.plan.rows
            name = self.code.names.fresh(buffer.name)
            shared = buffer.name == self.plan.aliased
            offset = tiles if shared else arena.take(size * dtype.itemsize, f"scratch {buffer.name}")
            self.code.out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)};")
            places[buffer.name] = Place(name, dtype, "memory", shared=True)
        return places

    def _at_first_row(self) -> None:
        """Matrices begin at the first row of the block."""
        block = self.phase.row_block
        if block is not None:
            self.code.symbols[block.symbol], self.code.symbols[block.local] = "first", "0"

    def _write_dot(self, writer: DotWriter, dot: Dot, shape: TileShape, rows: str) -> None:
        self._at_first_row()
        columns = None if self.plan.columns is None else self.code.symbols[self.plan.columns]
        rows = str(dot.rows) if self.phase.row_block is None else rows
        writer.write(dot, shape, rows, row_tile=self._row_tile(), column_tile=columns)

    def _row_tile(self) -> str | None:
        """A lone dot without a row block takes one row tile per block; in a row block the tile is the block."""
        if self.plan.columns is None:
            return None
        if self.phase.row_block is not None or self.plan.row_block is None:
            return "0"
        return self.code.symbols[self.plan.row_block]

    def _write_sweep(self, rows: str, tiles: int) -> None:
        """The steps that are taken tile by tile. `tiles`: where tiles lie in shared memory."""
        self._at_first_row()
        assert self.plan.sweep is not None
        SweepWriter(
            self.code, self.phase, self.plan.sweep, self.buffers, self.arena, self.plan.threads, rows, self._steps()
        ).write(tiles)

    def _write_row_group(self, step: RowGroup, rows: str) -> None:
        code, block = self.code, self.phase.row_block
        group = self.plan.group(step.stages, self.phase, self.buffers, self.schedule)
        write_group_head(code, group)
        if block is None:
            RowWriter(code, group, self.arena).write(step.stages)
            return
        local = code.loop_name(block.local)
        with self._each_row(step, group, local, rows):
            name = code.loop_name(block.symbol)
            code.out.line(f"const {code.index.type} {name} = first + {local};")
            RowWriter(code, group, self.arena).write(step.stages)

    @contextmanager
    def _each_row(self, step: RowGroup, group: Group, local: str, rows: str) -> Generator[None]:
        """The rows of a group. Where all blocks have as many, some are begun together."""
        out, turns = self.code.out, self.plan.rows // group.per_block
        together = rows_together(step.stages, group, self.plan.rows) if rows.isdigit() else 1
        if together == 1:
            slot = "slot" if group.in_warp else "0"
            with out.braces(f"for (int {local} = {slot}; {local} < {rows}; {local} += {group.per_block})"):
                yield
            return
        turn = self.code.names.fresh("turn")
        out.line(f"#pragma unroll {together}")
        with out.braces(f"for (int {turn} = 0; {turn} < {turns}; ++{turn})"):
            out.line(f"const int {local} = slot + {turn} * {group.per_block};")
            yield
