"""Random orders: sorts by random bits."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from autofuse.frontend.axes import one_axis
from autofuse.frontend.creation import iota
from autofuse.frontend.dispatch import call
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.random.calls import drawn
from autofuse.frontend.random.keys import bits_of, child, drawn_from
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value

_I32 = np.dtype(np.int32)


@drawn
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> TracerArray:
    """The slices of an array along `axis` in a random order; of an int, the numbers below it, `i32`.

    `independent`: each vector along `axis` in an order of its own. Raises TraceError for bad arguments.
    """
    array = as_tracer(x)
    if array.ndim == 0:
        if array.dtype.kind not in "iu":
            raise trace_error(f"argument x must be an int or an array, got {array.cell.type}", "x=10")
        one_axis(axis, 1)
        count = max(operator.index(x), 0)
        return fresh(_shuffled(drawn_from("permutation", key), iota((count,), 0, _I32), 0))
    along, source = one_axis(axis, array.ndim), drawn_from("permutation", key)
    if independent or array.ndim == 1:
        return fresh(_shuffled(source, array.value, along))
    order = fresh(_shuffled(source, iota((array.shape[along],), 0, _I32), 0))
    return call(np.take, array, order, axis=along)


def _shuffled(key: Value, x: Value, axis: int) -> Value:
    """Stable sorts by new bits, so many that elements keep their order among themselves in all of them but seldom."""
    rounds = math.ceil(3 * math.log(max(1, x.type.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, sub = child(key, 0), child(key, 1)
        bits = bits_of(sub, 32, x.type.shape).value
        x = current().builder.emit_many("sort", (bits, x), dimension=axis, descending=False, stable=True)[1]
    return x
