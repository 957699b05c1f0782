"""From drafts to a phase: loops that step through memory together become one; what is vectorised and row blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from autofuse.ir import dtypes, index
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.lower.phasedrafts import PhaseDraft, StageDraft
from autofuse.lower.rewrite import Rewrite, affines, number_elements, rewritten, rewritten_dot
from autofuse.lower.schedule import VECTORISED, Schedule
from autofuse.lower.settling import end_early
from autofuse.lower.statelowering import in_memory_order
from autofuse.lower.statements import Carry, Load, Scan, Statement, Store
from autofuse.lower.tile import Dot, Phase, RowBlock, RowGroup, Stage, Step


def finish_phase(
    draft: PhaseDraft,
    grid: Sequence[Symbol],
    rows: Sequence[Symbol],
    local: Symbol | None,
    schedule: Schedule,
    boundaries: Sequence[int],
    enough_rows: int = 0,
    *,
    by_points: bool = False,
) -> Phase:
    """Put the parts of a draft in order. `boundaries`: levels at whose end dots run.

    `by_points`: grid points are not spread over lanes.
    `enough_rows`: a row block's loop of fewer is joined with the loops of rows around it, where products can do so.
    """
    stages = [_in_order(_numbered(stage)) for stage in draft.ordered()]
    end_early(stages, lambda: draft.scalar(dtypes.BOOL), schedule)
    dots = [(level, rewritten_dot(dot, number_elements)) for level, dot in draft.dots]
    grid, stages, dots = _collapse_grid(list(grid), stages, dots)
    if rows and local is not None:
        grid, stages, dots = _join_rows(grid, stages, dots, rows, enough_rows)
    collapsed = [_collapse_stage(stage) for stage in stages]
    row_block = None
    if rows and local is not None and grid:
        row_block = RowBlock(grid[-1], local, local.extent)
    alone = by_points or row_block is not None or bool(dots)
    vectorised = None if alone else _vectorised_grid_symbol(grid, collapsed, schedule)
    if vectorised is not None:
        grid = [*(s for s in grid if s != vectorised), vectorised]
    spreads = vectorised is None and not any(map(_carries, collapsed))
    final = [(stage.level, _stage(stage, spreads=spreads)) for stage in collapsed]
    return Phase(tuple(grid), _steps(final, dots, boundaries), vectorised, row_block)


def _numbered(stage: StageDraft) -> StageDraft:
    return _rewritten(stage, stage.symbols, number_elements)


def _in_order(stage: StageDraft) -> StageDraft:
    if stage.updates:
        stage.body = in_memory_order(stage.body, stage.loads, stage.updates)
        stage.updates = {}  # places of before
    return stage


def _rewritten(stage: StageDraft, symbols: tuple[Symbol, ...], rewrite: Rewrite) -> StageDraft:
    """A stage that walks `symbols`, its index expressions rewritten."""
    done = StageDraft(stage.level, stage.late, symbols, resting=stage.resting, sections=stage.sections)
    done.loads, done.updates, done.in_order = stage.loads, stage.updates, stage.in_order
    done.body = [rewritten(statement, rewrite) for statement in stage.body]
    done.before = None if stage.before is None else _rewritten(stage.before, (), rewrite)
    return done


def _used_by(stages: Iterable[StageDraft]) -> Iterator[Affine]:
    """The index expressions of stages."""
    for stage in stages:
        for statement in (*(stage.before.body if stage.before is not None else ()), *stage.body):
            yield from affines(statement)


def _steps(
    stages: Sequence[tuple[int, Stage]], dots: Sequence[tuple[int, Dot]], boundaries: Sequence[int]
) -> tuple[Step, ...]:
    steps: list[Step] = []
    low = -1
    for boundary in [*boundaries, None]:
        inside = [s for level, s in stages if level > low and (boundary is None or level <= boundary)]
        if inside:
            steps.append(RowGroup(tuple(inside)))
        if boundary is not None:
            steps += [dot for level, dot in dots if level == boundary]
            low = boundary
    return tuple(steps)


# ---- collapsing --------------------------------------------------------------------------------------------------


def _collapse_grid(
    grid: list[Symbol], stages: list[StageDraft], dots: list[tuple[int, Dot]]
) -> tuple[list[Symbol], list[StageDraft], list[tuple[int, Dot]]]:
    position = 0
    while position + 1 < len(grid):
        slow, fast = grid[position], grid[position + 1]
        used = list(_used_by(stages))
        used += [m.offset for _, dot in dots for m in (dot.out, dot.lhs, dot.rhs)]
        if not _walk_together(used, slow, fast):
            position += 1
            continue
        joined = Symbol(fast.name, slow.extent * fast.extent)
        stages, dots = _renamed(stages, dots, {slow: Affine(), fast: index.of(joined)})
        grid[position : position + 2] = [joined]
        position = max(position - 1, 0)
    return grid, stages, dots


def _renamed(
    stages: Sequence[StageDraft], dots: Sequence[tuple[int, Dot]], mapping: Mapping[Symbol, Affine]
) -> tuple[list[StageDraft], list[tuple[int, Dot]]]:
    """Stages and products with other expressions in place of symbols."""

    def rename(value: Affine) -> Affine:
        return index.renamed(value, mapping)

    renamed = [_rewritten(stage, stage.symbols, rename) for stage in stages]
    return renamed, [(level, rewritten_dot(dot, rename)) for level, dot in dots]


def _join_rows(
    grid: list[Symbol], stages: list[StageDraft], dots: list[tuple[int, Dot]], rows: Sequence[Symbol], enough: int
) -> tuple[list[Symbol], list[StageDraft], list[tuple[int, Dot]]]:
    """The last loops of rows as one, until it has enough: a row of a convolution is a place in an image, of a batch.

    Products must step from row to row alike; stages find out which row of which loop it is.
    """
    names = {symbol.name for symbol in rows}
    while len(grid) > 1 and grid[-1].extent < enough and {grid[-2].name, grid[-1].name} <= names:
        slow, fast = grid[-2], grid[-1]
        if not _walk_together([m.offset for _, dot in dots for m in (dot.out, dot.lhs, dot.rhs)], slow, fast):
            break
        joined = Symbol(fast.name, slow.extent * fast.extent)
        here = index.of(joined)
        stages, dots = _renamed(stages, dots, {slow: here // fast.extent, fast: here % fast.extent})
        grid = [*grid[:-2], joined]
    return grid, stages, dots


def _collapse_stage(stage: StageDraft) -> StageDraft:
    symbols = list(stage.symbols)
    position = 0
    while position + 1 < len(symbols):
        slow, fast = symbols[position], symbols[position + 1]
        if not _walk_together(_used_by([stage]), slow, fast):
            position += 1
            continue
        joined = Symbol(fast.name, slow.extent * fast.extent)
        mapping = {slow: Affine(), fast: index.of(joined)}
        symbols[position : position + 2] = [joined]
        stage = _rewritten(stage, tuple(symbols), lambda a, m=mapping: index.renamed(a, m))
        position = max(position - 1, 0)
    return stage


def _walk_together(used: Iterable[Affine], slow: Symbol, fast: Symbol) -> bool:
    """Whether every expression is a function of `slow * extent(fast) + fast`."""
    return all(_depends_jointly(a, slow, fast) for a in used)


def _depends_jointly(value: Affine, slow: Symbol, fast: Symbol) -> bool:
    if value.coefficient(slow) != value.coefficient(fast) * fast.extent:
        return False
    for variable, _ in value.terms:
        match variable:
            case Quotient(inner, _) | Remainder(inner, _):
                if not _depends_jointly(inner, slow, fast):
                    return False
            case Element(_, inside, _, _):
                if not all(_depends_jointly(inner, slow, fast) for inner in inside):
                    return False
            case Symbol():
                pass
    return True


# ---- the vectorised loop ----------------------------------------------------------------------------------------


def _vectorised_grid_symbol(grid: Sequence[Symbol], stages: Sequence[StageDraft], schedule: Schedule) -> Symbol | None:
    """The grid symbol to spread over lanes, or None to use each stage's stream symbol."""
    carries = any(map(_carries, stages))
    if not grid or (schedule[VECTORISED] == "stream" and not carries and any(stage.symbols for stage in stages)):
        return None
    scores = {symbol: sum(_weight(s) * _score(s.body, symbol) for s in stages) for symbol in grid}
    best = max(reversed(grid), key=lambda symbol: scores[symbol])
    if carries or schedule[VECTORISED] == "grid" or not any(stage.symbols for stage in stages):
        return best
    stream = sum(
        _weight(s) * max((_score(s.body, symbol) for symbol in s.symbols), default=-1.0)
        for s in stages
        if not any(isinstance(statement, Scan) for statement in s.body)
    )
    return best if scores[best] > stream else None


