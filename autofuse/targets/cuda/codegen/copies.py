"""Copies of a stage that one thread computes side by side: neighbours in a loop, or packs of neighbours in a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Test
from autofuse.targets.cuda.codegen.access import (
    VECTOR_BYTES,
    alignment,
    flat_point,
    is_flat,
    is_unit_stride,
)
from autofuse.targets.cuda.codegen.places import Place

Level = Literal[0, 1, 2]
"""Who shares a value: all copies (0), those of a pack (1), or none (2)."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Grid points that follow one another. Where one does not exist, another that does is looked at in its place."""

    symbols: Mapping[Symbol, str]
    """C names of the first one's place."""
    others: tuple[Mapping[Symbol, str], ...] = ()
    """Of the places of the rest; empty where only the last symbol differs, by their number."""
    row: str = ""
    """C condition that only the last symbol differs; empty if that is always so."""
    full: str = ""
    """C condition that all exist; empty if they always do."""
    each: tuple[str, ...] = ()
    """C condition that each exists; empty if they always do."""
    inside: str = ""
    """C condition that this is not a place that another thread stores; empty if it never is."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copy `v` of a statement stands at `lane + v`, or at a place of `packs`."""

    lane: Symbol | None
    count: int
    chunk: str = "0"
    """C expression numbering the chunks of `count` lanes that the thread walks."""
    leader: str | None = None
    """C condition under which stores happen, when all threads of a group run the same iteration."""
    combined: bool = False
    """Copies are iterations (a reduction combines them), not grid points (a reduction keeps one result for each)."""
    grid: tuple[Symbol, ...] = ()
    packs: tuple[Neighbours, ...] = ()
    """Of grid points, one after the other; or of iterations that are begun together, each with its place in the loop
    (`iterations`). Empty if copies are neighbours in a loop."""
    walked: Symbol | None = None
    """What tells packs of iterations from one another."""

    def iterations(self, symbol: Symbol, names: Sequence[str]) -> Copies:
        """Several iterations of a loop over `symbol`, whose C names those are: each with a pack of these copies."""
        (pack,) = self.packs or (Neighbours({}),)
        packs = tuple(
            replace(
                pack,
                symbols={**pack.symbols, symbol: name},
                others=tuple({**other, symbol: name} for other in pack.others),
            )
            for name in names
        )
        grid = self.grid if self.packs or self.lane is None else (self.lane,)
        return replace(self, count=self.count * len(names), grid=grid, packs=packs, walked=symbol)

    @property
    def width(self) -> int:
        """Copies of a pack."""
        return self.count // max(1, len(self.packs))

    @property
    def starts(self) -> range:
        """The first copies of the packs."""
        return range(0, self.count, self.width)

    @property
    def crosses(self) -> bool:
        """Whether points of a pack may lie in different rows."""
        return any(pack.others for pack in self.packs)

    def pack(self, copy: int) -> Neighbours:
        """The pack of a copy."""
        return self.packs[copy // self.width] if self.packs else Neighbours({})

    def level(self, value: Affine) -> Level:
        """Who shares an index expression."""
        symbols = index.symbols_of(value)
        if self.count == 1 or not symbols:
            return 0
        if self.lane in symbols or (self.crosses and not symbols.isdisjoint(self.grid)):
            return 2
        apart = self.grid if self.walked is None else (self.walked,)
        return 1 if len(self.packs) > 1 and not symbols.isdisjoint(apart) else 0

    def level_of_test(self, test: Test) -> Level:
        """Who shares a test: a pack does if no limit lies inside one."""
        levels = [self.level(condition.value) for condition in test.conditions]
        found: Level = 2 if 2 in levels else 1 if 1 in levels else 0
        if found < 2 or self.crosses:
            return found
        alike = all(self._is_alike(c.value, (c.lo, c.hi)) and c.multiple == 1 for c in test.conditions)
        return (1 if len(self.packs) > 1 else 0) if alike and self.packs else 2

    def _is_alike(self, value: Affine, limits: tuple[int, int]) -> bool:
        """Whether a value is on the same side of limits for all of a pack, which starts at a multiple of its width."""
        if self.lane is None or self.lane not in index.symbols_of(value):
            return True
        if not is_unit_stride(value, self.lane):
            return False
        start = index.of(self.lane)
        return all(alignment(value - limit, start, self.width) == self.width for limit in limits)

    def at(self, copy: int) -> tuple[Mapping[Symbol, str], int]:
        """Names of a copy's place, and how far behind it stands along the lane."""
        number, pack = copy % self.width, self.pack(copy)
        if number and pack.others:
            return pack.others[number - 1], 0
        return pack.symbols, number if self.packs else copy


@dataclass(frozen=True, slots=True)
class Form:
    """How a pack is read or written."""

    kind: Literal["items", "pack", "shifted", "narrow"]
    """One by one; at once; out of the two packs that hold it; or by packs of `step` elements."""
    row: bool = False
    """Whether that takes points of one row."""
    step: int = 1


ITEMS = Form("items")


def form_of(offset: Affine, place: Place, copies: Copies, *, stores: bool) -> Form:
    """How an access is made: as wide as where it starts allows."""
    width, lane = copies.width, copies.lane
    if width == 1 or lane is None or place.kind != "memory":
        return ITEMS
    if not is_unit_stride(offset, lane):
        return ITEMS
    row = copies.crosses and not is_flat(offset, copies.grid)
    start = flat_point(copies.grid) if copies.packs else index.of(lane)
    step = alignment(offset, start, width)
    widest = VECTOR_BYTES // place.dtype.itemsize
    if width > widest:  # results of another type than what was read
        return Form("narrow", row, min(step, widest)) if min(step, widest) > 1 else ITEMS
    if step == width:
        return Form("pack", row, width)
    if not stores and place.size and place.dtype.itemsize * width >= 4:
        return Form("shifted", row, width)
    return Form("narrow", row, step) if step > 1 else ITEMS
