"""Stores that bypass the caches: for outputs too large to be found in a cache by whoever reads them next.

A plain store first fetches the line it writes. A non-temporal one does not, but needs an aligned vector: the loop takes
a masked step to the next boundary first. Only element-wise stages do so, whose bits do not depend on where vectors
begin.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.lower.statements import ArgReduce, Reduce, Scan, Store
from autofuse.lower.tile import Space, Stage
from autofuse.targets.cpu.codegen.accesses import Place, Places
from autofuse.targets.cpu.codegen.offsets import pointer, split_lanes
from autofuse.targets.cpu.codegen.values import Group, counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText

LINE_BYTES = 64


def streamed_store(stage: Stage, places: Places, group: Group) -> Store | None:
    """The first store of a stage that can bypass the caches, if the stage reduces nothing; `group` has its lanes."""
    if group.masked or any(isinstance(s, Reduce | ArgReduce | Scan) for s in stage.body):
        return None
    for s in stage.body:
        if isinstance(s, Store) and s.mask is None and places[s.buffer].buffer.space is Space.OUTPUT:
            parts = split_lanes(s.offset, group)
            if parts.stride == 1 and not parts.varying:
                return s
    return None


def write_streamed(
    fn: FunctionText,
    run: tuple[str, str],
    steps: tuple[int, int],
    head: str,
    whole: Callable[[str], None],
    part: Callable[[str, str], None],
) -> None:
    """Loops over `run` = (start, stop), with `steps` = (lanes, lanes of all vectors in flight).

    `part(position, limit)` writes one vector masked at `limit`: for the first `head` positions and for the last ones.
    `whole(position)` writes full vectors between them.
    """
    start, stop = run
    lanes, step = steps
    begin = fn.emit(f"add nsw i64 {start}, {head}")
    begin = fn.intrinsic("llvm.smin.i64", "i64", [("i64", begin), ("i64", stop)])
    with counted_loop(fn, start, begin, lanes, nonempty=False, as_written=True) as position:
        part(position, begin)
    length = fn.emit(f"sub nsw i64 {stop}, {begin}")
    length = fn.intrinsic("llvm.smax.i64", "i64", [("i64", length), ("i64", "0")])
    middle = fn.emit(
        f"sub nsw i64 {fn.emit(f'add nsw i64 {begin}, {length}')}, {fn.emit(f'urem i64 {length}, {step}')}"
    )
    with counted_loop(fn, begin, middle, step, nonempty=False, as_written=True) as position:
        whole(position)
    with counted_loop(fn, middle, stop, lanes, nonempty=False, as_written=True) as position:
        part(position, stop)


def head_length(fn: FunctionText, place: Place, store: Store, group: Group) -> str:
    """Elements from lane 0 of `group` up to the next address that a whole vector may be streamed to."""
    size = place.dtype.itemsize
    vector = group.lanes.count * size
    address = fn.emit(f"ptrtoint ptr {pointer(fn, place.base, place.element, store.offset, group)} to i64")
    missing = fn.emit(f"and i64 {fn.emit(f'sub i64 0, {address}')}, {vector - 1}")
    return fn.emit(f"lshr i64 {missing}, {size.bit_length() - 1}")
