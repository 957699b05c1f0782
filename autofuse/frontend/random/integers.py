"""Whole numbers of a range."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.random.calls import checked_dtype, checked_shape, drawn, spread
from autofuse.frontend.random.keys import bits_of, child, drawn_from
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value

_I32 = np.dtype(np.int32)


@drawn
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> TracerArray:
    """Whole numbers from `minval` on to below `maxval`, `i32` unless told otherwise; `minval` where none lie between.

    `minval`, `maxval`: broadcast to `shape`; what the dtype cannot hold counts as its end. The number is taken from
    twice as many bits as the dtype has, of 32 bits where it has fewer; it is uniform where `maxval - minval` is a power
    of 2, and otherwise up to a part in 2**32 (of 64 bits, 2**64) for each of them. Raises TraceError for bad arguments.
    """
    wanted, extents = checked_dtype(dtype, _I32, ("int", "uint")), checked_shape(shape)
    source = drawn_from("randint", key)
    low, high = _whole(minval), _whole(maxval)
    drawn_as = wanted
    if wanted.itemsize < 4:  # fewer bits would not be uniform
        drawn_as = _I32
        least, most = int(np.iinfo(wanted).min), int(np.iinfo(wanted).max)
        low, high = _clipped(low.to(_I32), least, most), _clipped(high.to(_I32), least, most + 1)
    least, most = int(np.iinfo(drawn_as).min), int(np.iinfo(drawn_as).max)
    beyond = high > min(most, int(np.iinfo(high.dtype).max))
    low, high = (_clipped(end, least, most).to(drawn_as) for end in (low, high))
    low, high, beyond = (
        spread(name, end.value, extents) for name, end in (("minval", low), ("maxval", high), ("maxval", beyond))
    )
    return fresh(_between(source, low, high, beyond).to(wanted).value)


def _whole(value: Any) -> Term:
    """An end of the range; a Python number that i32 cannot hold is of 64 bits, what is no integer is truncated."""
    number = as_tracer(value)
    if isinstance(value, int) and -(1 << 31) <= value < 1 << 31:
        number = as_tracer(_I32.type(value))
    return Term((number if number.dtype.kind in "iu" else number.astype(_I32)).value)


def _clipped(value: Term, least: int, greatest: int) -> Term:
    """A number within limits, as far as its dtype reaches beyond them."""
    own = np.iinfo(value.dtype)
    return value.op("maximum", max(least, int(own.min))).op("minimum", min(greatest, int(own.max)))


def _between(key: Value, low: Term, high: Term, beyond: Term) -> Term:
    """(high word * 2**bits + low word) % span above `low`, in arithmetic of as many bits as a word has.

    `beyond`: where the end was greater than the dtype's last number, which the span then includes.
    """
    width = 8 * low.dtype.itemsize
    unsigned = np.dtype(f"u{low.dtype.itemsize}")
    span = (high - low).to(unsigned)
    span = (high <= low).select(1, span)
    span = (beyond & (high > low)).select(span + 1, span)  # of all numbers, the span wraps to 0, which % leaves alone
    factor = Term(current().splat(1 << (width // 2), unsigned, span.shape)).op("remainder", span)
    factor = (factor * factor).op("remainder", span)
    upper, lower = (bits_of(child(key, number), width, span.shape).op("remainder", span) for number in (0, 1))
    return low + (upper * factor + lower).op("remainder", span).to(low.dtype)
