"""Sorting complex numbers: by the real part, then by the imaginary one, in NumPy's order.

That is: numbers, then those whose imaginary part is NaN, then those whose real part is, then those with both; among
those with one NaN, by the other part. Two parts of 32 bits are one key of 64. Larger ones are sorted part by part, the
last that decides first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.ir.graph import Value

_LAST = 1 << 32
"""Behind all upper halves of keys, the last of which no infinity reaches."""


def sorted_complex(keys: Value, others: Sequence[Value], dimension: int, *, stable: bool) -> list[Value]:
    """Complex keys in order along a dimension, and what goes along with them."""
    re, im = (Term(keys).op(part) for part in ("real", "imag"))
    if re.dtype.itemsize == 4:
        joined = _joined_key(re, im)
        _, *held = _sorted([joined, re, im, *map(Term, others)], dimension, stable)
    else:
        im, re, *along = _sorted([im, re, *map(Term, others)], dimension, stable=True)
        re, im, *along = _sorted([re, im, *along], dimension, stable=True)
        _, *held = _sorted([_rank_of_nan(re, im).to(np.int8), re, im, *along], dimension, stable=True)
    re, im, *along = held
    return [re.op("complex", im).value, *(term.value for term in along)]


def _sorted(terms: Sequence[Term], dimension: int, stable: bool) -> list[Term]:
    values = [term.value for term in terms]
    found = current().builder.emit_many("sort", values, dimension=dimension, descending=False, stable=stable)
    return list(map(Term, found))


def _joined_key(re: Term, im: Term) -> Term:
    """An integer of 64 bits in the order of two floats of 32."""
    lower = im.is_nan().select(_ordered(re), _ordered(im))
    rank = _rank_of_nan(re, im)
    upper = rank.equals(0).select(_ordered(re), rank + (_LAST - 4))
    upper, lower = upper - (1 << 31), rank.equals(3).select(0, lower)
    return upper.op("shift_left", 32) | lower


def _ordered(part: Term) -> Term:
    """Of 32 bits, integers from 0 on in the order of floats; both zeros are one."""
    bits = part.equals(0).select(0, part).bits()
    return (bits >= 1 << 31).select(~bits, bits | (1 << 31)).to(np.int64)


def _rank_of_nan(re: Term, im: Term) -> Term:
    """0 for numbers, 1 and 2 where the imaginary or the real part is NaN, 3 for both."""
    return im.is_nan().to(np.int64) + re.is_nan().to(np.int64) * 2
