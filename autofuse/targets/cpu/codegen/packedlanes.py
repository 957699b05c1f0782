"""Elements of a block that are chosen one by one: which they are, side by side, and what memory holds of them.

The places of chosen elements are written one behind the other, a vector of them at a time. All of what a vector may
write is written: what lies behind the last place is overwritten by the next ones, or is place 0 in the end. So lanes
for which there is no element have one of the block, and need no mask.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.values import Value, counted_loop, iota, splat_integer
from autofuse.targets.cpu.llvmtext import FunctionText, Vec, mangled
from autofuse.targets.cpu.scalars import emit_load_conversion, emit_store_conversion

_TABLE = "af_places_of_bits"


@dataclass(frozen=True, slots=True)
class Kept:
    """A value of all elements of a block, on the stack."""

    dtype: DType
    lanes: int
    cell: str
    """Address of the first element."""

    @staticmethod
    def made(fn: FunctionText, dtype: DType, lanes: int, points: int) -> Kept:
        """Room for `points` elements."""
        return Kept(dtype, lanes, fn.alloca(Vec(dtype, 1).memory_element, points))

    @property
    def _vec(self) -> Vec:
        return Vec(self.dtype, self.lanes)

    def _address(self, fn: FunctionText, place: str, addend: int) -> str:
        element = self._vec.memory_element
        first = fn.emit(f"getelementptr inbounds {element}, ptr {self.cell}, i64 {place}")
        return fn.emit(f"getelementptr inbounds {element}, ptr {first}, i64 {addend}") if addend else first

    def load(self, fn: FunctionText, place: str, addend: int) -> Value:
        """The vector from element `place + addend` on."""
        loaded = fn.emit(f"load {self._vec.memory}, ptr {self._address(fn, place, addend)}, align {self._align}")
        return Value(emit_load_conversion(fn, loaded, self.dtype, self.lanes), self.dtype, varying=True)

    def store(self, fn: FunctionText, place: str, addend: int, value: str) -> None:
        """Set the vector from element `place + addend` on; `value` as it is in registers."""
        stored = emit_store_conversion(fn, value, self.dtype, self.lanes)
        fn.line(f"store {self._vec.memory} {stored}, ptr {self._address(fn, place, addend)}, align {self._align}")

    @property
    def _align(self) -> int:
        return min(64, self.dtype.itemsize * self.lanes)

    def gather(self, fn: FunctionText, places: str) -> Value:
        """The elements at `places`, an `<n x i32>` operand."""
        memory, pointers, flags = self._vec.memory, f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        loaded = fn.intrinsic(
            f"llvm.masked.gather.{mangled(self._vec.memory_element, self.lanes)}.v{self.lanes}p0",
            memory,
            [
                (pointers, f"align {self.dtype.itemsize} {self._addresses(fn, places)}"),
                (flags, "splat (i1 true)"),
                (memory, "poison"),
            ],
        )
        return Value(emit_load_conversion(fn, loaded, self.dtype, self.lanes), self.dtype, varying=True)

    def scatter(self, fn: FunctionText, places: str, value: str) -> None:
        """Set the elements at `places`. Elements with equal places must be equal."""
        memory, pointers, flags = self._vec.memory, f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        stored = emit_store_conversion(fn, value, self.dtype, self.lanes)
        fn.intrinsic(
            f"llvm.masked.scatter.{mangled(self._vec.memory_element, self.lanes)}.v{self.lanes}p0",
            "void",
            [
                (memory, stored),
                (pointers, f"align {self.dtype.itemsize} {self._addresses(fn, places)}"),
                (flags, "splat (i1 true)"),
            ],
        )

    def _addresses(self, fn: FunctionText, places: str) -> str:
        element = self._vec.memory_element
        return fn.emit(f"getelementptr inbounds {element}, ptr {self.cell}, <{self.lanes} x i32> {places}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which elements of a block are chosen: of each vector as bits, and the places of all one behind the other."""

    lanes: int
    bits: str
    """Address of the bits of the first vector."""
    places: str
    """Address of the first place, an i32."""
    count: str
    """Address of how many there are so far, an i64."""

    @staticmethod
    def made(fn: FunctionText, lanes: int, vectors: int) -> Chosen:
        """Room for those of `vectors` vectors."""
        bits = fn.alloca(_bits_type(lanes), vectors)
        return Chosen(lanes, bits, fn.alloca("i32", lanes * vectors + max(lanes, 16)), fn.alloca("i64"))

    def clear(self, fn: FunctionText) -> None:
        """None is chosen."""
        fn.line(f"store i64 0, ptr {self.count}")

    def add(self, fn: FunctionText, flags: str, place: str, addend: int) -> None:
        """Those of the vector at element `place + addend` for which an `<n x i1>` operand holds."""
        lanes, kind = self.lanes, _bits_type(self.lanes)
        bits = fn.emit(f"bitcast <{lanes} x i1> {flags} to i{lanes}")
        if lanes < 8:
            bits = fn.emit(f"zext i{lanes} {bits} to {kind}")
        fn.line(f"store {kind} {bits}, ptr {self._bits_of(fn, place, addend)}")
        size = 16 if lanes >= 16 and fn.module.has("avx512f") else 8
        count = self.found(fn)
        for first in range(0, max(lanes, 8), size):
            part = fn.emit(f"lshr {kind} {bits}, {first}") if first else bits
            if size < max(lanes, 8):
                part = fn.emit(f"trunc {kind} {part} to i{size}")
            at = fn.emit(f"getelementptr inbounds i32, ptr {self.places}, i64 {count}")
            found = _packed(fn, part, size)
            base = fn.emit(f"trunc i64 {place} to i32") if place.startswith("%") else place
            base = fn.emit(f"add i32 {base}, {addend + first}")
            found = fn.emit(f"add <{size} x i32> {found}, {splat_integer(fn, base, 32, size)}")
            fn.line(f"store <{size} x i32> {found}, ptr {at}, align 4")
            wide = fn.emit(f"zext i{size} {part} to i64")
            count = fn.emit(f"add i64 {count}, {fn.intrinsic('llvm.ctpop.i64', 'i64', [('i64', wide)])}")
        fn.line(f"store i64 {count}, ptr {self.count}")

    def flags(self, fn: FunctionText, place: str, addend: int) -> str:
        """Which elements of the vector at element `place + addend` are chosen: an `<n x i1>` operand."""
        lanes = self.lanes
        bits = fn.emit(f"load {_bits_type(lanes)}, ptr {self._bits_of(fn, place, addend)}")
        if lanes < 8:
            bits = fn.emit(f"trunc i8 {bits} to i{lanes}")
        return fn.emit(f"bitcast i{lanes} {bits} to <{lanes} x i1>")

    def found(self, fn: FunctionText) -> str:
        """How many there are: an i64 operand."""
        return fn.emit(f"load i64, ptr {self.count}")

    def each(self, fn: FunctionText, inside: Callable[[str], None]) -> None:
        """Run `inside(places)` for a vector of chosen elements at a time; the last one may have others of the block."""
        lanes, count = self.lanes, self.found(fn)
        behind = fn.emit(f"getelementptr inbounds i32, ptr {self.places}, i64 {count}")
        fn.line(f"store <{lanes} x i32> zeroinitializer, ptr {behind}, align 4")
        with counted_loop(fn, "0", count, lanes, nonempty=False, as_written=True, hint="chosen") as first:
            at = fn.emit(f"getelementptr inbounds i32, ptr {self.places}, i64 {first}")
            inside(fn.emit(f"load <{lanes} x i32>, ptr {at}, align 4"))

    def _bits_of(self, fn: FunctionText, place: str, addend: int) -> str:
        element = fn.emit(f"add i64 {place}, {addend}") if addend else place
        number = fn.emit(f"lshr i64 {element}, {self.lanes.bit_length() - 1}")
        return fn.emit(f"getelementptr inbounds {_bits_type(self.lanes)}, ptr {self.bits}, i64 {number}")


def _bits_type(lanes: int) -> str:
    return f"i{max(lanes, 8)}"


def _packed(fn: FunctionText, bits: str, size: int) -> str:
    """The numbers of the bits that are set, in order, in the first lanes of an `<size x i32>`."""
    vector = f"<{size} x i32>"
    if fn.module.has("avx512f") and (size == 16 or fn.module.has("avx512vl")):
        mask = fn.emit(f"bitcast i{size} {bits} to <{size} x i1>")
        return fn.intrinsic(
            f"llvm.experimental.vector.compress.v{size}i32",
            vector,
            [(vector, iota(size, 32)), (f"<{size} x i1>", mask), (vector, "poison")],
        )
    rows = [sum(lane << 8 * at for at, lane in enumerate(_set(row))) for row in range(256)]
    table = fn.module.table(_TABLE, "i64", list(map(str, rows)))
    number = fn.emit(f"zext i8 {bits} to i64")
    row = fn.emit(f"load <8 x i8>, ptr {fn.emit(f'getelementptr inbounds i64, ptr {table}, i64 {number}')}, align 8")
    return fn.emit(f"zext <8 x i8> {row} to {vector}")


def _set(bits: int) -> list[int]:
    return [lane for lane in range(8) if bits >> lane & 1]
