"""`Lanes`: a typed SSA value with Python operators, so that vector code reads as formulas.

Every operator appends one instruction to the value's function. Python numbers on the other side of an operator become
constants of the value's type, written exactly.
"""

from __future__ import annotations

import struct
from typing import Any, Literal

import numpy as np

from autofuse.lazydataclass import dataclass, replace
from autofuse.targets.cpu.llvmtext import FunctionText, mangled, vector_of

_FLOATS = ("half", "float", "double")
_WIDTH = {"half": 16, "float": 32, "double": 64}

Order = Literal["eq", "ne", "lt", "le", "gt", "ge"]


def is_float(element: str) -> bool:
    """Whether an LLVM element type is one of half, float, double."""
    return element in _FLOATS


def width(element: str) -> int:
    """Bits of an LLVM element type."""
    return _WIDTH.get(element) or int(element[1:])


def integer_like(element: str) -> str:
    """The integer element type of the same width: `float` -> `i32`."""
    return f"i{width(element)}"


def scalar_constant(element: str, value: Any) -> str:
    """The exact LLVM spelling of a number as one element: `0x3FF8000000000000`, `0xH3E00`, `-7`, `true`.

    An f32 is written as the hexadecimal of the double of the same value, as LLVM asks. Integers wrap.
    """
    if element == "i1":
        return "true" if value else "false"
    if element == "half":
        with np.errstate(over="ignore"):
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if is_float(element):
        with np.errstate(over="ignore"):
            exact = float(np.float32(value)) if element == "float" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    bits = width(element)
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def constant(element: str, value: Any, lanes: int) -> str:
    """An LLVM constant operand holding `value` in every lane."""
    text = scalar_constant(element, value)
    return text if lanes == 1 else f"splat ({element} {text})"


