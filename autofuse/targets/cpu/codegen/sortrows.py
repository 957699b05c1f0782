"""Records of a row put in order by their keys, stably, in LLVM IR: functions of the kernel's module."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.sortloops import DIGIT_BITS, Records
from autofuse.targets.cpu.codegen.values import counted_loop, iota
from autofuse.targets.cpu.llvmtext import FunctionText, vector_of

DIGITS = 1 << DIGIT_BITS


@dataclass(frozen=True, slots=True)
class Arrays:
    """Pointers to records."""

    keys: str
    beside: str
    """What goes along, where it has an array of its own; else any pointer."""


@dataclass(frozen=True, slots=True)
class RowSort:
    """Writes the code that sorts `n` records, a number that is known."""

    fn: FunctionText
    records: Records
    n: int

    @property
    def _key(self) -> str:
        return f"i{self.records.width}"

    def _at(self, base: str, at: str, bits: int) -> str:
        return self.fn.emit(f"getelementptr inbounds i{bits}, ptr {base}, i64 {at}")

    def _moved(self, source: Arrays, at: str, target: Arrays, to: str) -> None:
        """Copy a record."""
        fn = self.fn
        key = fn.emit(f"load {self._key}, ptr {self._at(source.keys, at, self.records.width)}")
        fn.line(f"store {self._key} {key}, ptr {self._at(target.keys, to, self.records.width)}")
        if self.records.beside:
            along = fn.emit(f"load i64, ptr {self._at(source.beside, at, 64)}")
            fn.line(f"store i64 {along}, ptr {self._at(target.beside, to, 64)}")

    # ---- by rank -------------------------------------------------------------------------------------------------

    def ranked(self, source: Arrays, target: Arrays, ranks: str, lanes: int) -> None:
        """From `source` to `target`. `ranks`: memory for as many integers as wide as keys are, and a vector."""
        fn, width = self.fn, self.records.width
        vector = vector_of(self._key, lanes)
        with counted_loop(fn, "0", str(-(-self.n // lanes) * lanes), lanes, nonempty=True) as first:
            own = self._keys(source, first, lanes)
            end = fn.emit(f"add nuw nsw i64 {first}, {lanes}")
            end = fn.intrinsic("llvm.smin.i64", "i64", [("i64", end), ("i64", str(self.n))])
            count = fn.alloca(vector)
            fn.line(f"store {vector} zeroinitializer, ptr {count}")
            self._compared(source, (own, lanes), ("0", first), "ule", count)
            self._within(source, own, lanes, (first, end), count)
            self._compared(source, (own, lanes), (end, str(self.n)), "ult", count)
            found = fn.emit(f"load {vector}, ptr {count}")
            fn.line(f"store {vector} {found}, ptr {self._at(ranks, first, width)}, align {width // 8}")
        with counted_loop(fn, "0", str(self.n), 1, nonempty=True) as at:
            rank = fn.emit(f"load {self._key}, ptr {self._at(ranks, at, width)}")
            to = rank if width == 64 else fn.emit(f"zext {self._key} {rank} to i64")
            self._moved(source, at, target, to)

    def _keys(self, source: Arrays, first: str, lanes: int) -> str:
        """The keys of records that follow each other."""
        fn, width = self.fn, self.records.width
        type_ = vector_of(self._key, lanes)
        keys = fn.emit(f"load {type_}, ptr {self._at(source.keys, first, width)}, align {width // 8}")
        if self.records.shift:
            shift = str(self.records.shift) if lanes == 1 else f"splat ({self._key} {self.records.shift})"
            keys = fn.emit(f"lshr {type_} {keys}, {shift}")
        return keys

    def _spread(self, source: Arrays, at: str, lanes: int) -> str:
        """The key of one record in all lanes."""
        fn, type_ = self.fn, vector_of(self._key, lanes)
        key = self._keys(source, at, 1)
        if lanes == 1:
            return key
        one = fn.emit(f"insertelement {type_} poison, {self._key} {key}, i32 0")
        return fn.emit(f"shufflevector {type_} {one}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def _counted(self, test: str, lanes: int, count: str) -> None:
        fn, type_ = self.fn, vector_of(self._key, lanes)
        more = fn.emit(f"zext {vector_of('i1', lanes)} {test} to {type_}")
        total = fn.emit(f"load {type_}, ptr {count}")
        total = fn.emit(f"add {type_} {total}, {more}")
        fn.line(f"store {type_} {total}, ptr {count}")

    def _compared(self, source: Arrays, own: tuple[str, int], limits: tuple[str, str], order: str, count: str) -> None:
        """Count the records within `limits` that come before those of `own`."""
        fn, (keys, lanes) = self.fn, own
        type_ = vector_of(self._key, lanes)
        with counted_loop(fn, *limits, 1, nonempty=False) as at:
            other = self._spread(source, at, lanes)
            self._counted(fn.emit(f"icmp {order} {type_} {other}, {keys}"), lanes, count)

    def _within(self, source: Arrays, own: str, lanes: int, limits: tuple[str, str], count: str) -> None:
        """The same for the records of `own` among themselves: equal ones stay in order."""
        fn, (first, end) = self.fn, limits
        type_, flags = vector_of(self._key, lanes), vector_of("i1", lanes)
        with counted_loop(fn, first, end, 1, nonempty=True) as at:
            other = self._spread(source, at, lanes)
            less = fn.emit(f"icmp ult {type_} {other}, {own}")
            if lanes > 1:
                number = fn.emit(f"trunc i64 {fn.emit(f'sub nuw nsw i64 {at}, {first}')} to i8")
                one = fn.emit(f"insertelement <{lanes} x i8> poison, i8 {number}, i32 0")
                spread = f"<{lanes} x i8> {one}, <{lanes} x i8> poison, <{lanes} x i32> zeroinitializer"
                later = fn.emit(f"icmp ugt <{lanes} x i8> {iota(lanes, 8)}, {fn.emit(f'shufflevector {spread}')}")
                equal = fn.emit(f"icmp eq {type_} {other}, {own}")
                less = fn.emit(f"or {flags} {less}, {fn.emit(f'and {flags} {equal}, {later}')}")
            self._counted(less, lanes, count)

    # ---- by radix ------------------------------------------------------------------------------------------------

    def radix(self, first: Arrays, second: Arrays, counts: str) -> Arrays:
        """From `first`, by turns in both; where they lie then. `counts`: memory for `DIGITS` i64 of each digit."""
        fn, digits = self.fn, self.records.digits
        nbytes = digits * DIGITS * 8
        zeroed = [("ptr", counts), ("i8", "0"), ("i64", str(nbytes)), ("i1", "false")]
        fn.intrinsic("llvm.memset.p0.i64", "void", zeroed)
        with counted_loop(fn, "0", str(self.n), 1, nonempty=True) as at:
            key = fn.emit(f"load {self._key}, ptr {self._at(first.keys, at, self.records.width)}")
            for digit in range(digits):
                slot = self._slot(key, digit, counts)
                before = fn.emit(f"load i64, ptr {slot}")
                fn.line(f"store i64 {fn.emit(f'add i64 {before}, 1')}, ptr {slot}")
        for digit in range(digits):
            first, second = self._pass(first, second, digit, counts)
        return first

    def _slot(self, key: str, digit: int, counts: str) -> str:
        """Where a digit of a key is counted."""
        fn, shift = self.fn, self.records.shift + DIGIT_BITS * digit
        moved = fn.emit(f"lshr {self._key} {key}, {shift}") if shift else key
        low = fn.emit(f"and {self._key} {moved}, {DIGITS - 1}") if self.records.width > DIGIT_BITS else moved
        wide = low if self.records.width == 64 else fn.emit(f"zext {self._key} {low} to i64")
        return self._at(counts, fn.emit(f"add nuw nsw i64 {wide}, {digit * DIGITS}") if digit else wide, 64)

    def _pass(self, source: Arrays, target: Arrays, digit: int, counts: str) -> tuple[Arrays, Arrays]:
        """One pass, unless all records have the same digit; (where they lie then, the other arrays)."""
        fn, n = self.fn, self.n
        move, done, before = fn.label("move"), fn.label("sorted"), fn.current
        key = fn.emit(f"load {self._key}, ptr {source.keys}")
        most = fn.emit(f"load i64, ptr {self._slot(key, digit, counts)}")
        fn.branch_if(fn.emit(f"icmp eq i64 {most}, {n}"), done, move)
        fn.block(move)
        total = fn.alloca("i64")
        fn.line(f"store i64 0, ptr {total}")
        with counted_loop(fn, str(digit * DIGITS), str((digit + 1) * DIGITS), 1, nonempty=True) as bucket:
            slot, begin = self._at(counts, bucket, 64), fn.emit(f"load i64, ptr {total}")
            size = fn.emit(f"load i64, ptr {slot}")
            fn.line(f"store i64 {begin}, ptr {slot}")
            fn.line(f"store i64 {fn.emit(f'add nuw nsw i64 {begin}, {size}')}, ptr {total}")
        with counted_loop(fn, "0", str(n), 1, nonempty=True) as at:
            key = fn.emit(f"load {self._key}, ptr {self._at(source.keys, at, self.records.width)}")
            slot = self._slot(key, digit, counts)
            to = fn.emit(f"load i64, ptr {slot}")
            fn.line(f"store i64 {fn.emit(f'add nuw nsw i64 {to}, 1')}, ptr {slot}")
            fn.line(f"store {self._key} {key}, ptr {self._at(target.keys, to, self.records.width)}")
            if self.records.beside:
                along = fn.emit(f"load i64, ptr {self._at(source.beside, at, 64)}")
                fn.line(f"store i64 {along}, ptr {self._at(target.beside, to, 64)}")
        moved = fn.current
        fn.branch(done)
        fn.block(done)

        def chosen(stayed: str, went: str) -> str:
            return fn.phi("ptr", [(stayed, before), (went, moved)])

        here = Arrays(chosen(source.keys, target.keys), chosen(source.beside, target.beside))
        there = Arrays(chosen(target.keys, source.keys), chosen(target.beside, source.beside))
        return here, there
