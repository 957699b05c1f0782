"""Where vectors of a loop begin, so that none that is stored lies on two cache lines.

A store that crosses lines takes twice as long, and loops over arrays with edges (a stencil's) begin behind the edge. So
a part of a vector is done first where it is known how far the next place is that vectors should begin at.
"""

from __future__ import annotations

from autofuse.ir.index import Symbol
from autofuse.lower.statements import ArgReduce, Next, Reduce, Scan, Store
from autofuse.lower.tile import Stage

_LONG = 8
"""Vectors of a loop from which on a part of one more is worth it."""


def first_aligned(stage: Stage, vectorised: Symbol, count: int, lo: int, hi: int) -> int:
    """From where on vectors of `count` between `lo` and `hi` are stored at whole vectors of a buffer; else `lo`.

    It is known where all other loops move by whole vectors. What is reduced keeps its order.
    """
    stores = [s for s in stage.body if isinstance(s, Store)]
    if len(stores) != 1 or hi - lo < _LONG * count:
        return lo
    if any(isinstance(s, Reduce | Scan | ArgReduce | Next) for s in stage.body):
        return lo
    offset = stores[0].offset
    if offset.coefficient(vectorised) != 1:
        return lo
    others = [(variable, step) for variable, step in offset.terms if variable != vectorised]
    if any(not isinstance(variable, Symbol) or step % count for variable, step in others):
        return lo
    return lo + (-offset.constant - lo) % count
