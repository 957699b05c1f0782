"""Index-set splitting: cut a loop where a condition on its symbol changes, so that each part knows the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.ir.pieces import Condition
from autofuse.lower.statements import Test
from autofuse.lower.tile import Stage

Segments = tuple[tuple[int, int], ...]
"""Half-open ranges, in order, that make up `0 <= s < extent`."""

_MOST_COPIES = 12
"""Copies of a body that splitting may make."""
_MOST_STATEMENTS = 600
"""Statements that the copies may have together."""


def copies_allowed(stages: Sequence[Stage]) -> int:
    """How many copies of the stages splitting may make: fewer of long ones."""
    statements = sum(len(stage.body) for stage in stages)
    return max(1, min(_MOST_COPIES, _MOST_STATEMENTS // max(statements, 1)))


def whole(symbol: Symbol) -> Segments:
    """One segment: the loop as it is."""
    return ((0, symbol.extent),) if symbol.extent else ()


def all_segments(
    stages: Iterable[Stage], candidates: Sequence[Symbol], tile: Symbol | None = None
) -> dict[Symbol, Segments]:
    """How conditions that depend on one of the candidates alone would split their loops; whole ones are absent.

    `tile`: the candidate that counts tiles, if one does. It is split where conditions on positions in tiles begin and
    cease to hold in all of the tile.
    """
    conditions = [c for stage in stages for s in stage.body if type(s) is Test for c in s.conditions]
    if not conditions:
        return {}
    cuts = {symbol: _cuts(symbol, conditions) for symbol in candidates}
    if tile is not None:
        cuts[tile] = sorted({*cuts[tile], *_whole_tiles(tile, conditions)})
    return {
        symbol: tuple(zip((0, *points), (*points, symbol.extent), strict=True))
        for symbol, points in cuts.items()
        if points
    }


def plan_segments(stages: Sequence[Stage], candidates: Sequence[Symbol]) -> Mapping[Symbol, Segments]:
    """How to split the loops over `candidates`; symbols that gain nothing are absent.

    Where that would make too many copies, the symbol with the most parts is left whole, and its conditions become
    masks.
    """
    planned = all_segments(stages, candidates)
    if not planned:
        return planned
    allowed = copies_allowed(stages)
    while math.prod(len(parts) for parts in planned.values()) > allowed:
        del planned[max(planned, key=lambda symbol: len(planned[symbol]))]
    return planned


def largest(parts: Segments) -> tuple[int, int]:
    """The longest of the segments."""
    return max(parts, key=lambda part: part[1] - part[0])


def _cuts(symbol: Symbol, conditions: Iterable[Condition]) -> list[int]:
    found: set[int] = set()
    for condition in conditions:
        terms = condition.value.terms
        if len(terms) == 1 and terms[0][0] == symbol:
            coefficient = terms[0][1]
            for limit in (condition.lo, condition.hi):
                found.add(_first_beyond(coefficient, limit - condition.value.constant))
    return sorted(point for point in found if 0 < point < symbol.extent)


def _whole_tiles(tile: Symbol, conditions: Iterable[Condition]) -> Iterator[int]:
    """The first tile in all of which a condition on a tile and a position in it holds, and the first behind these."""
    for condition in conditions:
        coefficient = condition.value.coefficient(tile)
        if coefficient > 0 and len(condition.value.terms) > 1:
            least, greatest = index.bounds(condition.value - index.of(tile) * coefficient)
            for limit in (condition.lo - least, condition.hi - greatest):
                found = _first_beyond(coefficient, limit)
                if 0 < found < tile.extent:
                    yield found


def _first_beyond(coefficient: int, limit: int) -> int:
    """Where `coefficient * s >= limit` changes its truth: it differs between this s and the one before."""
    if coefficient > 0:
        return -(-limit // coefficient)
    return limit // coefficient + 1
