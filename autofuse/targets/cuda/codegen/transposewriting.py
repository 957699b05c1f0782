"""The code of a phase that goes through tiles in shared memory: see `transposes`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import rewritten
from autofuse.lower.statements import Effect, Load, Scalar, Statement, Store
from autofuse.lower.tile import Phase, Stage
from autofuse.targets.cuda.codegen.access import is_unit_stride, stages_of
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena, unwrapped
from autofuse.targets.cuda.codegen.transposes import Slot, TransposePlan, Walk
from autofuse.targets.cuda.ctypes_text import memory_type

MOST_UNROLLED, PART_UNROLLED = 16, 8
"""Turns of a thread up to which its loop is unrolled whole, and how far else: so that loads are asked for together."""


def write_transposes(code: PhaseCode, phase: Phase, plan: TransposePlan, block: str, arena: SharedArena) -> None:
    """The code of one phase; `block` is the C name of the block's number within the phase."""
    _TransposeWriter(code, plan, arena).write(phase, block)


@dataclass(slots=True)
class _TransposeWriter:
    code: PhaseCode
    plan: TransposePlan
    arena: SharedArena

    def write(self, phase: Phase, block: str) -> None:
        """Copy tiles in, do the work, copy tiles out."""
        define_symbols(self.code, self.plan.grid, block)
        names = [self._tile(slot) for slot in self.plan.slots]
        pairs = list(zip(self.plan.slots, names, strict=True))
        loads = [pair for pair in pairs if isinstance(pair[0].access, Load)]
        stores = [pair for pair in pairs if isinstance(pair[0].access, Store)]
        for slot, name in loads:
            self._copy_in(slot, name)
        if loads:
            self.code.out.line("__syncthreads();")
        self._work(list(stages_of(phase)), pairs)
        if stores:
            self.code.out.line("__syncthreads();")
        last = 1 + max(
            (s.result for stage in stages_of(phase) for s in stage.body if not isinstance(s, Effect)), default=0
        )
        for slot, name in stores:
            self._copy_out(slot, name, last)

    def _tile(self, slot: Slot) -> str:
        """Shared memory of a tile; returns the name that it has as a buffer."""
        code, dtype = self.code, slot.buffer.type.dtype
        name = code.names.fresh(f"{slot.buffer.name}_tile")
        pointer = self.arena.pointer(memory_type(dtype), self.arena.take(slot.nbytes, f"a tile of {slot.buffer.name}"))
        code.out.line(f"{memory_type(dtype)}* const {name} = {pointer};")
        code.places[name] = Place(name, dtype, "memory", shared=True)
        return name

    def _copy_in(self, slot: Slot, name: str) -> None:
        down, along = self.plan.inner
        load = slot.access
        assert isinstance(load, Load)
        body = (*slot.needs, load)
        stage = self._placed(Stage((), body, None))
        stage = replace(stage, body=(*stage.body, Store(name, self._inside(slot), load.result)))
        with self._each(slot.walk, down, along, self._placed_offset(load.offset)):
            self._run(stage, Copies(down, slot.walk.vector))

    def _copy_out(self, slot: Slot, name: str, number: Scalar) -> None:
        down, along = self.plan.inner
        store = slot.access
        assert isinstance(store, Store)
        stage = self._placed(Stage((), (*slot.needs, replace(store, value=number)), None))
        read = Load(number, slot.buffer.type.dtype, name, self._inside(slot))
        stage = replace(stage, body=(read, *stage.body))
        with self._each(slot.walk, down, along, self._placed_offset(store.offset)):
            self._run(stage, Copies(down, slot.walk.vector))

    def _work(self, stages: Sequence[Stage], pairs: Sequence[tuple[Slot, str]]) -> None:
        """All stages, with tiles in place of what goes through them."""
        down, along = self.plan.inner
        tiled = {id(slot.access): (slot, name) for slot, name in pairs}
        placed = [
            self._placed(replace(stage, body=tuple(self._through(s, tiled) for s in stage.body))) for stage in stages
        ]
        with self._each(self.plan.walk, along, down, self._lead(placed)):
            for stage in placed:
                self._run(stage, Copies(along, self.plan.walk.vector))

    def _through(self, statement: Statement, tiled: dict[int, tuple[Slot, str]]) -> Statement:
        found = tiled.get(id(statement))
        if found is None or not isinstance(statement, Load | Store):
            return statement
        slot, name = found
        if isinstance(statement, Load):
            return Load(statement.result, statement.dtype, name, self._inside(slot))
        return Store(name, self._inside(slot), statement.value)

    def _inside(self, slot: Slot) -> Affine:
        """Where an element lies in its tile."""
        down, along = self.plan.inner
        return index.of(along) * slot.pitch + index.of(down)

    def _placed(self, stage: Stage) -> Stage:
        """A stage with rows and columns by the tile and the place in it."""
        return replace(stage, body=tuple(rewritten(s, self._placed_offset) for s in stage.body))

    def _placed_offset(self, value: Affine) -> Affine:
        return index.renamed(value, self.plan.places)

    def _lead(self, stages: Sequence[Stage]) -> Affine | None:
        """The offset of the direct access that decides where lines start: a store, if there is one."""
        _, along = self.plan.inner
        direct = [
            s
            for stage in stages
            for s in stage.body
            if isinstance(s, Load | Store) and not self.code.places[s.buffer].shared and is_unit_stride(s.offset, along)
        ]
        stores = [s for s in direct if isinstance(s, Store)]
        return (stores or direct)[0].offset if direct else None

    def _run(self, stage: Stage, copies: Copies) -> None:
        body = StageBody(self.code, stage, copies.count)
        body.declare()
        body.body(copies)
        body.finish()

    @contextmanager
    def _each(self, walk: Walk, fast: Symbol, slow: Symbol, offset: Affine | None) -> Generator[None]:
        """The places of a tile that a thread takes, `fast` that of its first element. `offset`: where lines begin."""
        code, out, threads = self.code, self.code.out, self.plan.threads
        turns = -(-walk.units // threads)
        with code.out.braces(""):
            out.line("#pragma unroll" if turns <= MOST_UNROLLED else f"#pragma unroll {PART_UNROLLED}")
            with out.braces(f"for (int each = 0; each < {turns}; ++each)"):
                out.line(f"const int unit = each * {threads} + (int)threadIdx.x;")
                guards = [f"unit < {walk.units}"] if turns * threads > walk.units else []
                guards += self._define(walk, fast, slow, offset)
                if guards:
                    with out.braces(f"if ({' && '.join(guards)})"):
                        yield
                else:
                    yield

    def _define(self, walk: Walk, fast: Symbol, slow: Symbol, offset: Affine | None) -> list[str]:
        """Define both places; returns the conditions that they exist under."""
        code, out = self.code, self.code.out
        first, line = code.loop_name(fast), code.loop_name(slow)
        steps = walk.steps
        if walk.beside:
            pieces = steps // walk.beside
            band = f"unit / {32 * pieces}" if pieces > 1 else "unit / 32"
            below = walk.lanes_below
            lane = f"unit % 32 / {walk.beside}" if walk.beside > 1 else "unit % 32"
            out.line(f"const int {line} = {f'{band} * {below} + {lane}' if below > 1 else band};")
            beside = f"unit % {walk.beside}" if walk.beside > 1 else "0"
            step = f"unit / 32 % {pieces} * {walk.beside} + {beside}" if pieces > 1 else beside
        else:
            out.line(f"const int {line} = unit / {steps};")
            step = f"unit % {steps}"
        guards = [f"{line} < {walk.lines}"] if walk.lines % walk.lanes_below else []
        if walk.vector > 1:
            step = f"({step}) * {walk.vector}"
        if walk.shift > 1 and offset is not None:
            start = unwrapped(code.affine(index.renamed(offset, {fast: Affine(0)})))
            out.line(f"const int {first} = {step} - (int)(({start}) & {walk.shift - 1});")
            guards += [f"{first} >= 0", f"{first} < {walk.length}"]
        else:
            out.line(f"const int {first} = {step};")
        return guards + self._bounds()

    def _bounds(self) -> list[str]:
        """Conditions that a place in the tile is one of the phase's points."""
        plan, found = self.plan, list[str]()
        for symbol, size in ((plan.rows, plan.height), (plan.columns, plan.width)):
            if symbol.extent % size:
                found.append(f"{unwrapped(self.code.affine(plan.places[symbol]))} < {symbol.extent}")
        return found
