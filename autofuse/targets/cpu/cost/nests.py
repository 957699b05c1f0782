"""The loops around the statements of a phase, as the code generator arranges them."""

from __future__ import annotations

import math

from autofuse.cost_models.loopnest import LoopNest
from autofuse.ir.index import Symbol
from autofuse.lower.tile import Phase, Stage
from autofuse.targets.cpu.codegen.indexsplitting import Segments, plan_segments, whole
from autofuse.targets.cpu.codegen.phaselayout import Layout, stages_of
from autofuse.targets.cpu.codegen.widths import Widths


def grid_nest(phase: Phase, layout: Layout) -> LoopNest:
    """The loops over the grid points of a phase, or over its row blocks.

    A strip counts as so many vectors in flight; a square is one vector wide and as many rows high.
    """
    lanes, transpose = layout.lanes, layout.transpose
    flight = layout.unroll if layout.strip is None else layout.strip.vectors
    flight = 1 if transpose is not None else flight
    symbols = [s for s in phase.grid if phase.row_block is None or s != phase.row_block.symbol]
    rounds: list[int] = []
    vectors: list[int] = []
    extents: list[float] = []
    spans: dict[Symbol, tuple[int, ...]] = {}
    positions: dict[Symbol, int] = {}
    count = len(symbols) + (phase.row_block is not None)
    parts = _grid_parts(phase, lanes)
    for at, symbol in enumerate(symbols):
        is_vectorised = symbol == phase.vectorised
        rows = transpose.rows if transpose is not None and symbol == transpose.symbol else 1
        step = lanes * flight if is_vectorised else rows
        rounds.append(_vectors(parts, step) if is_vectorised else -(-symbol.extent // step))
        vectors.append(_vectors(parts, lanes) if is_vectorised else symbol.extent)
        extents.append(symbol.extent)
        spans[symbol] = (symbol.extent,) * (at + 1) + (min(step, symbol.extent),) * (count - at)
        positions[symbol] = at
    if phase.row_block is not None:
        at, row_block = len(rounds), phase.row_block
        size = min(row_block.size, row_block.symbol.extent)
        rounds.append(-(-row_block.symbol.extent // row_block.size))
        vectors.append(rounds[-1])
        extents.append(rounds[-1])
        spans[row_block.symbol] = (row_block.symbol.extent,) * (at + 1) + (size,)
        spans[row_block.local] = (size,) * (at + 2)
        positions[row_block.symbol] = positions[row_block.local] = at
    vectorised = phase.vectorised
    return LoopNest(rounds, vectors, extents, spans, positions, vectorised, lanes, flight, layout.copies)


def _grid_parts(phase: Phase, lanes: int) -> Segments:
    """How the vectorised grid loop is cut where conditions change (see `Sweep`)."""
    symbol = phase.vectorised
    if symbol is None or symbol.extent <= 2 * lanes:
        return () if symbol is None else whole(symbol)
    return plan_segments(stages_of(phase), (symbol,)).get(symbol, whole(symbol))


def _vectors(parts: Segments, step: int) -> int:
    """Each part of a loop ends with a vector of its own, however few lanes of it are used."""
    return sum(-(-(hi - lo) // step) for lo, hi in parts)


def stage_nest(rows: LoopNest, stage: Stage, widths: Widths) -> LoopNest:
    """The loops of a stage inside those around it."""
    symbol = stage.vectorised
    if symbol is None or rows.vectorised is not None:
        return rows.inner(stage, 1, 1)
    lanes, unroll = widths.of_stage(stage)
    # a vectorised loop of a vector or two is masked, not cut (see `Nest`)
    candidates = [s for s in stage.symbols if s != symbol or s.extent > 2 * lanes]
    parts = plan_segments((stage,), candidates).get(symbol, whole(symbol))
    return rows.inner(stage, lanes, unroll, _vectors(parts, lanes), _vectors(parts, lanes * unroll))


def timed_nest(grid: LoopNest, symbol: Symbol) -> LoopNest:
    """Inside the grid loops of a phase, the iterations of steps that are done again and again."""
    spans = {other: (*inside, inside[-1]) for other, inside in grid.spans.items()}
    spans[symbol] = (symbol.extent,) * (grid.depth + 1) + (1,)
    rounds, vectors = (*grid.rounds, symbol.extent), (*grid.vectors, symbol.extent)
    extents, positions = (*grid.extents, symbol.extent), {**grid.positions, symbol: grid.depth}
    return LoopNest(rounds, vectors, extents, spans, positions, None, 1, 1)


def row_nest(grid: LoopNest, phase: Phase) -> LoopNest:
    """Inside the grid loops of a phase, the loop over the rows of a row block (the same nest without a row block).

    `grid`: with the iterations inside, for steps that are done again and again.
    """
    if phase.row_block is None:
        return grid
    row_block = phase.row_block
    row_blocks = grid.rounds[grid.positions[row_block.symbol]]
    exact = row_block.symbol.extent / max(row_blocks, 1)
    rows = math.ceil(exact)
    spans = {symbol: (*inside, inside[-1]) for symbol, inside in grid.spans.items()}
    spans[row_block.symbol] = (*grid.spans[row_block.symbol], 1)
    spans[row_block.local] = (*grid.spans[row_block.local], 1)
    positions = {**grid.positions, row_block.symbol: grid.depth, row_block.local: grid.depth}
    rounds, vectors = (*grid.rounds, rows), (*grid.vectors, rows)
    return LoopNest(rounds, vectors, (*grid.extents, exact), spans, positions, None, 1, 1)
