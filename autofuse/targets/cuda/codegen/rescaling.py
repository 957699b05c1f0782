"""Sums that follow a maximum: rescaled each time that it may have grown.

    own = top;  top = maximum(top, ...);  hold = top == -inf ? 0 : top;  sum *= exp(own - hold)

A maximum that is -inf so far cannot be subtracted; zero is, so that what is added is zero. If it stays like that, sums
are NaN, as exp(-inf - -inf) is.

A sum of weighed values may be infinite by one whose weight is zero beside the maximum of the whole row, which makes
NaN. Then the row is walked once more, and its maximum is known from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Constant, Effect, Map, Reduce, Scalar
from autofuse.lower.tile import Stage
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.ctypes_text import literal, register_type
from autofuse.targets.cuda.prelude import Prelude


def is_empty(maximum: str, dtype: DType) -> str:
    """C: whether nothing but -inf has come so far."""
    return f"{maximum} == {literal(-math.inf, dtype)}"


def held(maximum: str, dtype: DType) -> str:
    """C: what is subtracted."""
    return f"{is_empty(maximum, dtype)} ? {literal(0, dtype)} : {maximum}"


def shrunk(prelude: Prelude, own: str, hold: str, dtype: DType) -> str:
    """C: what sums are multiplied with when `own` is no longer subtracted, but `hold`."""
    return scalars.map_expression(prelude, "exp", (f"({own} - {hold})",), (dtype,), dtype)


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Writes what a maximum does to the sums of its stage."""

    code: PhaseCode
    maximum: Scalar
    dtype: DType
    """Of the maximum."""
    sums: tuple[Scalar, ...]
    """Reductions that are proportional to exp(-maximum)."""
    weighed: tuple[Scalar, ...]
    """Those of them that may be infinite: of more than weights."""
    own: str
    """C: the maximum before it grew."""
    hold: str
    """C: what is subtracted."""

    @staticmethod
    def of(code: PhaseCode, stage: Stage) -> Rescaling | None:
        """Of a stage; None if it reads no maximum that it reduces."""
        if stage.stabiliser is None:
            return None
        follows = {stage.stabiliser}
        sums: list[Scalar] = []
        for statement in stage.body:
            if not isinstance(statement, Effect) and not follows.isdisjoint(operands(statement)):
                follows.add(statement.result)
                sums += [statement.result] if isinstance(statement, Reduce) else []
        (reduce,) = (s for s in stage.body if isinstance(s, Reduce) and s.result == stage.stabiliser)
        own, hold = code.names.fresh("own"), code.names.fresh("hold")
        weighed = tuple(total for total in sums if not _is_of_weights(stage, total))
        return Rescaling(code, stage.stabiliser, reduce.dtype, tuple(sums), weighed, own, hold)

    def keep(self, maximum: str) -> None:
        """Remember the maximum before it may grow."""
        self.code.out.line(f"const {register_type(self.dtype)} {self.own} = {maximum};")

    def apply(self, maximum: str, sums: Sequence[str]) -> None:
        """Rescale the sums now that it may have grown; from here on, statements subtract it as it is now."""
        code, out = self.code, self.code.out
        out.line(f"const {register_type(self.dtype)} {self.hold} = {held(maximum, self.dtype)};")
        scale = shrunk(code.prelude, self.own, self.hold, self.dtype)
        for total in sums:
            out.line(f"{total} *= {scale};")
        code.values[self.maximum], code.types[self.maximum] = (self.hold,), self.dtype

    def end(self, maximum: str, sums: Sequence[str]) -> None:
        """Sums of rows that were -inf alone."""
        for total in sums:
            self.code.out.line(f"if ({is_empty(maximum, self.dtype)}) {total} = {literal(math.nan, self.dtype)};")


def _is_of_weights(stage: Stage, total: Scalar) -> bool:
    """Whether a sum is of exponentials and numbers alone, which are finite."""
    made = {s.result: s for s in stage.body if not isinstance(s, Effect)}
    reduce = made[total]
    assert isinstance(reduce, Reduce)
    wanted = [reduce.operand]
    while wanted:
        match made.get(wanted.pop()):
            case Constant() | Map(opcode="exp"):
                pass
            case Map(opcode="convert" | "multiply" | "divide", operands=numbers):
                wanted += numbers
            case _:
                return False
    return True
