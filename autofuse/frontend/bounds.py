"""Indices and conditions known only at run time: what is recorded of them when a call is to raise where NumPy does.

Each index array leaves two numbers: the least of its entries, and the least of their complements (`~i` is `-1 - i`). It
is in bounds if the first is at least `low` and the second at least `-high`. The numbers of all indices become one more
output of the graph; bodies of loops and branches hand theirs out, 0 standing for those that saw no index. A condition
is an index that is 0 where it holds, and -1 where not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.frontend.caughterrors import require_uncaught
from autofuse.frontend.location import source_of
from autofuse.frontend.promotion import convert, reshape
from autofuse.frontend.tracecontext import Checks, current
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Value

_I64 = np.dtype(np.int64)


def check_index(index: Value, what: str, low: int, high: int, raises: type[Exception] = IndexError) -> None:
    """Record that the entries of `index` must be at least `low` and below `high`, where that is asked for.

    `what`: what it is an index for, `axis 0 with size 5`. `raises`: what NumPy raises otherwise; to catch that is a
    TraceError.
    """
    require_uncaught(f"an index for {what}", "ask before whether it is in bounds, or clip it", raises)
    tracing = current()
    if tracing.check_bounds and index.type.size:
        _record(index, what, low, high)


def require_index_dtype(dtype: np.dtype[Any]) -> None:
    """Raise TypeError, as `put` and `choose` of NumPy do, for a dtype that is not safely an index."""
    if not np.can_cast(dtype, np.intp, "safe"):
        raise TypeError(f"Cannot cast array data from {dtype!r} to {np.dtype(np.intp)!r} according to the rule 'safe'")


def check_holds(condition: Callable[[], Value], what: str, raises: type[Exception] = ValueError) -> None:
    """Record that all elements of a bool array must hold, where checks are asked for; it is made only there.

    `what`: what is wrong where they do not, as NumPy says it. `raises`: what NumPy or Python raises then; to catch that
    is a TraceError.
    """
    require_uncaught(f'"{what}"', "ask before whether it holds", raises)
    tracing = current()
    if tracing.check_bounds:
        holds = convert(condition(), _I64)
        _record(tracing.emit("subtract", (holds, tracing.splat(1, _I64, holds.type.shape))), what, 0, 0)


def _record(index: Value, what: str, low: int, high: int) -> None:
    tracing = current()
    entries = reshape(convert(index, _I64), (index.type.size,))
    sides = (entries, tracing.emit("not", (entries,)))
    least = [tracing.emit("reduce", (side,), dimensions=(0,), combiner="minimum") for side in sides]
    numbers = tracing.emit("concatenate", [reshape(value, (1,)) for value in least], dimension=0)
    tracing.checks.append(Checks((BoundsCheck(source_of(tracing.builder.location), what, low, high),), numbers))


def joined(numbers: list[Value]) -> Value:
    """The numbers of several checks, one behind the other."""
    return numbers[0] if len(numbers) == 1 else current().emit("concatenate", numbers, dimension=0)


def none_yet(count: int) -> Value:
    """The numbers of `count` checks before any index was seen."""
    return current().splat(0, _I64, (2 * count,))
