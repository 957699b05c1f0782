"""Keys, and the bits that are drawn from them by threefry2x32 (`autofuse.ir.ops.randombits`).

Element i of the requested shape, counted in row-major order, has the counter (i >> 32, i mod 2**32).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontend import keyuse
from autofuse.frontend.cells import of_array
from autofuse.frontend.creation import iota
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, broadcast, reshape
from autofuse.frontend.random.calls import checked_choice, checked_dtype, checked_shape, drawn, row, stacked
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value
from autofuse.ir.ops.randombits import FIRST, MIXED, SECOND

_U32 = np.dtype(np.uint32)
_WORD = 1 << 32


@drawn
def key(seed: Any, *, impl: str | None = None) -> TracerArray:
    """A key of a seed, a whole number: `u32[2]`, (0, seed mod 2**32). Raises TraceError for another seed."""
    checked_choice("impl", impl, (None, "threefry2x32"))
    if isinstance(seed, int):
        return TracerArray(of_array(np.array([0, seed % _WORD], _U32), "it is a key"))
    number = as_tracer(seed)
    if number.shape != () or number.dtype.kind not in "iu":
        raise trace_error(
            f"argument seed must be a whole number, got {number.cell.type}", "an int, or seed.astype(int)"
        )
    return fresh(stacked([current().scalar(0, _U32), Term(number.value).to(_U32).value]))


@drawn
def split(key: Any, num: Any = 2) -> TracerArray:
    """`num` new keys of a key: `u32[num, 2]`, or `u32[*num, 2]` for a shape. `key, sub = af.random.split(key)`.

    Raises TraceError for a key that is none.
    """
    return fresh(children(drawn_from("split", key), _count(num)))


@drawn
def fold_in(key: Any, data: Any) -> TracerArray:
    """A new key, `u32[2]`, of a key and a whole number: of the counter of a loop, say. Raises TraceError for others."""
    number = as_tracer(data)
    if number.shape != () or number.dtype.kind not in "iu":
        raise trace_error(
            f"argument data must be a whole number, got {number.cell.type}", "an int, or data.astype(int)"
        )
    counter = Term(current().scalar(0, _U32)), Term(number.value).to(_U32)
    given = checked_key(key).value
    return fresh(stacked([words(given, counter, word).value for word in (FIRST, SECOND)]))


@drawn
def bits(key: Any, shape: Any = (), dtype: Any = None) -> TracerArray:
    """Random bits as unsigned integers, `u32` unless told otherwise. Raises TraceError for bad arguments."""
    wanted = checked_dtype(dtype, _U32, ("uint",))
    return fresh(bits_of(drawn_from("bits", key), 8 * wanted.itemsize, checked_shape(shape)).value)


def checked_key(key: Any) -> TracerArray:
    """An argument that must be a key. Raises TraceError for what is none."""
    found = as_tracer(key)
    if found.shape != (2,) or found.dtype != _U32:
        several = found.shape[-1:] == (2,) and found.dtype == _U32
        raise trace_error(
            f"argument key must be one key, u32[2], got {found.cell.type}",
            "one of several keys: keys[i]" if several else "af.random.key(seed), or a key that split or fold_in gave",
        )
    return found


def drawn_from(function: str, key: Any) -> Value:
    """A key that a function takes numbers or keys from. Warns where that was done before."""
    found = checked_key(key)
    return keyuse.noted(found, f"af.random.{function}")


def children(key: Value, shape: tuple[int, ...]) -> Value:
    """The keys that a key is split into, with one more dimension of 2."""
    counters = counters_of(shape)
    return stacked([words(key, counters, word).value for word in (FIRST, SECOND)])


def child(key: Value, number: int) -> Value:
    """One of them."""
    counter = Term(current().scalar(0, _U32)), Term(current().scalar(number, _U32))
    return stacked([words(key, counter, word).value for word in (FIRST, SECOND)])


def counters_of(shape: tuple[int, ...]) -> tuple[Term, Term]:
    """The counter of each element. One word is 0 throughout where the elements can be counted in the other."""
    size = math.prod(shape)
    if size <= _WORD:
        return Term(current().splat(0, _U32, shape)), Term(reshape(iota((size,), 0, _U32), shape))
    place = Term(reshape(iota((size,), 0, np.uint64), shape))
    return place.op("shift_right_logical", 32).to(_U32), place.to(_U32)


def words(key: Value, counters: tuple[Term, Term], word: str) -> Term:
    """One word of each counter, or both mixed."""
    first, second = (Term(broadcast(row(key, number), counters[0].shape)) for number in (0, 1))
    return first.op("threefry2x32", second, *counters, word=word.upper())


def bits_of(key: Value, width: int, shape: tuple[int, ...]) -> Term:
    """Unsigned integers of 8, 16, 32 or 64 random bits."""
    counters = counters_of(shape)
    if width < 64:
        return words(key, counters, MIXED).to(f"u{width // 8}")
    high, low = (words(key, counters, word).to(np.uint64) for word in (FIRST, SECOND))
    return high.op("shift_left", 32) | low


def _count(num: Any) -> tuple[int, ...]:
    """How many keys, as a shape."""
    if isinstance(num, Sequence):
        return checked_shape(num)
    count = operator.index(num)
    if count < 0:
        raise trace_error(f"argument num must not be negative, got {count}", "the number of keys")
    return (count,)
