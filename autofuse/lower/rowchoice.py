"""Which rows a row block walks, where those of a kernel's products are several loops that are not one.

In grouped attention a row of queries has a place in the sequence and one among the heads that share keys; where results
are stored head by head within a place, the heads are the inner loop, and there are few of them.
"""

from __future__ import annotations

from autofuse.fusion.dimensions import AxisFactor
from autofuse.fusion.domain import Domain
from autofuse.lazydataclass import replace
from autofuse.lower.phaseframe import grid_symbols
from autofuse.lower.tile import Phase


def longest_rows_last(domain: Domain, phase: Phase, least: int) -> Domain:
    """The domain with the longest loop of rows last, if a phase's row block walks one of fewer than `least` rows."""
    if phase.row_block is None or phase.row_block.symbol.extent >= least:
        return domain
    extents = {symbol.name: symbol.extent for symbol in phase.grid}
    loops: list[list[AxisFactor]] = [[]]
    """Factors that are one loop: the last of them has its name."""
    longest, most = loops[0], phase.row_block.symbol.extent
    for factor, symbol in grid_symbols(domain.grid, domain.dimensions).items():
        loops[-1].append(factor)
        if symbol.name not in extents:
            continue
        if extents[symbol.name] > most and set(loops[-1]) <= set(domain.rows):
            longest, most = loops[-1], extents[symbol.name]
        loops.append([])
    if most == phase.row_block.symbol.extent:
        return domain
    others = (tuple(f for f in factors if f not in longest) for factors in (domain.grid, domain.rows))
    grid, rows = ((*kept, *longest) for kept in others)
    return replace(domain, grid=grid, rows=rows)
