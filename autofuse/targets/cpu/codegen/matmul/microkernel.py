"""The register tile of a matrix product: a few rows by a few vectors of columns, summed over the depth.

One function per tile shape. Its accumulators stay in registers for a block of the depth; per step of the depth it loads
the vectors of a row of the right operand once and multiplies them by one element of each row of the left operand, which
the FMA instruction broadcasts from memory. A block is summed in order, by fused multiply-add, and added to what earlier
blocks gave. Blocks depend on the depth alone (`autofuse.lower.summing`), so the result does not depend on how a product
is cut into tiles, nor on the vector width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from autofuse.ir.dtypes import BOOL, DType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.masking import masked_load, masked_store
from autofuse.targets.cpu.codegen.metadata import AS_WRITTEN
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, Vec, mangled
from autofuse.targets.cpu.native.engine import FINISHED
from autofuse.targets.cpu.scalars import emit_combine, emit_constant, emit_splat, emit_tail_mask

_LINE = 64


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """What one function computes: `c[i, j] (+)= sum over k of a[i, k] * b[k, j]`. Strides count elements."""

    dtype: DType
    """Of all three matrices as they lie in memory here: a float of at least 32 bits, an integer, or bool."""
    rows: int
    vectors: int
    """Vectors of columns."""
    lanes: int
    a_row: int
    a_depth: int
    b_depth: int
    """Elements from one row of the right operand to the next."""
    b_ragged: bool
    """The right operand ends with the valid columns: its last vectors are loaded under a mask."""
    c_row: int
    c_ragged: bool
    """The result ends with the valid columns: vectors are stored (and loaded) under a mask."""
    unroll: int = 1
    """Steps of the depth in one round of the loop; the depth is a multiple."""
    fetch_next: bool = False
    """Bring the result of the tile below into the cache meanwhile: it lies in lines that no hardware foresees."""
    carried_row: int = 0
    """Elements from one row to the next of the memory that keeps sums of a block between two calls; 0: a call does a
    whole block."""

    @property
    def columns(self) -> int:
        """Columns of a whole tile."""
        return self.vectors * self.lanes

    @property
    def name(self) -> str:
        """A name by content."""
        ragged = ("b" if self.b_ragged else "") + ("c" if self.c_ragged else "")
        strides = f"{self.a_row}.{self.a_depth}.{self.b_depth}.{self.c_row}"
        ragged += "f" if self.fetch_next else ""
        ragged += f"s{self.carried_row}" if self.carried_row else ""
        return f"tile.{self.dtype.name}.{self.rows}x{self.vectors}x{self.lanes}.{strides}.{self.unroll}{ragged}"


PARAMETERS = (
    ("ptr noalias readonly captures(none)", "a"),
    ("ptr noalias readonly captures(none)", "b"),
    ("ptr noalias captures(none)", "c"),
    ("i64", "depth"),
    ("i1", "more"),
    ("i64", "columns"),
)
"""Addresses of the first elements; steps of the depth, at least one; whether the result is added to; valid columns."""
CARRYING = (("ptr noalias captures(none)", "carried"), ("i1", "begun"), ("i1", "ends"))
"""Where the sums of a block are kept, in whole vectors; whether an earlier call began it; whether it ends here."""


def define(module: ModuleText, tile: RegisterTile) -> str:
    """The function of a tile, defined once per module; returns "@name"."""
    if not module.defines(tile.name):
        parameters = (*PARAMETERS, *CARRYING) if tile.carried_row else PARAMETERS
        fn = module.function(tile.name, "void", parameters, linkage="internal", attributes=f"noinline {FINISHED}")
        _Writer(fn, tile).write()
    return f"@{tile.name}"


@dataclass(frozen=True, slots=True)
class _Branch:
    """Values computed under a condition, for phi."""

    values: list[str]
    before: str
    """The block that branches."""
    inside: str
    """The block that has computed them."""


@dataclass(frozen=True, slots=True)
class _Writer:
    fn: FunctionText
    tile: RegisterTile

    @property
    def vec(self) -> Vec:
        return Vec(self.tile.dtype, self.tile.lanes)

    def write(self) -> None:
        """The whole function."""
        fn, tile = self.fn, self.tile
        ragged = tile.b_ragged or tile.c_ragged
        masks = [self._mask(v) for v in range(tile.vectors)] if ragged else [""] * tile.vectors
        first = self._first()
        if tile.fetch_next:
            self._fetch_next()
        before = fn.current
        body, done = fn.label("step"), fn.label("done")
        fn.branch(body)
        fn.block(body)
        names = [fn.fresh("sum") for _ in range(tile.rows * tile.vectors)]
        following = [fn.fresh("sum") for _ in names]
        step, next_step = fn.fresh("k"), fn.fresh("k")
        fn.phi("i64", [("0", before), (next_step, body)], name=step)
        moving = {name: (fn.fresh(name), fn.fresh(name)) for name in "ab"}
        for name, (now, later) in moving.items():
            fn.phi("ptr", [(f"%{name}", before), (later, body)], name=now)
        for name, start, later in zip(names, first, following, strict=True):
            fn.phi(self.vec.llvm, [(start, before), (later, body)], name=name)
        sums = names
        bases = self._here(moving["a"][0]), self._here(moving["b"][0])
        for number in range(tile.unroll):
            last = number + 1 == tile.unroll
            later = following if last else [fn.fresh("sum") for _ in names]
            self._step(bases, number, sums, later, masks)
            sums = later
        for name, stride in (("a", tile.a_depth), ("b", tile.b_depth)):
            now, later = moving[name]
            address = f"getelementptr inbounds {self.vec.memory_element}, ptr {now}, i64 {tile.unroll * stride}"
            fn.emit(address, name=later)
        fn.emit(f"add nuw nsw i64 {step}, {tile.unroll}", name=next_step)
        again = fn.emit(f"icmp ult i64 {next_step}, %depth")
        fn.terminate(f"br i1 {again}, label %{body}, label %{done}, !llvm.loop {AS_WRITTEN}")
        fn.block(done)
        self._results(following, masks)
        fn.ret()

    def _mask(self, vector: int) -> str:
        left = self.fn.emit(f"sub nsw i64 %columns, {vector * self.tile.lanes}")
        return emit_tail_mask(self.fn, left, self.tile.lanes)

    def _step(
        self, bases: tuple[str, str], number: int, sums: Sequence[str], following: Sequence[str], masks: Sequence[str]
    ) -> None:
        """One step of the depth, `number` steps into the round of the loop whose operands begin at `bases`."""
        fn, tile = self.fn, self.tile
        b = [
            self._load(bases[1], number * tile.b_depth + v * tile.lanes, masks[v] if tile.b_ragged else "")
            for v in range(tile.vectors)
        ]
        for i in range(tile.rows):
            address = self._at(bases[0], number * tile.a_depth + i * tile.a_row)
            loaded = fn.emit(f"load {self.vec.memory_element}, ptr {address}, align {tile.dtype.itemsize}")
            if tile.dtype == BOOL:
                loaded = fn.emit(f"trunc i8 {loaded} to i1")
            spread = emit_splat(fn, loaded, tile.dtype, tile.lanes)
            for v in range(tile.vectors):
                at = i * tile.vectors + v
                self._accumulate(following[at], spread, b[v], sums[at])

    def _accumulate(self, name: str, a: str, b: str, total: str) -> None:
        fn, vec = self.fn, self.vec
        if vec.dtype.is_float:
            callee = f"llvm.fma.{mangled(vec.element, vec.lanes)}"
            fn.module.declare(callee, vec.llvm, [vec.llvm] * 3)
            fn.emit(f"call {vec.llvm} @{callee}({vec.llvm} {a}, {vec.llvm} {b}, {vec.llvm} {total})", name=name)
            return
        times, plus = ("and", "or") if vec.dtype == BOOL else ("mul", "add")
        product = fn.emit(f"{times} {vec.llvm} {a}, {b}")
        fn.emit(f"{plus} {vec.llvm} {product}, {total}", name=name)

    def _here(self, pointer: str) -> str:
        """The pointer, hidden from the reduction of loop strength: an eighth of code generation, for nothing."""
        return self.fn.intrinsic("llvm.launder.invariant.group.p0", "ptr", [("ptr", pointer)])

    def _at(self, base: str, offset: int) -> str:
        """The address `offset` elements from `base` on."""
        if offset == 0:
            return base
        return self.fn.emit(f"getelementptr inbounds {self.vec.memory_element}, ptr {base}, i64 {offset}")

    def _load(self, base: str, offset: int, mask: str) -> str:
        fn, vec = self.fn, self.vec
        address = self._at(base, offset)
        if mask and vec.lanes > 1:
            loaded = masked_load(fn, vec, address, mask)
        else:
            loaded = fn.emit(f"load {vec.memory}, ptr {address}, align {vec.dtype.itemsize}")
        if vec.dtype == BOOL:
            return fn.emit(f"trunc {vec.memory} {loaded} to {vec.llvm}")
        return loaded

    def _first(self) -> list[str]:
        """What the sums begin with: zero, or what an earlier call left of this block."""
        fn, tile = self.fn, self.tile
        zero = emit_constant(tile.dtype, 0, tile.lanes)
        numbers = range(tile.rows * tile.vectors)
        if not tile.carried_row:
            return [zero for _ in numbers]
        carried = self._where("%begun", lambda: [self._load("%carried", self._carried(n), "") for n in numbers])
        return [fn.phi(self.vec.llvm, [(zero, carried.before), (value, carried.inside)]) for value in carried.values]

    def _where(self, flag: str, inside: Callable[[], list[str]]) -> _Branch:
        """Values that exist only where `flag` holds; the block after it is the current one."""
        fn = self.fn
        before, then, after = fn.current, fn.label("then"), fn.label("after")
        fn.branch_if(flag, then, after)
        fn.block(then)
        values, end = inside(), fn.current
        fn.branch(after)
        fn.block(after)
        return _Branch(values, before, end)

    def _fetch_next(self) -> None:
        """Prefetch the lines of the result of the tile below, to be written."""
        tile, elements = self.tile, max(_LINE // self.tile.dtype.itemsize, 1)
        write, keep, data = ("i32", "1"), ("i32", "3"), ("i32", "1")
        for row, column in itertools.product(range(tile.rows, 2 * tile.rows), range(0, tile.columns, elements)):
            line = self._at("%c", row * tile.c_row + column)
            self.fn.intrinsic("llvm.prefetch.p0", "void", [("ptr", line), write, keep, data])

    def _results(self, sums: Sequence[str], masks: Sequence[str]) -> None:
        """Add the sums to the result, or keep them for the next call."""
        fn = self.fn
        if not self.tile.carried_row:
            self._added(sums, masks)
            return
        ends, goes_on, done = fn.label("ends"), fn.label("carry"), fn.label("carried")
        fn.branch_if("%ends", ends, goes_on)
        fn.block(goes_on)
        for number, total in enumerate(sums):
            self._store(self._at("%carried", self._carried(number)), total, "")
        fn.branch(done)
        fn.block(ends)
        self._added(sums, masks)
        fn.branch(done)
        fn.block(done)

    def _added(self, sums: Sequence[str], masks: Sequence[str]) -> None:
        fn, tile = self.fn, self.tile

        def added() -> list[str]:
            earlier = [self._load("%c", *self._place(number, masks)) for number in range(len(sums))]
            pairs = zip(earlier, sums, strict=True)
            return [emit_combine(fn, "add", a, b, tile.dtype, tile.lanes) for a, b in pairs]

        more = self._where("%more", added)
        pairs = zip(sums, more.values, strict=True)
        totals = [fn.phi(self.vec.llvm, [(alone, more.before), (both, more.inside)]) for alone, both in pairs]
        for number, total in enumerate(totals):
            offset, mask = self._place(number, masks)
            self._store(self._at("%c", offset), total, mask)

    def _place(self, number: int, masks: Sequence[str]) -> tuple[int, str]:
        """(elements from the start of the result, mask) of a sum's vector."""
        i, v = divmod(number, self.tile.vectors)
        return i * self.tile.c_row + v * self.tile.lanes, masks[v] if self.tile.c_ragged else ""

    def _carried(self, number: int) -> int:
        """Elements from the start of the memory that keeps sums."""
        i, v = divmod(number, self.tile.vectors)
        return i * self.tile.carried_row + v * self.tile.lanes

    def _store(self, address: str, value: str, mask: str) -> None:
        fn, vec = self.fn, self.vec
        if vec.dtype == BOOL:
            value = fn.emit(f"zext {vec.llvm} {value} to {vec.memory}")
        if not mask or vec.lanes == 1:
            fn.line(f"store {vec.memory} {value}, ptr {address}, align {vec.dtype.itemsize}")
            return
        masked_store(fn, vec, value, address, mask)
