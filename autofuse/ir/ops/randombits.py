"""Random bits as a function of a key and a counter: threefry2x32 and philox4x64, elementwise.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3 and table 2. threefry2x32
enciphers a block of two words in 20 rounds of add, rotate, exclusive or; after every four of them a part of the key is
added. philox4x64 enciphers four words in 10 rounds of products with constants, of which the upper halves go into
exclusive ors; the key is added to in each round. No element depends on another, and there is no state: what draws may
be fused, split and computed anew anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, ElementwiseOp, InferRule, Region, Work
from autofuse.ir.ops import require
from autofuse.ir.types import TensorType

Array = NDArray[Any]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""By how many bits the second word is turned in the rounds of even groups of four, and of odd ones."""
GROUPS = 5
"""Groups of four rounds."""
PARITY = 0x1BD11BDA
"""With both words of the key by exclusive or: the third word of the key schedule."""
FIRST, SECOND, MIXED = "threefry_first", "threefry_second", "threefry_mixed"
"""Opcodes: which word is the result; mixed: one by exclusive or with the other. The attribute has them in capitals."""
OPCODES = (FIRST, SECOND, MIXED)
_NAMES = ("key_0", "key_1", "counter_0", "counter_1")
PHILOX = "philox4x64"
PHILOX_ROUNDS = 10
PHILOX_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
"""Of the first and the third word of the counter."""
PHILOX_INCREMENTS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
"""What is added to the words of the key from round to round."""
PHILOX_NAMES = ("key_0", "key_1", "counter_0", "counter_1", "counter_2", "counter_3", "word")


def threefry2x32(operands: Sequence[Any], turned: Callable[[Any, int], Any]) -> tuple[Any, Any]:
    """Both words, from the op's operands: words of any kind that has `+` and `^` modulo 2**32 and takes Python numbers.

    `turned(word, bits)` turns a word to the left. The evaluation and the CPU's code share this text.
    """
    key_0, key_1, counter_0, counter_1 = operands
    keys = (key_0, key_1, key_0 ^ key_1 ^ PARITY)
    first, second = counter_0 + key_0, counter_1 + key_1
    for group in range(GROUPS):
        for bits in ROTATIONS[group % 2]:
            first = first + second
            second = turned(second, bits) ^ first
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + (group + 1)
    return first, second


def result_of(opcode: str, words: tuple[Any, Any]) -> Any:
    """The word, or both mixed, that an opcode asks for."""
    first, second = words
    return first if opcode == FIRST else second if opcode == SECOND else first ^ second


def philox4x64(operands: Sequence[Any], high: Callable[[Any, int], Any]) -> tuple[Any, Any, Any, Any]:
    """All four words, from the words of key and counter: of any kind that has `+`, `*` and `^` modulo 2**64.

    `high(word, multiplier)` is the upper half of their product. The evaluation and the CPU's code share this text.
    """
    keys, (first, second, third, fourth) = operands[:2], operands[2:6]
    for number in range(PHILOX_ROUNDS):
        if number:
            keys = [key + increment for key, increment in zip(keys, PHILOX_INCREMENTS, strict=True)]
        even, odd = PHILOX_MULTIPLIERS
        upper, lower = high(first, even), first * even
        first, second = high(third, odd) ^ second ^ keys[0], third * odd
        third, fourth = upper ^ fourth ^ keys[1], lower
    return first, second, third, fourth


def upper_half(word: Any, multiplier: int, right: Callable[[Any, int], Any]) -> Any:
    """The upper 64 bits of a product, from products of halves. `right(word, bits)`: shifted to the right by zeros."""
    mask = (1 << 32) - 1
    low, high = word & mask, right(word, 32)
    cross = high * (multiplier & mask) + right(low * (multiplier & mask), 32)
    other = low * (multiplier >> 32) + (cross & mask)
    return high * (multiplier >> 32) + right(cross, 32) + right(other, 32)


def _inferred(op: str, names: Sequence[str], dtype: DType) -> InferRule:
    def infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
        for name, operand in zip(names, operands, strict=True):
            if operand.dtype != dtype:
                raise GraphError(f"{op}: operand {name} must be of {dtype}, got {operand}; convert it first")
        require.same_type(op, names, operands)
        return (operands[0],)

    return infer


def _turned(word: Array, bits: int) -> Array:
    return word << np.uint32(bits) | word >> np.uint32(32 - bits)


@np.errstate(over="ignore")
def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    words = threefry2x32(operands, _turned)
    return (np.asarray(result_of(attrs["word"].lower(), words), np.uint32),)


def _right(word: Array, bits: int) -> Array:
    return word >> np.uint64(bits)


@np.errstate(over="ignore")
def _evaluate_philox(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    words = philox4x64(operands, lambda word, multiplier: upper_half(word, multiplier, _right))
    return (np.choose(np.asarray(operands[6] & 3, np.intp), words).astype(np.uint64, copy=False),)


OPS = (
    ElementwiseOp(
        name="threefry2x32",
        doc="Random bits of a key and a counter of two words each: threefry2x32 with 20 rounds. `word`: which of the "
        "two words that come out, or both by exclusive or. Kernels that need several do the rounds once.",
        infer=_inferred("threefry2x32", _NAMES, dtypes.U32),
        evaluate=_evaluate,
        code=80,
        attrs={"word": AttrSpec("str", "which word is the result", tuple(map(str.upper, OPCODES)))},
        arity=4,
        work=Work(None, {"integer": 74}, vectors=80, flops=0, ulps=0, widens=False, uneven=False),
        commutative=False,
        variant="word",
    ),
    ElementwiseOp(
        name=PHILOX,
        doc="Random bits of a key of two words and a counter of four: philox4x64 with 10 rounds. Of the four words "
        "that come out, the one with the number `word` modulo 4.",
        infer=_inferred(PHILOX, PHILOX_NAMES, dtypes.U64),
        evaluate=_evaluate_philox,
        code=240,
        arity=7,
        work=Work(None, {"integer": 320}, vectors=360, flops=0, ulps=0, widens=False, uneven=False),
        commutative=False,
    ),
)