def _carries(stage: StageDraft) -> bool:
    """Whether iterations follow one another."""
    return stage.in_order or any(isinstance(statement, Carry) for statement in stage.body)


def _weight(stage: StageDraft) -> float:
    """Iterations of a stage."""
    weight = 1.0
    for symbol in stage.symbols:
        weight *= symbol.extent
    return weight


def _score(body: Sequence[Statement], symbol: Symbol) -> float:
    """How well memory is walked when `symbol` runs over lanes: 1 per contiguous access, 0.5 uniform, -1 strided."""
    total = 0.0
    for offset in _offsets(body):
        coefficient = offset.coefficient(symbol)
        nested = not index.is_static(offset) and any(
            not isinstance(variable, Symbol) and symbol in _inside(variable) for variable, _ in offset.terms
        )
        if nested or coefficient not in (0, 1):
            total -= 1.0
        else:
            total += 1.0 if coefficient == 1 else 0.5
    return total * min(symbol.extent, 16) / 16 if total > 0 else total


def _offsets(body: Sequence[Statement]) -> Iterator[Affine]:
    for statement in body:
        if isinstance(statement, Load | Store):
            yield statement.offset


def _inside(variable: index.Variable) -> frozenset[Symbol]:
    return index.symbols_of(index.of(variable))


def _stage(stage: StageDraft, *, spreads: bool) -> Stage:
    """The stage. `spreads`: whether lanes may be iterations of it."""
    symbols = stage.symbols
    body = tuple(stage.body)
    if not spreads or not symbols or any(isinstance(s, Scan) for s in body):
        before = () if stage.before is None else tuple(stage.before.body)
        return Stage(symbols, body, None, before=before, sections=stage.sections, in_order=stage.in_order)
    vectorised = symbols[0] if len(symbols) == 1 else max(reversed(symbols), key=lambda symbol: _score(body, symbol))
    ordered = (*(s for s in symbols if s != vectorised), vectorised)
    return Stage(ordered, body, vectorised)
