"""The loops around the statements of a phase, as the code generator arranges them."""

from __future__ import annotations

import math

from autofuse.cost_models.loopnest import LoopNest
from autofuse.ir.index import Symbol
from autofuse.lower.tile import Phase
from autofuse.targets.cpu.codegen.phaselayout import Layout


def grid_nest(phase: Phase, layout: Layout) -> LoopNest:
    """The loops over the grid points of a phase, or over its panels.

    A strip counts as so many vectors in flight; a square is one vector wide and as many rows high.
    """
    lanes, turn = layout.lanes, layout.turn
    flight = layout.unroll if layout.strip is None else layout.strip.vectors
    flight = 1 if turn is not None else flight
    symbols = [s for s in phase.grid if phase.panel is None or s != phase.panel.symbol]
    rounds: list[int] = []
    vectors: list[int] = []
    extents: list[float] = []
    spans: dict[Symbol, tuple[int, ...]] = {}
    positions: dict[Symbol, int] = {}
    count = len(symbols) + (phase.panel is not None)
    for at, symbol in enumerate(symbols):
        is_lane = symbol == phase.lane
        step = lanes * flight if is_lane else (turn.rows if turn is not None and symbol == turn.symbol else 1)
        rounds.append(-(-symbol.extent // step))
        vectors.append(-(-symbol.extent // lanes) if is_lane else symbol.extent)
        extents.append(symbol.extent)
        spans[symbol] = (symbol.extent,) * (at + 1) + (min(step, symbol.extent),) * (count - at)
        positions[symbol] = at
    if phase.panel is not None:
        at, panel = len(rounds), phase.panel
        size = min(panel.size, panel.symbol.extent)
        rounds.append(-(-panel.symbol.extent // panel.size))
        vectors.append(rounds[-1])
        extents.append(rounds[-1])
        spans[panel.symbol] = (panel.symbol.extent,) * (at + 1) + (size,)
        spans[panel.local] = (size,) * (at + 2)
        positions[panel.symbol] = positions[panel.local] = at
    lane = phase.lane
    return LoopNest(tuple(rounds), tuple(vectors), tuple(extents), spans, positions, lane, lanes, flight, layout.copies)


def row_nest(grid: LoopNest, phase: Phase) -> LoopNest:
    """Inside the grid loops of a phase, the loop over the rows of a panel (the same nest without a panel)."""
    if phase.panel is None:
        return grid
    panel = phase.panel
    panels = grid.rounds[-1]
    exact = panel.symbol.extent / max(panels, 1)
    rows = math.ceil(exact)
    spans = {symbol: (*inside, inside[-1]) for symbol, inside in grid.spans.items()}
    spans[panel.symbol] = (*grid.spans[panel.symbol], 1)
    spans[panel.local] = (*grid.spans[panel.local], 1)
    positions = {**grid.positions, panel.symbol: grid.depth, panel.local: grid.depth}
    rounds, vectors = (*grid.rounds, rows), (*grid.vectors, rows)
    return LoopNest(rounds, vectors, (*grid.extents, exact), spans, positions, None, 1, 1)
