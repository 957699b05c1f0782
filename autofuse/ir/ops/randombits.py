"""Random bits as a function of a key and a counter: threefry2x32, elementwise.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3 and table 2. A block of
two words is enciphered in 20 rounds of add, rotate, exclusive or; after every four of them a part of the key is added.
No element depends on another, and there is no state: what draws may be fused, split and computed anew anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, ElementwiseOp, Region, Work
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


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    for name, operand in zip(_NAMES, operands, strict=True):
        if operand.dtype != dtypes.U32:
            raise GraphError(f"threefry2x32: operand {name} must be of u32, got {operand}; convert it first")
    require.same_type("threefry2x32", _NAMES, operands)
    return (operands[0],)


def _turned(word: Array, bits: int) -> Array:
    return word << np.uint32(bits) | word >> np.uint32(32 - bits)


@np.errstate(over="ignore")
def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    words = threefry2x32(operands, _turned)
    return (np.asarray(result_of(attrs["word"].lower(), words), np.uint32),)


OPS = (
    ElementwiseOp(
        name="threefry2x32",
        doc="Random bits of a key and a counter of two words each: threefry2x32 with 20 rounds. `word`: which of the "
        "two words that come out, or both by exclusive or. Kernels that need several do the rounds once.",
        infer=_infer,
        evaluate=_evaluate,
        code=80,
        attrs={"word": AttrSpec("str", "which word is the result", tuple(map(str.upper, OPCODES)))},
        arity=4,
        work=Work(None, {"integer": 74}, vectors=80, flops=0, ulps=0, widens=False, uneven=False),
        commutative=False,
        variant="word",
    ),
)
