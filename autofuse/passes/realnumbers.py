"""Values of a graph with operators, so that a pass writes a formula as it reads on paper."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

Operand = Any
"""A Real of the same shape and dtype, or a Python number."""


class Emitter(Protocol):
    """Where the nodes of formulas go."""

    def emit(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """The result of a new node."""
        ...

    def splat(self, number: Any, like: Value) -> Value:
        """A number repeated in the type of `like`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """A value of floats or bools in a formula. Python numbers become constants of its type."""

    value: Value
    into: Emitter

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    def op(self, name: str, *others: Operand, **attrs: Any) -> Real:
        """An op with this number first."""
        return Real(self.into.emit(name, self.value, *(self.lift(other).value for other in others), **attrs), self.into)

    def lift(self, other: Operand) -> Real:
        """`other` as a Real: a number is repeated in this one's type."""
        return other if isinstance(other, Real) else Real(self.into.splat(other, self.value), self.into)

    def __add__(self, other: Operand) -> Real:
        return self.op("add", other)

    def __sub__(self, other: Operand) -> Real:
        return self.op("subtract", other)

    def __rsub__(self, other: Operand) -> Real:
        return self.lift(other).op("subtract", self)

    def __mul__(self, other: Operand) -> Real:
        return self.op("multiply", other)

    def __truediv__(self, other: Operand) -> Real:
        return self.op("divide", other)

    def __rtruediv__(self, other: Operand) -> Real:
        return self.lift(other).op("divide", self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Real:
        return self.op("negate")

    def __abs__(self) -> Real:
        return self.op("abs")

    def __and__(self, other: Operand) -> Real:
        return self.op("and", other)

    def __or__(self, other: Operand) -> Real:
        return self.op("or", other)

    def __invert__(self) -> Real:
        return self.op("not")

    def __lt__(self, other: Operand) -> Real:
        return self.op("compare", other, direction="LT")

    def __gt__(self, other: Operand) -> Real:
        return self.op("compare", other, direction="GT")

    def __ge__(self, other: Operand) -> Real:
        return self.op("compare", other, direction="GE")

    def equals(self, other: Operand) -> Real:
        return self.op("compare", other, direction="EQ")

    def differs(self, other: Operand) -> Real:
        return self.op("compare", other, direction="NE")

    def is_nan(self) -> Real:
        return self.differs(self)

    def is_finite(self) -> Real:
        return self.op("is_finite")

    def is_infinite(self) -> Real:
        return abs(self).equals(np.inf)

    def select(self, on_true: Operand, on_false: Operand) -> Real:
        """`on_true` where this bool holds, else `on_false`; one of the two is a Real."""
        like: Real = on_true if isinstance(on_true, Real) else on_false
        return self.op("select", like.lift(on_true), like.lift(on_false))

    def to(self, dtype: DType) -> Real:
        """Converted to another dtype."""
        return self if self.dtype is dtype else self.op("convert", dtype=dtype)

    def copysign(self, sign: Real) -> Real:
        """The magnitude of this number with the sign bit of `sign`, also of zeros and NaN."""
        bits = self.dtype.bits
        unsigned = dtypes.by_name(f"u{bits}")
        top = 1 << (bits - 1)
        size = self.op("bitcast_convert", dtype=unsigned).op("and", top - 1)
        return size.op("or", sign.op("bitcast_convert", dtype=unsigned).op("and", top)).op(
            "bitcast_convert", dtype=self.dtype
        )
