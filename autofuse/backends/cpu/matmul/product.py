"""A matrix product as loops over register tiles.

    for each tile of columns:
      for each block of the depth:
        copy the block of the right operand under the tile to contiguous memory, if that pays
        for each tile of rows: run the register tile, adding to the result from the second block on

The block of the right operand stays in the first-level cache while the rows pass by, from the second-level cache. The
loops around (which rows and columns one worker does, and what happens to the result while it is in cache) are the
phase's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autofuse.backends.cpu.codegen.values import counted_loop
from autofuse.backends.cpu.matmul.copying import Side, clear_rows, copy_rows, copy_transposed
from autofuse.backends.cpu.matmul.microkernel import RegisterTile, define
from autofuse.backends.cpu.matmul.tiling import Tiles, Tiling
from autofuse.backends.cpu.text import FunctionText, ModuleText, Vec
from autofuse.ir.dtypes import DType
from autofuse.lower.tile import Dot

TileOf = Callable[[int], RegisterTile]
"""The register tile of a run of columns, by its number of rows."""

_LINE = 64
_PARAMETERS = [
    ("ptr noalias readonly captures(none)", "a"),
    ("ptr noalias readonly captures(none)", "b"),
    ("ptr noalias captures(none)", "c"),
    ("ptr noalias captures(none)", "work"),
]


@dataclass(frozen=True, slots=True)
class _Work:
    """Byte offsets of what a product keeps in its work memory."""

    left: int
    right: int
    out: int
    end: int


def work_bytes(dot: Dot, tiling: Tiling) -> int:
    """Memory that the product needs beside its operands, 64-byte aligned."""
    return _work(dot, tiling).end


def _work(dot: Dot, tiling: Tiling) -> _Work:
    size = tiling.wide.itemsize
    rows, length = (dot.rows, dot.depth) if dot.lhs.column_stride == 1 else (dot.depth, dot.rows)
    left = _aligned(rows * _left_pitch(length, tiling) * size) if tiling.copy_left else 0
    width = tiling.vectors * tiling.lanes
    right = _aligned(min(tiling.depth_block, dot.depth) * width * size) if tiling.pack_right else 0
    out = _aligned(dot.rows * dot.columns * size) if tiling.narrow_out else 0
    return _Work(0, left, left + right, left + right + out)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _left_pitch(length: int, tiling: Tiling) -> int:
    """Elements per copied row: whole vectors, and no power of two."""
    vectors = -(-length // tiling.lanes)
    return (vectors + 1 - vectors % 2) * tiling.lanes


def define_product(module: ModuleText, dot: Dot, rows: int, left: DType, right: DType, tiling: Tiling) -> str:
    """The function `void (ptr a, ptr b, ptr c, ptr work)` for the first `rows` rows; returns "@name"."""
    strides = (dot.lhs.row_stride, dot.lhs.column_stride, dot.rhs.row_stride, dot.rhs.column_stride, dot.out.row_stride)
    shape = f"{rows}x{dot.columns}x{dot.depth}.{'.'.join(map(str, strides))}"
    name = f"product.{left.name}.{right.name}.{dot.dtype.name}.{shape}"
    if not module.defines(name):
        fn = module.function(name, "void", _PARAMETERS, linkage="internal", attributes="noinline")
        _Writer(fn, dot, rows, left, right, tiling, _work(dot, tiling)).write()
        fn.ret()
    return f"@{name}"


@dataclass(frozen=True, slots=True)
class _Writer:
    fn: FunctionText
    dot: Dot
    rows: int
    left: DType
    right: DType
    tiling: Tiling
    work: _Work

    def write(self) -> None:
        """Everything up to the return."""
        if self.dot.depth == 0:
            clear_rows(self.fn, Side("%c", self.dot.out.row_stride, self.dot.dtype), self.rows, self.dot.columns)
            return
        a, a_row, a_depth = self._left()
        c, c_row = ("%c", self.dot.out.row_stride)
        if self.tiling.narrow_out:
            c, c_row = self._bytes("%work", self.work.out), self.dot.columns
        runs = [(run, self._tile(run, (a_row, a_depth, c_row))) for run in self.tiling.column_runs(self.dot.columns)]
        depths = self.tiling.depth_runs(self.dot.depth)
        if self.tiling.depth_outside:
            for depth in depths:
                self._each(depth, lambda k, depth=depth: self._columns(k, depth, runs, (a, c)))
        else:
            for columns, tile in runs:
                self._each(columns, lambda j, c_=columns, t=tile: self._depths(j, c_, t, depths, (a, c)))
        if self.tiling.narrow_out:
            wide = Side(c, c_row, self.tiling.wide)
            narrow = Side("%c", self.dot.out.row_stride, self.dot.dtype)
            copy_rows(self.fn, wide, narrow, self.rows, self.dot.columns, self.tiling.lanes)

    def _left(self) -> tuple[str, int, int]:
        """(address, row stride, depth stride) of the left operand, copied first if so decided."""
        lhs, tiling = self.dot.lhs, self.tiling
        if not tiling.copy_left:
            return "%a", lhs.row_stride, lhs.column_stride
        copy = self._bytes("%work", self.work.left)
        along = lhs.column_stride == 1
        rows, length = (self.rows, self.dot.depth) if along else (self.dot.depth, self.rows)
        pitch = _left_pitch(self.dot.depth if along else self.dot.rows, tiling)
        source = Side("%a", lhs.row_stride if along else lhs.column_stride, self.left)
        copy_rows(self.fn, source, Side(copy, pitch, tiling.wide), rows, length, tiling.lanes)
        return (copy, pitch, 1) if along else (copy, 1, pitch)

    def _tile(self, columns: Tiles, strides: tuple[int, int, int]) -> TileOf:
        """The register tile of a run of columns, by its number of rows."""
        tiling, dot = self.tiling, self.dot
        a_row, a_depth, c_row = strides
        ragged = columns.size % tiling.lanes != 0
        vectors = -(-columns.size // tiling.lanes)
        b_depth = vectors * tiling.lanes if tiling.pack_right else dot.rhs.row_stride

        def of(rows: int) -> RegisterTile:
            return RegisterTile(
                dtype=tiling.wide,
                rows=rows,
                vectors=vectors,
                lanes=tiling.lanes,
                a_row=a_row,
                a_depth=a_depth,
                b_depth=b_depth,
                b_ragged=ragged and not tiling.pack_right,
                c_row=c_row,
                c_ragged=ragged,
                fetch_bytes=dot.rhs.row_stride * self.right.itemsize if tiling.fetch else 0,
            )

        return of

    def _columns(self, k: str, depth: Tiles, runs: Sequence[tuple[Tiles, TileOf]], bases: tuple[str, str]) -> None:
        for columns, tile in runs:
            self._each(columns, lambda j, c=columns, t=tile: self._block((j, k), c, depth, t, bases))

    def _depths(self, j: str, columns: Tiles, tile: TileOf, depths: Sequence[Tiles], bases: tuple[str, str]) -> None:
        for depth in depths:
            self._each(depth, lambda k, d=depth: self._block((j, k), columns, d, tile, bases))

    def _block(
        self,
        at: tuple[str, str],
        columns: Tiles,
        depths: Tiles,
        tile: TileOf,
        bases: tuple[str, str],
    ) -> None:
        """All rows of one tile of columns, for one block of the depth."""
        fn, tiling = self.fn, self.tiling
        (j, k), (a, c) = at, bases
        source = self._element("%b", self.right, self._right_offset(k, j))
        block = self._pack(source, columns, depths) if tiling.pack_right else source
        ahead = self._ahead(at, columns, depths, source)
        more = fn.emit(f"icmp ne i64 {k}, 0")
        first = tile(1)
        shifted = self._element(a, tiling.wide, fn.emit(f"mul nuw nsw i64 {k}, {first.a_depth}"))
        number = 0
        for run in tiling.row_runs(self.rows):
            kernel = tile(run.size)
            callee = define(fn.module, kernel)

            def one(
                i: str, run: Tiles = run, kernel: RegisterTile = kernel, callee: str = callee, n: int = number
            ) -> None:
                left = self._element(shifted, tiling.wide, fn.emit(f"mul nuw nsw i64 {i}, {kernel.a_row}"))
                start = fn.emit(f"add nuw nsw i64 {fn.emit(f'mul nuw nsw i64 {i}, {kernel.c_row}')}, {j}")
                out = self._element(c, tiling.wide, start)
                fetched = self._line(ahead, i, run, n, columns)
                values = [left, block, out, str(depths.size), more, str(columns.size), fetched]
                types = ["ptr", "ptr", "ptr", "i64", "i1", "i64", "ptr"]
                fn.call("void", callee, list(zip(types, values, strict=True)))

            self._each(run, one)
            number += run.count

    def _line(self, ahead: str, i: str, run: Tiles, number: int, columns: Tiles) -> str:
        """What the tile of rows at `i` prefetches: each tile another line of the rows ahead."""
        if not self.tiling.fetch:
            return ahead
        fn, last = self.fn, -(-columns.size * self.right.itemsize // _LINE) - 1
        if run.count == 1:
            return self._bytes(ahead, min(number, last) * _LINE)
        tile = fn.emit(f"udiv i64 {fn.emit(f'sub nuw nsw i64 {i}, {run.begin}')}, {run.size}")
        tile = fn.emit(f"add nuw nsw i64 {tile}, {number}")
        tile = fn.intrinsic("llvm.umin.i64", "i64", [("i64", tile), ("i64", str(last))])
        return fn.emit(f"getelementptr i8, ptr {ahead}, i64 {fn.emit(f'mul nuw nsw i64 {tile}, {_LINE}')}")

    def _ahead(self, at: tuple[str, str], columns: Tiles, depths: Tiles, source: str) -> str:
        """What to prefetch: the rows that follow soon, or the block that comes next."""
        fn, dot = self.fn, self.dot
        if not self.tiling.fetch:
            return source
        j, k = at
        next_k = fn.emit(f"add nuw nsw i64 {k}, {depths.size}")
        last = fn.emit(f"icmp sge i64 {next_k}, {dot.depth}")
        next_j = fn.emit(f"add nuw nsw i64 {j}, {columns.size}")
        k_then = fn.emit(f"select i1 {last}, i64 0, i64 {next_k}")
        j_then = fn.emit(f"select i1 {last}, i64 {next_j}, i64 {j}")
        offset = self._right_offset(k_then, j_then)
        return fn.emit(f"getelementptr {Vec(self.right, 1).memory_element}, ptr %b, i64 {offset}")

    def _pack(self, source: str, columns: Tiles, depths: Tiles) -> str:
        """The block in contiguous memory, whole vectors wide."""
        fn, tiling, rhs = self.fn, self.tiling, self.dot.rhs
        width = -(-columns.size // tiling.lanes) * tiling.lanes
        target = Side(self._bytes("%work", self.work.right), width, tiling.wide)
        if rhs.column_stride == 1:
            copy_rows(fn, Side(source, rhs.row_stride, self.right), target, depths.size, columns.size, tiling.lanes)
        else:
            along = Side(source, rhs.column_stride, self.right)
            copy_transposed(fn, along, target, width, depths.size, tiling.lanes, columns.size)
        return target.base

    def _right_offset(self, k: str, j: str) -> str:
        row = self.fn.emit(f"mul nuw nsw i64 {k}, {self.dot.rhs.row_stride}")
        column = self.fn.emit(f"mul nuw nsw i64 {j}, {self.dot.rhs.column_stride}")
        return self.fn.emit(f"add nuw nsw i64 {row}, {column}")

    def _each(self, run: Tiles, inside: Callable[[str], None]) -> None:
        """`inside` at the start of every tile of a run."""
        if run.count == 1:
            inside(str(run.begin))
            return
        with counted_loop(
            self.fn, str(run.begin), str(run.end), run.size, nonempty=True, as_written=True, hint="tile"
        ) as start:
            inside(start)

    def _element(self, base: str, dtype: DType, offset: str) -> str:
        return self.fn.emit(f"getelementptr inbounds {Vec(dtype, 1).memory_element}, ptr {base}, i64 {offset}")

    def _bytes(self, base: str, offset: int) -> str:
        return base if offset == 0 else self.fn.emit(f"getelementptr i8, ptr {base}, i64 {offset}")
