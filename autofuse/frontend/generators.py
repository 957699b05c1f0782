"""Traced generators: `np.random.Generator(np.random.Philox(seed))` as an argument, with NumPy's own numbers.

NumPy draws words of 64 bits one after the other: word n is one of four that philox4x64 makes of a key and a counter
that goes up by one every four words (numpy/random/src/philox). Words of 32 bits are halves of those, the lower one
first. Floats are the upper bits of a word (53 of 64, 24 of 32) as a fraction; an integer below a power of two its upper
bits. So elements are a function of the state and of their place, and how far the state advances is known. Other
distributions refuse numbers that they have drawn, which no place tells; they are not traced.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from autofuse.errors import TraceError
from autofuse.frontend.creation import iota
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, broadcast, reshape
from autofuse.frontend.random.calls import checked_shape, row, spread, stacked
from autofuse.frontend.rolling.numbers import floating
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current, supported
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.generators import DRAWN, HALF, HALF_LEFT, WORDS
from autofuse.ir.tree import Branch, Tree
from autofuse.lazydataclass import replace

_U64, _U32 = np.dtype(np.uint64), np.dtype(np.uint32)
_INSTEAD = (
    "random, uniform, or integers with a high - low that is a power of two; af.random.normal(key, shape) and the like,"
    " with af.random.key(seed) as an argument; or draw them outside and pass them as an argument"
)


class TracedGenerator:
    """A generator in a traced function. Drawing from it writes into its state, which is an argument's."""

    def __init__(self, state: TracerArray) -> None:  # named as the entry of its structure
        self._autofuse_state = state

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]  # nobody assigns it
        """NumPy's, so that isinstance says what the user expects."""
        return np.random.Generator

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not hasattr(np.random.Generator, name):
            raise AttributeError(f"numpy.random.Generator has no attribute {name!r:.80}")
        raise trace_error(f"np.random.Generator.{name} of a generator that is an argument cannot be traced", _INSTEAD)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Numbers from 0 to below 1, f64 or f32."""
        wanted = supported(dtype)
        if wanted.type not in (np.float64, np.float32):
            raise trace_error(f"argument dtype must be float64 or float32, got {wanted}", "dtype=np.float32")
        if out is None:
            return _number(self._fractions(_extents(size), wanted), size)
        array = as_tracer(out)
        if array.dtype != wanted or (size is not None and checked_shape(size) != array.shape):
            raise trace_error(f"argument out must have dtype {wanted} and the shape size, got {array.cell.type}")
        array[...] = fresh(self._fractions(array.shape, wanted).value)
        return out

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Numbers from `low` to below `high`, f64; of the shape that both are broadcast to if `size` is left out."""
        ends = [as_tracer(np.asarray(end, np.float64) if isinstance(end, int | float) else end) for end in (low, high)]
        shape = np.broadcast_shapes(*(end.shape for end in ends))
        extents = shape if size is None else checked_shape(size)
        named = zip(("low", "high"), ends, strict=True)
        first, last = (spread(name, end.astype(np.float64).value, extents) for name, end in named)
        drawn = first + (last - first) * self._fractions(extents, np.dtype(np.float64))
        return _number(drawn, None if size is None and not shape else extents)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        """Integers from `low` on, as many different ones as a power of two."""
        first, last = (0, low) if high is None else (low, high)
        try:
            start, span = operator.index(first), operator.index(last) - operator.index(first) + bool(endpoint)
        except TypeError as error:
            what = "np.random.Generator.integers of a generator that is an argument"
            raise trace_error(f"{what} takes Python integers as low and high", _INSTEAD) from error
        wanted = supported(np.bool_ if dtype is bool else dtype)
        _check_range(start, span, wanted)
        if size is None and dtype in (bool, int):
            raise trace_error(
                f"np.random.Generator.integers of dtype {dtype.__name__} without a size gives a number of Python's",
                f"rng.integers(..., size=(), dtype=np.{wanted})",
            )
        extents = _extents(size)
        if span & (span - 1):
            raise trace_error(
                f"np.random.Generator.integers of {span} different numbers cannot be traced: NumPy draws again where a"
                " number would be more likely than others",
                _INSTEAD,
            )
        return fresh(self._integers(start, span.bit_length() - 1, extents, wanted).value)

    # the numbers, by place

    def _fractions(self, extents: tuple[int, ...], dtype: np.dtype[Any]) -> Term:
        if dtype == np.float64:
            return self._words(extents).op("shift_right_logical", 11).to(dtype) * 2.0**-53
        return self._halves(extents).op("shift_right_logical", 8).to(dtype) * 2.0**-24

    def _integers(self, start: int, bits: int, extents: tuple[int, ...], dtype: np.dtype[Any]) -> Term:
        """The upper `bits` bits of words, of halves up to 32 bits, of parts of halves where the dtype is shorter."""
        if bits == 0:  # nothing is drawn
            return Term(current().splat(start, dtype, extents))
        if bits > 32:
            drawn = self._words(extents).op("shift_right_logical", 64 - bits)
        elif dtype.itemsize >= 4:
            drawn = self._halves(extents).op("shift_right_logical", 32 - bits)
        else:
            drawn = self._parts(1 if dtype == np.bool_ else 8 * dtype.itemsize, bits, extents)
        if dtype == np.bool_:
            return drawn.differs(0)
        unsigned = drawn.to(f"u{dtype.itemsize}") + start % (1 << 8 * dtype.itemsize)
        return unsigned.to(dtype)

    def _words(self, extents: tuple[int, ...]) -> Term:
        """Words of 64 bits, one after the other in the order of rows."""
        state, count = self._state(), math.prod(extents)
        places = Term(reshape(iota((count,), 0, _U64), extents))
        words = _word(state, _spread(state[DRAWN], extents) + places)
        self._advance(state, Term(current().scalar(count, _U64)))
        return words

    def _halves(self, extents: tuple[int, ...]) -> Term:
        """Words of 32 bits: the half that is left over, if there is one, then halves of the words that follow."""
        state, count = self._state(), math.prod(extents)
        left = state[HALF_LEFT].op("minimum", 1)
        places = Term(reshape(iota((count,), 0, _U64), extents)) - _spread(left, extents)
        words = _word(state, _spread(state[DRAWN], extents) + places.op("shift_right_logical", 1))
        upper = (places & 1).differs(0)
        halves = upper.select(words.op("shift_right_logical", 32), words).to(_U32)
        drawn = (places < 1 << 63).select(halves, _spread(state[HALF].to(_U32), extents))
        if count:
            taken = Term(current().scalar(count, _U64)) - left
            more = (taken + 1).op("shift_right_logical", 1)
            last = _word(state, state[DRAWN] + more - 1).op("shift_right_logical", 32)
            half = more.differs(0).select(last, state[HALF])
            self._advance(state, more, (taken & 1, half))
        return drawn

    def _parts(self, width: int, bits: int, extents: tuple[int, ...]) -> Term:
        """The upper `bits` of parts of `width` bits, the lowest part of each half first. A half serves one call."""
        count, each = math.prod(extents), 32 // width
        needed = -(-count // each)
        halves = Term(broadcast(reshape(self._halves((needed,)).value, (needed, 1)), (needed, each)))
        number = Term(iota(halves.shape, 1, _U32))
        parts = halves.op("shift_right_logical", number * width) & ((1 << width) - 1)
        flat = reshape(parts.op("shift_right_logical", width - bits).value, (needed * each,))
        kept = current().emit("slice", (flat,), start_indices=(0,), limit_indices=(count,), strides=(1,))
        return Term(reshape(kept, extents))

    # the state

    def _state(self) -> list[Term]:
        value = self._autofuse_state.value
        return [Term(row(value, number)) for number in range(WORDS)]

    def _advance(self, state: list[Term], words: Term, half: tuple[Term, Term] | None = None) -> None:
        """So many words on; NumPy makes a block when it needs the first word of it, so 1 to 4 of a block are drawn."""
        drawn = state[DRAWN] + words
        blocks = (drawn.op("maximum", 1) - 1).op("shift_right_logical", 2)
        counter = _counted(state, blocks)
        left, value = half or (state[HALF_LEFT], state[HALF])
        parts = [*counter, *state[4:6], drawn - blocks * 4, left, value]
        try:
            self._autofuse_state[...] = fresh(stacked([part.value for part in parts]))
        except TraceError as error:
            raise trace_error(
                "a loop or branch body draws from a generator of the enclosing function",
                "af.random, with a key in the loop's state; or draw for all iterations before the loop",
            ) from error


def opened(structure: Tree) -> Tree:
    """The structure of arguments, of which generators become traced ones when it is filled with traced arrays."""
    if not isinstance(structure, Branch):
        return structure
    children = tuple(map(opened, structure.children))
    make = TracedGenerator if structure.kind == "generator" else structure.make
    return replace(structure, children=children, make=make)


def _word(state: list[Term], place: Term) -> Term:
    """The word at a place that counts from the first of the state's block."""
    counter = _counted([_spread(word, place.shape) for word in state[:4]], place.op("shift_right_logical", 2))
    keys = [_spread(word, place.shape) for word in state[4:6]]
    return keys[0].op("philox4x64", keys[1], *counter, place & 3)


def _counted(state: list[Term], blocks: Term) -> list[Term]:
    """The counter, of 256 bits, so many blocks on."""
    counter = [state[0] + blocks]
    carry = (counter[0] < blocks).to(_U64)
    for word in state[1:4]:
        counter.append(word + carry)
        carry = (counter[-1] < carry).to(_U64)
    return counter


def _spread(term: Term, extents: tuple[int, ...]) -> Term:
    return Term(broadcast(term.value, extents))


def _extents(size: Any) -> tuple[int, ...]:
    return () if size is None else checked_shape(size)


def _number(drawn: Term, size: Any) -> TracerArray:
    """An array; without a size a Python float, which takes on the dtype of what it meets."""
    return fresh(drawn.value) if size is not None else floating(drawn.to(np.float64).value)


def _check_range(start: int, span: int, dtype: np.dtype[Any]) -> None:
    """Raises TraceError for what NumPy refuses."""
    if dtype.kind not in "iub":
        raise trace_error(f"argument dtype must be an integer dtype or bool, got {dtype}", "dtype=np.int64")
    least, most = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if span < 1:
        raise trace_error("argument high must be greater than low", "rng.integers(low, high)")
    if start < least or start + span - 1 > most:
        raise trace_error(f"argument low or high is out of bounds for {dtype}", "a wider dtype")
