"""Splitting the long loops of a kernel that has too few grid points for all workers.

    grid() { stage k { reduce add }   stage j { uses the sum; store } }
 -> launch 0  grid(part) { stage k' { reduce add }  stage { store partial[part] } }
    launch 1  grid(part) { stage piece { reduce partial }  stage j' { uses the sum; store } }

Each long stage becomes a launch of its own, whose grid has the parts of its loop besides. Whoever needs a reduced value
combines the partial results, in one order everywhere; where there are too many for that, a launch does it once. What
lay in scratch between two launches lies in a workspace. Which loops are long, and in how many parts they are cut, a
target says (`Splitting`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.firstplace import is_searchable, search_stages, with_extrema
from autofuse.lower.rewrite import operands, rewritten
from autofuse.lower.splitting import BY_SIZE, Splitting
from autofuse.lower.statements import ArgReduce, Effect, Load, Map, Reduce, Scalar, Statement, Store
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram

_PART = "part"
"""The grid symbol that numbers parts."""


def parts_of(launch: Sequence[Phase]) -> int:
    """In how many parts a launch of a split kernel walks a loop; 0 where it walks none in parts."""
    return sum(symbol.extent for phase in launch for symbol in phase.grid if symbol.name == _PART)


def split_reductions(program: TileProgram, parts: int, splitting: Splitting = BY_SIZE) -> TileProgram:
    """Split a program that starts with a reduction over few grid points into `parts`; 0 = decide, 1 = leave."""
    if parts == 1 or len(program.launches) != 1 or len(program.launches[0]) != 1:
        return program
    phase = program.launches[0][0]
    if (
        phase.row_block is not None
        or phase.iterations is not None
        or len(phase.steps) != 1
        or not isinstance(phase.steps[0], RowGroup)
    ):
        return program
    stage = phase.steps[0].stages[0]
    splitter = _Splitter(program, phase, parts, splitting)
    if not any(isinstance(s, Reduce | ArgReduce) for s in stage.body) or not splitter.can_split(stage):
        return program
    return splitter.run() if parts or splitter.is_long(stage) else program


@dataclass(frozen=True, slots=True)
class _Cut:
    """How the loop over one symbol is cut: `parts` of `chunk` iterations, and one of `rest` behind them."""

    symbol: Symbol
    parts: int
    chunk: int
    rest: int

    @property
    def all_parts(self) -> int:
        return self.parts + (self.rest > 0)

    def pieces(self) -> Iterator[tuple[Symbol, Symbol, int]]:
        """(symbol of the part, symbol inside it, number of the first part) of each loop nest."""
        name = self.symbol.name
        yield Symbol(_PART, self.parts), Symbol(name, self.chunk), 0
        if self.rest:
            yield Symbol(_PART, 1), Symbol(name, self.rest), self.parts


@dataclass(frozen=True, slots=True)
class _Partial:
    """Where the partial results of a reduction lie: one row of grid points for each part."""

    reduce: Reduce
    buffer: str
    parts: int
    launch: int
    """The launch that makes them."""


class _Splitter:
    """Rewrites one phase into launches."""

    def __init__(self, program: TileProgram, phase: Phase, parts: int, splitting: Splitting) -> None:
        """`parts`: of the loops that are split; 0: as many as `splitting` says."""
        self.program, self.phase, self.asked, self.splitting = program, phase, parts, splitting
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        (group,) = phase.steps
        assert isinstance(group, RowGroup)
        self.stages = group.stages
        self.points = math.prod(symbol.extent for symbol in phase.grid)
        self.next = 1 + max(s.result for stage in self.stages for s in stage.body if not isinstance(s, Effect))
        self.workspaces: list[Buffer] = []
        self.partials: dict[Scalar, _Partial] = {}
        self.launches: list[tuple[Phase, ...]] = []

    def run(self) -> TileProgram:
        """The program as several launches."""
        short: list[Stage] = []
        for number, stage in enumerate(self.stages):
            if number and not (self.can_split(stage) and self.is_long(stage)):
                short.append(stage)
                continue
            self._flush(short, self.stages[number:])
            if self.splitting.combines_once:
                self._total([stage])
            self._long(stage)
            short = []
        self._flush(short, ())
        launches = tuple(self.launches)
        program = replace(self.program, buffers=(*self.program.buffers, *self.workspaces), launches=launches)
        return self._without_shared_scratch(program)

    def can_split(self, stage: Stage) -> bool:
        """Whether a stage's loop has parts that can be walked apart."""
        if not any(symbol.extent > 1 for symbol in stage.symbols) or stage.is_ordered:
            return False
        searches = [s for s in stage.body if isinstance(s, ArgReduce)]
        if not searches:
            return True
        cut = self._cut(stage).symbol
        return self.phase.vectorised is None and all(is_searchable(search, stage, cut) for search in searches)

    def is_long(self, stage: Stage) -> bool:
        """Whether parts are better than a whole."""
        return self.splitting.parts(self.phase, stage, self.buffers) > 1

    def _cut(self, stage: Stage) -> _Cut:
        wanted = self.asked or self.splitting.parts(self.phase, stage, self.buffers)
        outer = next((s for s in stage.symbols if s.extent > 1), stage.symbols[0])
        if outer.extent < wanted:
            outer = max(stage.symbols, key=lambda symbol: symbol.extent)
        least = -(-outer.extent // min(wanted, outer.extent))
        chunk = self.splitting.chunk(self.phase, stage, outer, least)
        return _Cut(outer, outer.extent // chunk, chunk, outer.extent % chunk)

    def _flush(self, short: Sequence[Stage], later: Sequence[Stage]) -> None:
        """Write the short stages between two long ones; results alone join the launch before, if not made there.

        `later`: all stages behind them.
        """
        if not short:
            return
        wanted = _wanted(short)
        fresh = any(partial.launch == len(self.launches) - 1 for n, partial in self.partials.items() if n in wanted)
        reduces = any(isinstance(s, Reduce | ArgReduce) for stage in short for s in stage.body)
        again = [p for p in self._needed(short) if p.reduce.result in _wanted(later)]
        phase = self._short(short, again if self.splitting.combines_once else [])
        if fresh or reduces or any(buffer.space is Space.SCRATCH for buffer in self.program.buffers):
            self.launches.append((phase,))
        else:
            self.launches[-1] = (*self.launches[-1], phase)

    def _total(self, stages: Sequence[Stage]) -> None:
        """Append a launch that combines what `stages` need, where nobody did."""
        parted = [partial for partial in self._needed(stages) if partial.parts > 1]
        if parted:
            combining = self._combining(parted)
            self.launches.append((self._phase([*combining, self._totals(parted)], None),))

    # ---- launches ------------------------------------------------------------------------------------------------

    def _long(self, stage: Stage) -> None:
        """Append a launch over the parts of one stage's loop, and one for the positions that it is to find."""
        cut = self._cut(stage)
        stage, searches = with_extrema(stage, self._fresh)
        stores: list[tuple[Reduce, str]] = []
        for reduce in (s for s in stage.body if isinstance(s, Reduce)):
            stores.append((reduce, self._workspace("partial", TensorType((cut.all_parts, self.points), reduce.dtype))))
        combining = self._combining(self._needed([stage]))
        phases: list[Phase] = []
        for part, inner, first in cut.pieces():
            place = index.of(part) + first
            whole = place * cut.chunk + index.of(inner)
            body = tuple(rewritten(s, lambda a, w=whole: index.renamed(a, {cut.symbol: w})) for s in stage.body)
            symbols = tuple(inner if symbol == cut.symbol else symbol for symbol in stage.symbols)
            stages = [*combining, Stage(symbols, body, inner if stage.vectorised == cut.symbol else stage.vectorised)]
            if stores:
                slot = place * self.points + self._point()
                stages.append(Stage((), tuple(Store(name, slot, reduce.result) for reduce, name in stores), None))
            phases.append(self._phase(stages, part))
        for reduce, name in stores:
            self.partials[reduce.result] = _Partial(reduce, name, cut.all_parts, len(self.launches))
        self.launches.append(tuple(phases))
        if searches:
            self.launches.append(tuple(self._search(stage, cut, pair) for pair in searches.items()))

    def _search(self, stage: Stage, cut: _Cut, pair: tuple[ArgReduce, Reduce]) -> Phase:
        """A phase that finds a position, given the extrema of the parts."""
        search, extremum = pair
        partial = self.partials[extremum.result]
        walk = Symbol("piece", partial.parts)
        where = partial.buffer, index.of(walk) * self.points + self._point(), walk
        stages, found = search_stages(stage, (cut.symbol, cut.chunk), pair, where, self._fresh)
        name = self._workspace("place", TensorType((1, self.points), search.dtype))
        result = self._fresh()
        last = Map(result, search.dtype, "convert", (found,)), Store(name, self._point(), result)
        self.partials[search.result] = _Partial(_combine(search), name, 1, len(self.launches))
        return self._phase([*self._combining(self._needed([stage])), *stages, Stage((), last, None)], None)

    def _short(self, stages: Sequence[Stage], again: Sequence[_Partial]) -> Phase:
        """Stages that are not split, as they were; and the totals of what is needed `again`."""
        late: list[Statement] = []
        combining = self._combining(self._needed(stages))
        for reduce in (s for stage in stages for s in stage.body if isinstance(s, Reduce | ArgReduce)):
            late.append(self._kept(_combine(reduce), len(self.launches)))
        parted = [partial for partial in again if partial.parts > 1]
        if parted:
            late += self._totals(parted).body
        if late:
            stages = (*stages, Stage((), tuple(late), None))
        return self._phase([*combining, *stages], None)

    def _totals(self, partials: Sequence[_Partial]) -> Stage:
        """A stage that stores what was combined; whoever needs it later finds one part of it."""
        return Stage((), tuple(self._kept(partial.reduce, len(self.launches)) for partial in partials), None)

    def _kept(self, reduce: Reduce, launch: int) -> Store:
        """Stores a value that a launch has reduced, for later ones."""
        name = self._workspace("total", TensorType((1, self.points), reduce.dtype))
        self.partials[reduce.result] = _Partial(reduce, name, 1, launch)
        return Store(name, self._point(), reduce.result)

    def _phase(self, stages: Sequence[Stage], part: Symbol | None) -> Phase:
        grid, vectorised = self.phase.grid, self.phase.vectorised
        if part is not None:
            grid = (*(s for s in grid if s != vectorised), part, *(s for s in grid if s == vectorised))
        return Phase(grid, (RowGroup(tuple(stages)),), vectorised)

    def _needed(self, stages: Sequence[Stage]) -> list[_Partial]:
        """What `stages` need of earlier launches."""
        wanted = _wanted(stages)
        return [partial for number, partial in self.partials.items() if number in wanted]

    def _combining(self, needed: Sequence[_Partial]) -> list[Stage]:
        """Stages that combine partial results, one for each number of parts."""
        found: list[Stage] = []
        for parts in dict.fromkeys(partial.parts for partial in needed):
            walk = Symbol("piece", parts)
            body: list[Statement] = []
            for partial in needed:
                if partial.parts == parts:
                    scalar = self._fresh()
                    slot = index.of(walk) * self.points + self._point()
                    body.append(Load(scalar, partial.reduce.dtype, partial.buffer, slot))
                    body.append(replace(partial.reduce, operand=scalar))
            if parts == 1 and self.splitting.combines_once:
                body = [rewritten(s, lambda a, w=walk: index.renamed(a, {w: Affine()})) for s in body]
                found.append(Stage((), tuple(body), None))
                continue
            found.append(Stage((walk,), tuple(body), None if self.phase.vectorised is not None else walk))
        return found

    # ---- memory --------------------------------------------------------------------------------------------------

    def _workspace(self, name: str, type_: TensorType) -> str:
        buffer = Buffer(f"{name}_{len(self.workspaces)}", type_, Space.WORKSPACE)
        self.workspaces.append(buffer)
        return buffer.name

    def _point(self) -> Affine:
        """The number of a grid point."""
        point = Affine()
        for symbol in self.phase.grid:
            point = point * symbol.extent + index.of(symbol)
        return point

    def _fresh(self) -> Scalar:
        self.next += 1
        return self.next - 1

    def _without_shared_scratch(self, program: TileProgram) -> TileProgram:
        """Scratch becomes a workspace with a place for every grid point: lanes over points lie side by side in it."""
        scratch = {b.name: b.type for b in program.buffers if b.space is Space.SCRATCH}
        if not scratch:
            return program

        def placed(statement: Statement) -> Statement:
            if not isinstance(statement, Load | Store) or statement.buffer not in scratch:
                return statement
            if self.phase.vectorised is None:
                return replace(statement, offset=self._point() * scratch[statement.buffer].size + statement.offset)
            return replace(statement, offset=statement.offset * self.points + self._point())

        def moved(phase: Phase) -> Phase:
            (group,) = phase.steps
            assert isinstance(group, RowGroup)
            stages = tuple(replace(stage, body=tuple(map(placed, stage.body))) for stage in group.stages)
            return replace(phase, steps=(RowGroup(stages),))

        buffers = tuple(
            Buffer(b.name, _spread(b.type.size * self.points, b.type.dtype), Space.WORKSPACE)
            if b.name in scratch
            else b
            for b in program.buffers
        )
        launches = tuple(tuple(map(moved, launch)) for launch in program.launches)
        return replace(program, buffers=buffers, launches=launches)


def _wanted(stages: Sequence[Stage]) -> set[Scalar]:
    """All scalars that stages read."""
    return {number for stage in stages for s in stage.body for number in operands(s)}


def _combine(reduce: Reduce | ArgReduce) -> Reduce:
    """What combines totals of parts: of a position there is nothing but the one."""
    if isinstance(reduce, Reduce):
        return reduce
    return Reduce(reduce.result, reduce.dtype, "maximum", reduce.operand)


def _spread(size: int, dtype: DType) -> TensorType:
    return TensorType((size,), dtype)
