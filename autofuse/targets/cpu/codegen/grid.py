"""The loop over a phase's blocks: from a range of flattened block numbers to positions of grid symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autofuse.ir.index import Symbol
from autofuse.targets.cpu.codegen.values import Index
from autofuse.targets.cpu.llvmtext import FunctionText

At = dict[Symbol, Index]


def write_points(fn: FunctionText, symbols: Sequence[Symbol], inside: Callable[[At], None]) -> None:
    """Run `inside` for the grid points numbered `%begin` up to `%end`, the last of `symbols` fastest."""
    total = math.prod(symbol.extent for symbol in symbols)
    if total <= 1:
        inside({symbol: Index("", 0) for symbol in symbols})
        return
    body, latch, done = fn.label("point"), fn.label("next"), fn.label("done")
    odometer = _Odometer(fn, symbols, "%begin")
    before = fn.current
    fn.branch_if(fn.emit("icmp slt i64 %begin, %end"), body, done)
    fn.block(body)
    number, following = fn.fresh("point"), fn.fresh("next")
    fn.phi("i64", [("%begin", before), (following, latch)], name=number)
    at = odometer.positions(before, latch, number)
    inside(at)
    fn.branch(latch)
    fn.block(latch)
    fn.emit(f"add nuw nsw i64 {number}, 1", name=following)
    odometer.advance()
    fn.branch_if(fn.emit(f"icmp slt i64 {following}, %end"), body, done)
    fn.block(done)


def write_runs(
    fn: FunctionText,
    outer: Sequence[Symbol],
    extent: int,
    tile: int,
    inside: Callable[[At, str, str], None],
) -> None:
    """Run `inside(outer positions, start, stop)` for the ranges of the last grid symbol that the blocks cover.

    A block is one tile of the last symbol at one point of `outer`; neighbouring tiles of a point come as one range.
    """
    tiles = -(-extent // tile)
    rows = math.prod(symbol.extent for symbol in outer)
    if rows <= 1:
        start, stop = _range(fn, "%begin", "%end", extent, tile, tiles)
        inside({symbol: Index("", 0) for symbol in outer}, start, stop)
        return
    if tiles == 1:
        write_points(fn, outer, lambda at: inside(at, "0", str(extent)))
        return
    first_row = fn.emit(f"udiv i64 %begin, {tiles}")
    first_tile = fn.emit(f"urem i64 %begin, {tiles}")
    body, latch, done = fn.label("row"), fn.label("next"), fn.label("done")
    odometer = _Odometer(fn, outer, first_row)
    before = fn.current
    fn.branch_if(fn.emit("icmp slt i64 %begin, %end"), body, done)
    fn.block(body)
    number, following, row, next_row = fn.fresh("block"), fn.fresh("next"), fn.fresh("row"), fn.fresh("next")
    fn.phi("i64", [("%begin", before), (following, latch)], name=number)
    fn.phi("i64", [(first_row, before), (next_row, latch)], name=row)
    tile_number = fn.phi("i64", [(first_tile, before), ("0", latch)])
    at = odometer.positions(before, latch, row)
    left = fn.emit(f"sub nuw nsw i64 %end, {number}")
    last = fn.emit(f"add nuw nsw i64 {tile_number}, {left}")
    last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", last), ("i64", str(tiles))])
    start, stop = _range(fn, tile_number, last, extent, tile, tiles)
    inside(at, start, stop)
    fn.branch(latch)
    fn.block(latch)
    done_tiles = fn.emit(f"sub nuw nsw i64 {last}, {tile_number}")
    fn.emit(f"add nuw nsw i64 {number}, {done_tiles}", name=following)
    fn.emit(f"add nuw nsw i64 {row}, 1", name=next_row)
    odometer.advance()
    fn.branch_if(fn.emit(f"icmp slt i64 {following}, %end"), body, done)
    fn.block(done)


def _range(fn: FunctionText, first: str, last: str, extent: int, tile: int, tiles: int) -> tuple[str, str]:
    """Positions covered by the tiles `first` up to `last`."""
    if tiles == 1:
        return "0", str(extent)
    start = fn.emit(f"mul nuw nsw i64 {first}, {tile}")
    stop = fn.emit(f"mul nuw nsw i64 {last}, {tile}")
    if extent % tile:
        stop = fn.intrinsic("llvm.smin.i64", "i64", [("i64", stop), ("i64", str(extent))])
    return start, stop


class _Odometer:
    """Grid positions that advance without divisions."""

    def __init__(self, fn: FunctionText, symbols: Sequence[Symbol], number: str) -> None:
        """Work out the first positions from the flattened `number`."""
        self._fn = fn
        self._symbols = symbols
        self._moving = [symbol for symbol in symbols if symbol.extent > 1]
        self._start: dict[Symbol, str] = {}
        self._current: dict[Symbol, str] = {}
        self._next: dict[Symbol, str] = {}
        if len(self._moving) < 2:
            return
        rest = number
        for symbol in reversed(self._moving[1:]):
            self._start[symbol] = fn.emit(f"urem i64 {rest}, {symbol.extent}")
            rest = fn.emit(f"udiv i64 {rest}, {symbol.extent}")
        self._start[self._moving[0]] = rest

    def positions(self, before: str, latch: str, number: str) -> At:
        """The positions in the loop over points (their phis); `number` is the flattened one."""
        at = {symbol: Index("", 0) for symbol in self._symbols}
        if len(self._moving) == 1:
            at[self._moving[0]] = Index(number)
            return at
        for symbol in self._moving:
            self._current[symbol], self._next[symbol] = self._fn.fresh("at"), self._fn.fresh("next")
            incoming = [(self._start[symbol], before), (self._next[symbol], latch)]
            self._fn.phi("i64", incoming, name=self._current[symbol])
            at[symbol] = Index(self._current[symbol])
        return at

    def advance(self) -> None:
        """Move to the next point: count up the last symbol, carry to the ones before."""
        fn, carry = self._fn, "1"
        for symbol in reversed(self._moving if len(self._moving) > 1 else []):
            if symbol == self._moving[0]:
                fn.emit(f"add nuw nsw i64 {self._current[symbol]}, {carry}", name=self._next[symbol])
                return
            up = fn.emit(f"add nuw nsw i64 {self._current[symbol]}, {carry}")
            wraps = fn.emit(f"icmp eq i64 {up}, {symbol.extent}")
            fn.emit(f"select i1 {wraps}, i64 0, i64 {up}", name=self._next[symbol])
            carry = fn.emit(f"zext i1 {wraps} to i64")
