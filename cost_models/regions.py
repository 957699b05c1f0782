"""How much memory an index expression reaches: distinct elements, cache lines, contiguous runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from autofuse.lazydataclass import dataclass

LINE_BYTES = 64
_SETS, _WAYS = 2048, 12
"""Of a common second-level cache."""

Steps = tuple[tuple[int, int], ...]
"""A region as (step in elements, number of positions) pairs: the sums of one position from each. Steps ascend, are
positive and differ; counts exceed 1. The rows of a matrix with 100 columns of 128: `((1, 100), (128, rows))`."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a region."""

    elements: int
    """Distinct elements."""
    run_elements: int
    """Elements in one contiguous run."""
    line_bytes: int
    """Bytes of the cache lines that hold the elements."""
    runs: int = 1
    """Runs of neighbouring lines that hold them."""
    crowding: float = 1.0
    """How many times its size a cache must have to hold the lines: steps by powers of two use few of its sets."""


def steps_of(pairs: Iterable[tuple[int, int]]) -> Steps:
    """Canonical form of (step, count) pairs. Equal steps slide over one another: `i + k` has `n_i + n_k - 1` values."""
    total: dict[int, int] = {}
    for step, count in pairs:
        if count > 1 and step:
            size = abs(step)
            total[size] = total[size] + count - 1 if size in total else count
    if len(total) < 2:
        return tuple(total.items())
    return tuple(sorted(total.items()))


@lru_cache(maxsize=4096)  # of a few small numbers each; the kernels of a program walk in few ways
def extent_of(steps: Steps, itemsize: int) -> Extent:
    """Measure a region.

    A step no longer than what is covered so far extends it; a longer one repeats it. Steps shorter than a cache line
    touch every line on the way.
    """
    run = elements = reach = repeats = 1
    crowding = 1.0
    for step, count in steps:
        if repeats == 1 and step <= run:
            run = elements = reach = (count - 1) * step + run
        elif repeats == 1 and (step <= reach or step * itemsize < LINE_BYTES):
            reach += (count - 1) * step
            elements *= count
        else:
            crowding = max(crowding, _crowding(step * itemsize, count, reach * itemsize))
            repeats *= count
            elements *= count
    lines = repeats * (-(-reach * itemsize // LINE_BYTES) * LINE_BYTES)
    return Extent(elements, run, lines, repeats, crowding)


def _crowding(step_bytes: int, count: int, run_bytes: int) -> float:
    """How much fuller the sets are that runs `step_bytes` apart meet than they would be with runs anywhere.

    A set takes the lines whose numbers agree modulo the number of sets, and has room for some (ways) of them.
    """
    if step_bytes % LINE_BYTES or count <= _WAYS:
        return 1.0
    shared = math.gcd(step_bytes // LINE_BYTES, _SETS)
    return max(1.0, min(shared / -(-run_bytes // LINE_BYTES), count / _WAYS))


def union_of(steps: Steps, offsets: Sequence[int], itemsize: int) -> Extent:
    """Measure the union of equal regions that start at `offsets`: the accesses of a stencil, or parts side by side.

    Moves by whole steps of the region overlap almost everywhere; what is left over after them tells neighbours, which
    extend the runs, from parts that lie apart, which add up.
    """
    base = extent_of(steps, itemsize)
    if len(offsets) < 2:
        return base
    first = min(offsets)
    near = max(base.run_elements, LINE_BYTES // itemsize)
    parts, wider, last = 1, 0, 0
    for rest in sorted({_beyond(offset - first, steps, base.run_elements) for offset in offsets}):
        if rest - last >= near:
            parts, last = parts + 1, rest
        else:
            wider = max(wider, rest - last)
    runs = max(base.elements // base.run_elements, 1)
    elements = min(base.elements * len(offsets), base.elements * parts + wider * runs)
    return Extent(elements, base.run_elements + wider, base.line_bytes * parts, base.runs * parts, base.crowding)


def _beyond(offset: int, steps: Steps, run: int) -> int:
    """What remains of an offset after moves that land on the region itself."""
    for step, count in reversed(steps):
        if step >= run:
            moves = min(round(offset / step), count - 1)
            offset = abs(offset - moves * step)
    return offset
