"""Walks through memory that leave the page at every step: how many steps, over how many pages before one comes again.

A step to another page needs its address translated, and no prefetcher runs ahead of it. Both are cheap while the pages
of a walk are remembered, and their lines lie in a near cache; so what a step costs is a matter of how many pages lie
between two visits to one.
"""

from __future__ import annotations

from autofuse.cost_models.features import FarWalk
from autofuse.cost_models.loopnest import LoopNest
from autofuse.cost_models.regions import extent_of
from autofuse.cost_models.traffic import Access

PAGE_BYTES = 4096
"""The least size of a page; larger ones are remembered by fewer entries, which a calibration sees."""


def far_walk(access: Access, nest: LoopNest, kind: str, stride_bytes: int, times: float) -> FarWalk | None:
    """The far steps of an access that runs `times` times; None if it has none.

    `kind`: how lanes walk (see `AccessCounts`). `stride_bytes`: between neighbouring lanes.
    """
    itemsize = access.buffer.type.dtype.itemsize
    steps, at = times, nest.depth
    if kind == "gather":
        steps = times * nest.lanes
        if access.buffer.type.nbytes < 2 * PAGE_BYTES:
            return None
    elif kind == "strided" and stride_bytes >= PAGE_BYTES:
        steps = times * nest.lanes
    elif kind != "contiguous" or stride_bytes < PAGE_BYTES:  # else the rows of a square that is transposed
        walk = access.walk
        if walk.innermost is None or walk.longest * itemsize < PAGE_BYTES:
            return None
        steps, at = float(nest.rounds_to[walk.depth]), walk.innermost
    pages = min(_pages(access, at, itemsize), steps)
    if kind == "gather":  # several lines of a page, in any order
        pages = min(pages, -(-access.buffer.type.nbytes // PAGE_BYTES))
    return FarWalk(steps, pages, access.write)


def _pages(access: Access, at: int, itemsize: int) -> float:
    """Pages between two visits to one, of a walk along loop `at`.

    A loop around it that moves within the pages meets them all again; one that does not multiplies them.
    """
    pages = extent_of(access.walk.steps[at], itemsize).runs
    for outer in range(at - 1, -1, -1):
        around = extent_of(access.walk.steps[outer], itemsize).runs
        if around < 2 * pages:
            break
        pages = around
    return float(pages)
