"""Terms: SSA values with operators, so that a composed function reads like its formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend import promotion
from autofuse.frontend.tracecontext import current
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

Operand = Any
"""A Term of the same shape and dtype, or a Python number."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An SSA value in a formula. Operators emit nodes; Python numbers become constants of the term's dtype."""

    value: Value
    static: Any = None
    """The number this operand is known to be at tracing, where it is one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.type.dtype.numpy

    @property
    def kind(self) -> str:
        """`float`, `int`, `uint`, `bool` or `complex`."""
        return self.value.type.dtype.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape

    def op(self, name: str, *others: Operand, **attrs: Any) -> Term:
        """Emit an op with this term first."""
        values = [self.value, *(self.lift(other).value for other in others)]
        return Term(current().emit(name, values, **attrs))

    def lift(self, other: Operand) -> Term:
        """`other` as a term: a number is repeated in this term's shape and dtype."""
        if isinstance(other, Term):
            return other
        return Term(current().splat(other, self.dtype, self.shape), static=other)

    def __add__(self, other: Operand) -> Term:
        return self.op("add", other)

    def __sub__(self, other: Operand) -> Term:
        return self.op("subtract", other)

    def __rsub__(self, other: Operand) -> Term:
        return self.lift(other).op("subtract", self)

    def __mul__(self, other: Operand) -> Term:
        return self.op("multiply", other)

    __rmul__ = __mul__
    __radd__ = __add__

    def __truediv__(self, other: Operand) -> Term:
        """The `divide` op: for integers it truncates."""
        return self.op("divide", other)

    def __rtruediv__(self, other: Operand) -> Term:
        return self.lift(other).op("divide", self)

    def __neg__(self) -> Term:
        return self.op("negate")

    def __and__(self, other: Operand) -> Term:
        return self.op("and", other)

    def __or__(self, other: Operand) -> Term:
        return self.op("or", other)

    def __xor__(self, other: Operand) -> Term:
        return self.op("xor", other)

    def __invert__(self) -> Term:
        return self.op("not")

    def __lt__(self, other: Operand) -> Term:
        return self.op("compare", other, direction="LT")

    def __le__(self, other: Operand) -> Term:
        return self.op("compare", other, direction="LE")

    def __gt__(self, other: Operand) -> Term:
        return self.op("compare", other, direction="GT")

    def __ge__(self, other: Operand) -> Term:
        return self.op("compare", other, direction="GE")

    def equals(self, other: Operand) -> Term:
        return self.op("compare", other, direction="EQ")

    def differs(self, other: Operand) -> Term:
        return self.op("compare", other, direction="NE")

    def select(self, on_true: Operand, on_false: Operand) -> Term:
        """`on_true` where this bool term holds, else `on_false`; one of the two must be a Term."""
        like = on_true if isinstance(on_true, Term) else on_false
        return Term(current().emit("select", (self.value, like.lift(on_true).value, like.lift(on_false).value)))

    def to(self, dtype: Any) -> Term:
        """Converted to another dtype."""
        return Term(promotion.convert(self.value, np.dtype(dtype)))

    def bits(self) -> Term:
        """The same bits as unsigned integers."""
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        return Term(current().emit("bitcast_convert", (self.value,), dtype=dtypes.from_numpy(unsigned)))

    def from_bits(self, dtype: np.dtype[Any]) -> Term:
        """The bits of unsigned integers as another dtype of the same width."""
        return Term(current().emit("bitcast_convert", (self.value,), dtype=dtypes.from_numpy(dtype)))

    def is_nan(self) -> Term:
        return self.differs(self)

    def is_negative(self) -> Term:
        """The sign bit: also of -0.0 and NaN."""
        if self.kind != "float":
            return self < 0
        return self.bits() >= 1 << (8 * self.dtype.itemsize - 1)

    def copysign(self, sign: Term) -> Term:
        """The magnitude of this term with the sign bit of `sign`."""
        top = 1 << (8 * self.dtype.itemsize - 1)
        return ((self.bits() & (top - 1)) | (sign.bits() & top)).from_bits(self.dtype)
