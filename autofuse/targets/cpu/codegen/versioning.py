"""Code that runs at a grid point, once for each way in which conditions on grid positions can fall out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.index import Symbol, of
from autofuse.lower.tile import Stage
from autofuse.targets.cpu.codegen.indexsplitting import Segments, all_segments, copies_allowed, largest
from autofuse.targets.cpu.codegen.offsets import scalar_index
from autofuse.targets.cpu.codegen.values import Group
from autofuse.targets.cpu.llvmtext import FunctionText

Inside = Callable[[Group], None]


def write_variants(
    fn: FunctionText,
    symbols: Sequence[Symbol],
    stages: Sequence[Stage],
    group: Group,
    inside: Inside,
    copies_inside: int = 1,
    tile: Symbol | None = None,
) -> None:
    """`inside`, chosen by branches on where the grid point lies; `copies_inside` times it copies the stages itself.

    `tile`: the symbol that counts tiles of rows, if one does.
    Where there are too many ways: once for the most frequent one, and once for all others, with masks.
    """
    planned = all_segments(stages, symbols, tile)
    copies = math.prod(len(parts) for parts in planned.values()) * copies_inside
    if copies <= copies_allowed(stages):
        _each(fn, planned, group, inside)
    elif planned:
        _interior(fn, {symbol: largest(parts) for symbol, parts in planned.items()}, group, inside)
    else:
        inside(group)


def _each(fn: FunctionText, planned: Mapping[Symbol, Segments], group: Group, inside: Inside) -> None:
    symbol = next((s for s in planned if s not in group.ranges), None)
    if symbol is None:
        inside(group)
        return
    done = fn.label("decided")
    for lo, hi in planned[symbol]:
        otherwise = ""
        if hi < symbol.extent:
            here, otherwise = fn.label("within"), fn.label("beyond")
            position = scalar_index(fn, of(symbol), group)
            fn.branch_if(fn.emit(f"icmp slt i64 {position}, {hi}"), here, otherwise)
            fn.block(here)
        _each(fn, planned, group.nested({}, ranges={symbol: (lo, hi - 1)}), inside)
        fn.branch(done)
        fn.block(otherwise or done)


def _interior(fn: FunctionText, parts: Mapping[Symbol, tuple[int, int]], group: Group, inside: Inside) -> None:
    rare, done = fn.label("edge"), fn.label("decided")
    for symbol, (lo, hi) in parts.items():
        here = fn.label("interior")
        position = fn.emit(f"sub nsw i64 {scalar_index(fn, of(symbol), group)}, {lo}")
        fn.branch_if(fn.emit(f"icmp ult i64 {position}, {hi - lo}"), here, rare)
        fn.block(here)
    inside(group.nested({}, ranges={symbol: (lo, hi - 1) for symbol, (lo, hi) in parts.items()}))
    fn.branch(done)
    fn.block(rare)
    inside(group.nested({}, masked=True))
    fn.branch(done)
    fn.block(done)