@dataclass(frozen=True, slots=True)
class Lanes:
    """A value in a register: `lanes` lanes of LLVM type `element`. Comparisons give lanes of `i1`."""

    fn: FunctionText
    name: str
    """SSA name or constant, as it is written behind its type."""
    element: str
    """`float`, `i32`, `i1`, ..."""
    lanes: int

    @property
    def type(self) -> str:
        """The LLVM type of the whole value."""
        return vector_of(self.element, self.lanes)

    @property
    def is_float(self) -> bool:
        """Whether the element is floating point."""
        return is_float(self.element)

    def like(self, value: Any) -> Lanes:
        """`value` as a constant of this type; a Lanes passes through."""
        return value if isinstance(value, Lanes) else self._named(constant(self.element, value, self.lanes))

    def const(self, element: str, value: Any) -> Lanes:
        """`value` as a constant of another element type, equally many lanes."""
        return self._named(constant(element, value, self.lanes), element)

    def _named(self, name: str, element: str | None = None) -> Lanes:
        return replace(self, name=name, element=element or self.element)

    def _instruction(self, text: str, element: str | None = None) -> Lanes:
        return self._named(self.fn.emit(text), element)

    def binary(self, opcode: str, other: Any) -> Lanes:
        """One two-operand instruction."""
        return self._instruction(f"{opcode} {self.type} {self.name}, {self.like(other).name}")

    def _arithmetic(self, opcode: str, other: Any) -> Lanes:
        return self.binary(("f" if self.is_float else "") + opcode, other)

    def __add__(self, other: Any) -> Lanes:
        return self._arithmetic("add", other)

    def __radd__(self, other: Any) -> Lanes:
        return self.like(other) + self

    def __sub__(self, other: Any) -> Lanes:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Any) -> Lanes:
        return self.like(other) - self

    def __mul__(self, other: Any) -> Lanes:
        return self._arithmetic("mul", other)

    def __rmul__(self, other: Any) -> Lanes:
        return self.like(other) * self

    def __truediv__(self, other: Any) -> Lanes:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: Any) -> Lanes:
        return self.like(other) / self

    def __neg__(self) -> Lanes:
        if self.is_float:
            return self._instruction(f"fneg {self.type} {self.name}")
        return self.like(0) - self

    def __and__(self, other: Any) -> Lanes:
        return self.binary("and", other)

    def __or__(self, other: Any) -> Lanes:
        return self.binary("or", other)

    def __xor__(self, other: Any) -> Lanes:
        return self.binary("xor", other)

    def __invert__(self) -> Lanes:
        return self.binary("xor", True if self.element == "i1" else -1)

    def __lshift__(self, other: Any) -> Lanes:
        return self.binary("shl", other)

    def shift_right(self, other: Any) -> Lanes:
        """Logical shift right."""
        return self.binary("lshr", other)

    def shift_right_signed(self, other: Any) -> Lanes:
        """Arithmetic shift right."""
        return self.binary("ashr", other)

    def compare(self, order: Order, other: Any, *, unsigned: bool = False) -> Lanes:
        """Lane-wise comparison: floats ordered except `ne` (NaN compares as in NumPy); integers signed by default."""
        if self.is_float:
            predicate = "fcmp " + ("une" if order == "ne" else "o" + order)
        elif order in ("eq", "ne"):
            predicate = f"icmp {order}"
        else:
            predicate = "icmp " + ("u" if unsigned else "s") + order
        return self._instruction(f"{predicate} {self.type} {self.name}, {self.like(other).name}", "i1")

    def __lt__(self, other: Any) -> Lanes:
        return self.compare("lt", other)

    def __le__(self, other: Any) -> Lanes:
        return self.compare("le", other)

    def __gt__(self, other: Any) -> Lanes:
        return self.compare("gt", other)

    def __ge__(self, other: Any) -> Lanes:
        return self.compare("ge", other)

    def equals(self, other: Any) -> Lanes:
        """`==`, ordered."""
        return self.compare("eq", other)

    def differs(self, other: Any) -> Lanes:
        """`!=`, true for NaN."""
        return self.compare("ne", other)

    def below(self, other: Any) -> Lanes:
        """Unsigned `<` of integers."""
        return self.compare("lt", other, unsigned=True)

    def is_nan(self) -> Lanes:
        """Lanes that are not a number."""
        return self._instruction(f"fcmp uno {self.type} {self.name}, {self.name}", "i1")

    def select(self, yes: Lanes, no: Any) -> Lanes:
        """`yes` where this i1 holds, else `no`."""
        other = yes.like(no)
        return yes._instruction(f"select {self.type} {self.name}, {yes.type} {yes.name}, {other.type} {other.name}")

    def cast(self, opcode: str, element: str) -> Lanes:
        """A conversion instruction: sext, zext, trunc, fpext, fptrunc, sitofp, uitofp, fptosi, bitcast."""
        return self._instruction(f"{opcode} {self.type} {self.name} to {vector_of(element, self.lanes)}", element)

    def bits(self) -> Lanes:
        """The bit pattern as integers of the same width."""
        return self.cast("bitcast", integer_like(self.element))

    def as_float(self) -> Lanes:
        """The float or double with this bit pattern."""
        return self.cast("bitcast", {16: "half", 32: "float", 64: "double"}[width(self.element)])

    def intrinsic(self, name: str, *others: Any) -> Lanes:
        """`llvm.NAME` overloaded on this type, over this value and others of the same type."""
        arguments = [self, *(self.like(other) for other in others)]
        full = f"llvm.{name}.{mangled(self.element, self.lanes)}"
        return self._named(self.fn.intrinsic(full, self.type, [(a.type, a.name) for a in arguments]))

    def intrinsic_with_flag(self, name: str) -> Lanes:
        """`llvm.NAME(x, i1 false)`: `abs` and `ctlz` without poison."""
        full = f"llvm.{name}.{mangled(self.element, self.lanes)}"
        return self._named(self.fn.intrinsic(full, self.type, [(self.type, self.name), ("i1", "false")]))

    def abs(self) -> Lanes:
        """Magnitude of floats."""
        return self.intrinsic("fabs")

    def copysign(self, sign: Any) -> Lanes:
        """The magnitude of this value with the sign of `sign`."""
        return self.intrinsic("copysign", sign)

    def fma(self, factor: Any, addend: Any) -> Lanes:
        """`self * factor + addend`, rounded once."""
        return self.intrinsic("fma", factor, addend)

    def sqrt(self) -> Lanes:
        """Square root, correctly rounded."""
        return self.intrinsic("sqrt")

    def any(self) -> str:
        """An i1 scalar (its name): whether any lane of this i1 holds."""
        if self.lanes == 1:
            return self.name
        full = f"llvm.vector.reduce.or.{mangled(self.element, self.lanes)}"
        return self.fn.intrinsic(full, "i1", [(self.type, self.name)])
