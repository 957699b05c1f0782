"""Uniform numbers, and truth values by comparing with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import static_number
from autofuse.frontend.random.calls import (
    as_number,
    checked_choice,
    checked_dtype,
    checked_shape,
    drawn,
    row,
    spread,
)
from autofuse.frontend.random.keys import bits_of, drawn_from
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value

MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
"""Stored bits of the significand, by dtype."""


@drawn
def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> TracerArray:
    """Numbers from `minval` on to below `maxval`, of a float dtype, `f32` unless told otherwise.

    `minval`, `maxval`: broadcast to `shape`. Raises TraceError for bad arguments.
    """
    wanted, extents = checked_dtype(dtype, np.float32, ("float",)), checked_shape(shape)
    fractions = fractions_of(drawn_from("uniform", key), wanted, extents)
    if static_number(minval) == 0 and static_number(maxval) == 1:
        return fresh(fractions.value)
    low, high = (as_number(end, wanted).astype(wanted) for end in (minval, maxval))
    return fresh(between(fractions, spread("minval", low.value, extents), spread("maxval", high.value, extents)).value)


@drawn
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> TracerArray:
    """Whether a number from 0 to 1 is below `p`: true with this probability. `shape`: by default that of `p`.

    The numbers have the dtype of `p`, a Python number counting as `f32`. `mode="high"` draws twice as many bits, for
    small probabilities. Raises TraceError for bad arguments.
    """
    checked_choice("mode", mode, ("high", "low"))
    probability = as_number(p, np.float32 if isinstance(p, float) else None)
    if dtypes.from_numpy(probability.dtype).kind != "float":
        raise trace_error(f"argument p must have a float dtype, got {probability.dtype}", "p=0.5, or p.astype(...)")
    extents = probability.shape if shape is None else checked_shape(shape)
    limit, dtype = spread("p", probability.value, extents), probability.dtype
    source = drawn_from("bernoulli", key)
    if mode == "low":
        return fresh((fractions_of(source, dtype, extents) < limit).value)
    coarse, fine = two_of(source, dtype, extents)
    return fresh((fine * 2.0 ** -mantissa_of(dtype) < limit - coarse).value)


def mantissa_of(dtype: np.dtype[Any]) -> int:
    """Stored bits of the significand."""
    return MANTISSA[str(dtypes.from_numpy(dtype))]


def fractions_of(key: Value, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Term:
    """Numbers from 0 to below 1: random bits as the significand of numbers from 1 to below 2, less 1."""
    kept, bits = mantissa_of(dtype), 8 * dtype.itemsize
    width = 8 if kept < 8 else bits
    drawn_bits = bits_of(key, width, shape).to(f"u{dtype.itemsize}")
    one = int(np.ones((), dtype).view(f"u{dtype.itemsize}"))
    return (drawn_bits.op("shift_right_logical", width - kept) | one).from_bits(dtype) - 1


def two_of(key: Value, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Term, Term]:
    """Two numbers from 0 to below 1 for each element."""
    both = fractions_of(key, dtype, (2, *shape)).value
    return Term(row(both, 0)), Term(row(both, 1))


def between(fractions: Term, low: Term, high: Term) -> Term:
    """Fractions of the way from `low` to `high`."""
    return low.op("maximum", fractions * (high - low) + low)
