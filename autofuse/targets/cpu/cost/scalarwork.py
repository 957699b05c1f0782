"""What the scalars of a stage are to its walk: how deep and how varying; and counts of the work that they take."""

from __future__ import annotations

import math
from functools import cache

from autofuse.cost_models.features import FarWalk
from autofuse.cost_models.operations import FLOAT_TO_INTEGER, mix_of, price_class
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.optable import scalar_op
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Map


@dataclass(frozen=True, slots=True)
class Scalar:
    """What is known of a scalar of a phase."""

    depth: int
    """Loops that move it: it is computed once per round of the innermost of these."""
    varying: bool
    """Whether lanes differ."""
    dtype: DType
    share: float = 1.0
    """Of a bool: the share of iterations in which it holds, if conditions on positions tell."""
    cut: bool = False
    """Of a bool: the loops are cut where it changes, so that it costs nothing inside."""


@cache
def plain(depth: int, varying: bool, dtype: DType) -> Scalar:
    """Of no condition. There are few different ones."""
    return Scalar(depth, varying, dtype)


class Counts:
    """How much of each kind a stage does: operations of lanes and of single numbers, memory instructions, far steps."""

    __slots__ = ("far", "flops", "kinds", "operations", "scalars")

    def __init__(self) -> None:
        self.operations: dict[tuple[str, str], float] = {}
        self.scalars: dict[tuple[str, str], float] = {}
        self.kinds: dict[str, float] = {}
        self.far: list[FarWalk] = []
        self.flops = 0.0

    def operate(self, op_class: str, dtype: DType, times: float, *, varying: bool = True) -> None:
        key = (op_class, price_class(dtype))
        counted = self.operations if varying else self.scalars
        counted[key] = counted.get(key, 0.0) + times

    def count(self, kind: str, times: float) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0.0) + times


def mapped(statement: Map, operands: list[Scalar], depth: int, varying: bool) -> Scalar:
    """The result of a Map; of bools made from conditions the share is kept."""
    if statement.dtype != dtypes.BOOL or any(o.dtype != dtypes.BOOL for o in operands):
        return Scalar(depth, varying, statement.dtype)
    shares = [operand.share for operand in operands]
    match statement.opcode:
        case "and":
            share = math.prod(shares)
        case "or":
            share = min(1.0, sum(shares))
        case "not":
            share = 1.0 - shares[0]
        case _:
            return Scalar(depth, varying, statement.dtype)
    return Scalar(depth, varying, statement.dtype, share, all(o.cut for o in operands))


@dataclass(frozen=True, slots=True)
class Work:
    """What a Map of operands of some types is."""

    operations: tuple[tuple[tuple[str, str], float], ...]
    """Of each class and price, how many."""
    computes: bool
    """Whether it is more than another name for the same bits."""
    flops: float


@cache
def work_of(opcode: str, dtype: DType, operands: tuple[DType, ...]) -> Work:
    """What an operation counts as, for results and operands of these types."""
    judged = operands[0] if dtype == dtypes.BOOL and operands else dtype
    wide = max((judged, *operands), key=lambda dtype: dtype.bits)
    mix, computes = mix_of(opcode, judged), True
    if opcode == "convert":
        source = operands[0]
        computes = not (source.is_integer and dtype.is_integer and source.bits == dtype.bits)
        if source.is_float and dtype.is_integer:
            mix = FLOAT_TO_INTEGER
    operations = tuple(((op_class, price_class(wide)), weight) for op_class, weight in mix)
    return Work(operations, computes, scalar_op(opcode).work.flops if dtype.is_float else 0.0)
