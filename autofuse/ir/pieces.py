"""Where an element comes from: pieces and their conditions, and how access rules write them.

Conditions are left out where ranges decide them; pieces that can never match are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.ir import index
from autofuse.ir.index import Affine, Element
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """`lo <= value < hi`, and `value % multiple == remainder` where `multiple` > 1."""

    value: Affine
    lo: int
    hi: int
    multiple: int = 1
    remainder: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """One place a result element may come from: operand `operand` at `index`, if all of `conditions` hold."""

    operand: int
    index: tuple[Affine, ...]
    conditions: tuple[Condition, ...] = ()


Test = Condition | bool
Option = tuple[int, tuple[Affine, ...], tuple[Test, ...]]
"""Operand number, index, tests: one place that an element may come from."""


def within(value: Affine, lo: int, hi: int, multiple: int = 1) -> Test:
    """`lo <= value < hi` and `value % multiple == 0`: decided by the range of `value` where that is possible."""
    least, greatest = index.bounds(value)
    if lo >= hi or greatest < lo or least >= hi:
        return False
    rest = value % multiple if multiple > 1 else Affine()
    if rest.is_constant:
        if rest.constant:
            return False
        multiple = 1
    if multiple == 1 and least >= lo and greatest < hi:
        return True
    return Condition(value, lo, hi, multiple)


def choose(options: Iterable[Option]) -> tuple[Piece, ...]:
    """The pieces, in order, as far as one is always taken; one of the options must match at every index.

    Of a result without elements, the last option.
    """
    pieces: list[Piece] = []
    operand, where = 0, ()
    for operand, where, tests in options:
        if any(test is False for test in tests):
            continue
        conditions = tuple(test for test in tests if isinstance(test, Condition))
        pieces.append(Piece(operand, where, conditions))
        if not conditions:
            break
    return tuple(pieces) or (Piece(operand, where),)


def start(operand: int, at: tuple[Affine, ...], limit: int) -> Affine:
    """A start index read at run time from element `at` of `operand`, clamped to `0..limit`."""
    return index.of(Element(operand, at, 0, limit)) if limit > 0 else Affine()
