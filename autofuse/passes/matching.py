"""What rules of the rewriting tables have in common: looking at operands, and writing numbers down."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.optable import lookup
from autofuse.ir.types import TensorType
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Rules, splat_call


def number_of(facts: Facts, value: Value) -> float | int | None:
    """The number repeated in `value`: an int for integers and bool, a float for floats; None if it is not known."""
    splat = facts.splat(value)
    return None if splat is None else as_number(splat)


def as_number(splat: NDArray[Any]) -> float | int:
    """A 0-d array as a Python number."""
    return int(splat) if splat.dtype.kind in "iub" else float(splat)


def is_number(facts: Facts, value: Value, number: float) -> bool:
    """Whether `value` repeats exactly this number; zeros of floats must agree in sign."""
    found = number_of(facts, value)
    if found is None or found != number:
        return False
    return isinstance(found, int) or math.copysign(1, found) == math.copysign(1, number)


def numbered_sides(node: Node, facts: Facts) -> Iterator[tuple[Value, Value, float | int]]:
    """For a binary node: (other operand, repeated operand, its number), for each operand that repeats a number."""
    left, right = node.inputs
    for other, repeated in ((left, right), (right, left)):
        number = number_of(facts, repeated)
        if number is not None:
            yield other, repeated, number


def filled(number: float | int | bool, type_: TensorType) -> Call:
    """`number` in every element of `type_`, converted to its dtype as NumPy does."""
    return splat_call(np.array(number).astype(type_.dtype.numpy), type_)


def computed(op: str, facts: Facts, *repeated: Value) -> Call:
    """An elementwise op on operands that repeat numbers, computed now."""
    splats = [splat for value in repeated if (splat := facts.splat(value)) is not None]
    return splat_call(lookup(op).evaluate(splats, {}, ())[0], repeated[0].type)


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of an integer dtype or bool."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def is_float(node: Node) -> bool:
    """Whether the first operand has a float dtype."""
    return node.inputs[0].type.dtype.is_float


def is_wide_float(node: Node) -> bool:
    """f32 or f64: ops round once, to the dtype they compute in."""
    dtype = node.inputs[0].type.dtype
    return dtype.is_float and dtype.bits > 16


def joined(*tables: Rules) -> Rules:
    """One table: for each op the rules of the first table, then of the next."""
    ops = dict.fromkeys(op for table in tables for op in table)
    return {op: tuple(rule for table in tables for rule in table.get(op, ())) for op in ops}
