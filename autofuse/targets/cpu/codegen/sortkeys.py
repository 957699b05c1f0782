"""Elements as unsigned integers that are in their order, and back, in LLVM IR.

Integers have their sign bit turned. Floats are in the order of their bits, which are turned where they are negative;
NaN is the greatest integer, in descending orders too.
"""

from __future__ import annotations

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.llvmtext import FunctionText, Vec, vector_of


@dataclass(frozen=True, slots=True)
class KeyCode:
    """Writes keys of one dtype, so many lanes at a time."""

    fn: FunctionText
    dtype: DType
    descending: bool
    lanes: int

    @property
    def bits(self) -> int:
        """Of a key."""
        return 8 if self.dtype.kind == "bool" else self.dtype.bits

    @property
    def type(self) -> str:
        """The LLVM type of keys."""
        return vector_of(f"i{self.bits}", self.lanes)

    @property
    def flags(self) -> str:
        """The LLVM type of truths."""
        return vector_of("i1", self.lanes)

    def constant(self, value: int) -> str:
        """A key that is known."""
        return str(value) if self.lanes == 1 else f"splat (i{self.bits} {value})"

    @property
    def _sign(self) -> int:
        return -(1 << (self.bits - 1))

    def of(self, value: str, *, zeros_apart: bool) -> str:
        """The keys of values in registers. `zeros_apart`: whether -0. comes before 0.; they are equal otherwise."""
        fn, dtype = self.fn, self.dtype
        if not dtype.is_float:
            return self._turned(self._of_integers(value))
        bits = self._bits_of(value)
        if not zeros_apart:
            is_zero = fn.emit(f"fcmp oeq {self._register} {value}, zeroinitializer")
            bits = fn.emit(f"select {self.flags} {is_zero}, {self.type} zeroinitializer, {self.type} {bits}")
        spread = fn.emit(f"ashr {self.type} {bits}, {self.constant(self.bits - 1)}")
        mask = fn.emit(f"or {self.type} {spread}, {self.constant(self._sign)}")
        key = self._turned(fn.emit(f"xor {self.type} {bits}, {mask}"))
        greatest = self.constant(-1)
        return fn.emit(f"select {self.flags} {self.is_nan(value)}, {self.type} {greatest}, {self.type} {key}")

    def _of_integers(self, value: str) -> str:
        if self.dtype.kind == "bool":
            return self.fn.emit(f"zext {self.flags} {value} to {self.type}")
        if self.dtype.kind == "uint":
            return value
        return self.fn.emit(f"xor {self.type} {value}, {self.constant(self._sign)}")

    def values(self, key: str) -> str:
        """The values of keys, for registers; of the key of NaN, some NaN."""
        fn, key = self.fn, self._turned(key)
        if self.dtype.kind == "bool":
            return fn.emit(f"trunc {self.type} {key} to {self.flags}")
        if not self.dtype.is_float:
            signed = self.dtype.kind == "int"
            return fn.emit(f"xor {self.type} {key}, {self.constant(self._sign)}") if signed else key
        spread = fn.emit(f"ashr {self.type} {key}, {self.constant(self.bits - 1)}")
        unlike = fn.emit(f"xor {self.type} {spread}, {self.constant(-1)}")
        mask = fn.emit(f"or {self.type} {unlike}, {self.constant(self._sign)}")
        bits = fn.emit(f"xor {self.type} {key}, {mask}")
        if self.dtype.name == "bf16":
            wide = vector_of("i32", self.lanes)
            bits = fn.emit(f"zext {self.type} {bits} to {wide}")
            bits = fn.emit(f"shl {wide} {bits}, {'16' if self.lanes == 1 else 'splat (i32 16)'}")
            return fn.emit(f"bitcast {wide} {bits} to {self._register}")
        return fn.emit(f"bitcast {self.type} {bits} to {self._register}")

    def is_special(self, value: str) -> str:
        """Whether values are NaN or -0., of which keys do not say in which order they came."""
        bits = self._bits_of(value)
        is_zero = self.fn.emit(f"icmp eq {self.type} {bits}, {self.constant(self._sign)}")
        return self.fn.emit(f"or {self.flags} {is_zero}, {self.is_nan(value)}")

    def is_nan(self, value: str) -> str:
        """Whether values are NaN."""
        return self.fn.emit(f"fcmp uno {self._register} {value}, {value}")

    @property
    def _register(self) -> str:
        return Vec(self.dtype, self.lanes).llvm

    def _turned(self, key: str) -> str:
        return self.fn.emit(f"xor {self.type} {key}, {self.constant(-1)}") if self.descending else key

    def _bits_of(self, value: str) -> str:
        fn = self.fn
        if self.dtype.name != "bf16":
            return fn.emit(f"bitcast {self._register} {value} to {self.type}")
        wide = vector_of("i32", self.lanes)
        bits = fn.emit(f"bitcast {self._register} {value} to {wide}")
        bits = fn.emit(f"lshr {wide} {bits}, {'16' if self.lanes == 1 else 'splat (i32 16)'}")
        return fn.emit(f"trunc {wide} {bits} to {self.type}")
