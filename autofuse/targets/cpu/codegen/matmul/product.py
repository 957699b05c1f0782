"""A matrix product as loops over register tiles.

    for each block of columns:
      for each block of the depth:
        copy the block of the right operand to contiguous memory, a strip per tile of columns, if that pays
        for each tile of columns, for each tile of rows, for each sum block: run the register tile, adding from the
        second sum block on

or with the two outer loops exchanged, where the left operand's rows would not stay in the second-level cache. Where the
right operand is read once, as it lies, a block of the depth is less than a sum block: its sums wait in memory. The
loops around (which rows and columns one worker does, and what happens to the result while it is in cache) are the
phase's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Dot
from autofuse.targets.cpu.codegen.matmul.copying import Side, clear_rows, copy_row, copy_rows, copy_transposed
from autofuse.targets.cpu.codegen.matmul.microkernel import RegisterTile, define
from autofuse.targets.cpu.codegen.matmul.tiling import Tiles, Tiling
from autofuse.targets.cpu.codegen.values import counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, Vec

_UNROLLS = (4, 3, 2, 1)
"""Steps of the depth in one round of a register tile's loop: counting takes the ports that multiply."""
_RARE = 24
"""A tile that does less than this part of the rows is not unrolled."""
_FETCHED_DEPTH = 64
"""Steps of the depth from which on there is time to bring in the result of the tile that follows."""
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
    carried: int
    end: int


def work_bytes(dot: Dot, tiling: Tiling) -> int:
    """Memory that the product needs beside its operands, 64-byte aligned."""
    return _work(dot, tiling).end


def _work(dot: Dot, tiling: Tiling) -> _Work:
    size = tiling.wide.itemsize
    depth = min(tiling.depth_block, dot.depth)
    along, across = dot.rows, (depth if tiling.depth_outside else dot.depth)
    if dot.lhs.column_stride != 1:
        along, across = across, along
    left = _aligned(along * _pitch(across, tiling) * size) if tiling.copy_left else 0
    columns = _whole(min(tiling.column_block, dot.columns), tiling)
    right = _aligned(depth * columns * size) if tiling.pack_right else 0
    out = _aligned(dot.rows * dot.columns * size) if tiling.narrow_out else 0
    carried = _aligned(dot.rows * _whole(dot.columns, tiling) * size) if tiling.carries else 0
    return _Work(0, left, left + right, left + right + out, left + right + out + carried)


def _whole(columns: int, tiling: Tiling) -> int:
    """The columns of whole vectors."""
    return -(-columns // tiling.lanes) * tiling.lanes


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _pitch(length: int, tiling: Tiling) -> int:
    """Elements from one copied row to the next: an odd number of vectors, so that rows lie in different cache sets."""
    vectors = -(-length // tiling.lanes)
    return (vectors + 1 - vectors % 2) * tiling.lanes


def define_product(module: ModuleText, dot: Dot, rows: int, left: DType, right: DType, tiling: Tiling) -> str:
    """The function `void (ptr a, ptr b, ptr c, ptr work)` for the first `rows` rows; returns "@name"."""
    strides = (dot.lhs.row_stride, dot.lhs.column_stride, dot.rhs.row_stride, dot.rhs.column_stride, dot.out.row_stride)
    # the whole row block's rows decide the tiling and the work memory
    shape = f"{rows}of{dot.rows}x{dot.columns}x{dot.depth}.{'.'.join(map(str, strides))}"
    kind = "sum" if dot.accumulate else "product"
    name = f"{kind}.{left.name}.{right.name}.{dot.dtype.name}.{shape}"
    if not module.defines(name):
        fn = module.function(name, "void", _PARAMETERS, linkage="internal", attributes="noinline")
        _Writer(fn, dot, rows, left, right, tiling, _work(dot, tiling)).write()
        fn.ret()
    return f"@{name}"


@dataclass(frozen=True, slots=True)
class _Left:
    """The left operand as the tiles read it, from the current block of the depth on."""

    address: str
    row: int
    depth: int


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
        fn, dot, tiling = self.fn, self.dot, self.tiling
        if dot.depth == 0 and dot.accumulate:
            return
        if dot.depth == 0:
            clear_rows(fn, Side("%c", dot.out.row_stride, dot.dtype), self.rows, dot.columns)
            return
        out = Side("%c", dot.out.row_stride, dot.dtype)
        if tiling.narrow_out:
            out = Side(self._bytes("%work", self.work.out), dot.columns, tiling.wide)
        if tiling.depth_outside:
            self._each(tiling.depth_runs(dot.depth), lambda k, depth: self._all_columns(k, depth, out))
        else:
            left = self._left("0", dot.depth)
            self._each(tiling.blocks(dot.columns), lambda j, columns: self._all_depths(j, columns, left, out))
        if tiling.narrow_out:
            target = Side("%c", dot.out.row_stride, dot.dtype)
            copy_rows(fn, out, target, self.rows, dot.columns, tiling.lanes)

    def _all_columns(self, k: str, depth: int, out: Side) -> None:
        """A block of the depth for all columns."""
        left = self._left(k, depth)
        blocks = self.tiling.blocks(self.dot.columns)
        self._each(blocks, lambda j, columns: self._block((j, k), (columns, depth), left, out))

    def _all_depths(self, j: str, columns: int, left: _Left, out: Side) -> None:
        """A block of columns for the whole depth."""

        def block(k: str, depth: int) -> None:
            offset = self.fn.emit(f"mul nuw nsw i64 {k}, {left.depth}")
            here = _Left(self._element(left.address, self._left_type, offset), left.row, left.depth)
            self._block((j, k), (columns, depth), here, out)

        self._each(self.tiling.depth_runs(self.dot.depth), block)

    @property
    def _left_type(self) -> DType:
        return self.tiling.wide if self.tiling.copy_left else self.left

    def _left(self, k: str, depth: int) -> _Left:
        """The left operand for `depth` steps from `k` on, copied if so decided."""
        fn, lhs, tiling = self.fn, self.dot.lhs, self.tiling
        start = fn.emit(f"mul nuw nsw i64 {k}, {lhs.column_stride}")
        source = self._element("%a", self.left, start)
        if not tiling.copy_left:
            return _Left(source, lhs.row_stride, lhs.column_stride)
        copy = self._bytes("%work", self.work.left)
        if lhs.column_stride == 1:
            most = min(tiling.depth_block, self.dot.depth) if tiling.depth_outside else self.dot.depth
            pitch = _pitch(most, tiling)
            target = Side(copy, pitch, tiling.wide)
            copy_rows(fn, Side(source, lhs.row_stride, self.left), target, self.rows, depth, tiling.lanes)
            return _Left(copy, pitch, 1)
        pitch = _pitch(self.dot.rows, tiling)
        target = Side(copy, pitch, tiling.wide)
        copy_rows(fn, Side(source, lhs.column_stride, self.left), target, depth, self.rows, tiling.lanes)
        return _Left(copy, 1, pitch)

    def _block(self, at: tuple[str, str], sizes: tuple[int, int], left: _Left, out: Side) -> None:
        """All rows of a block of columns, for one block of the depth."""
        fn, tiling, rhs = self.fn, self.tiling, self.dot.rhs
        (j, k), (columns, depth) = at, sizes
        row = fn.emit(f"mul nuw nsw i64 {k}, {rhs.row_stride}")
        offset = fn.emit(f"add nuw nsw i64 {row}, {fn.emit(f'mul nuw nsw i64 {j}, {rhs.column_stride}')}")
        block = self._element("%b", self.right, offset)
        if tiling.pack_right:
            block = self._pack(block, columns, depth)

        def strip(start: str, width: int) -> None:
            address = fn.emit(f"mul nuw nsw i64 {start}, {depth}") if tiling.pack_right else start
            right = self._element(block, tiling.wide if tiling.pack_right else self.right, address)
            column = fn.emit(f"add nuw nsw i64 {j}, {start}")
            tile = self._tile(width, left, out)
            for run in tiling.row_runs(self.rows):
                shape = tile(run)

                def one(i: str, shape: RegisterTile = shape) -> None:
                    a = self._element(left.address, tiling.wide, fn.emit(f"mul nuw nsw i64 {i}, {left.row}"))
                    first = fn.emit(f"add nuw nsw i64 {fn.emit(f'mul nuw nsw i64 {i}, {out.pitch}')}, {column}")
                    c = self._element(out.base, tiling.wide, first)
                    if tiling.carries:
                        self._part_of_sum(shape, (a, right, c), (i, column), (k, depth), width)
                        return
                    sums = tiling.sum_runs(depth)
                    self._each(sums, lambda at, size: self._sum(shape, (a, right, c), (k, at, size), width))

                self._each((run,), lambda i, _, one=one: one(i))

        self._each(tiling.tile_runs(columns), strip)

    def _sum(self, tile: RegisterTile, operands: tuple[str, str, str], at: tuple[str, str, int], width: int) -> None:
        """One sum block of a register tile: `size` steps from `start` on, in the block of the depth at `k`."""
        fn, (a, b, c), (k, start, size) = self.fn, operands, at
        if start != "0":
            a = self._element(a, tile.dtype, fn.emit(f"mul nuw nsw i64 {start}, {tile.a_depth}"))
            b = self._element(b, tile.dtype, fn.emit(f"mul nuw nsw i64 {start}, {tile.b_depth}"))
        self._run_tile(tile, (a, b, c), size, self._more(fn.emit(f"add nuw nsw i64 {k}, {start}"), 1), width)

    def _part_of_sum(
        self,
        tile: RegisterTile,
        operands: tuple[str, str, str],
        place: tuple[str, str],
        at: tuple[str, int],
        width: int,
    ) -> None:
        """A part of a sum block: what it begins with and leaves is kept at (row, column) of the work memory."""
        fn, tiling, dot = self.fn, self.tiling, self.dot
        (row, column), (k, size) = place, at
        first = fn.emit(f"mul nuw nsw i64 {row}, {_whole(dot.columns, tiling)}")
        kept = self._bytes("%work", self.work.carried)
        kept = self._element(kept, tiling.wide, fn.emit(f"add nuw nsw i64 {first}, {column}"))
        done = fn.emit(f"add nuw nsw i64 {k}, {size}")
        begun = fn.emit(f"icmp ne i64 {fn.emit(f'urem i64 {k}, {tiling.sum_block}')}, 0")
        whole = fn.emit(f"icmp eq i64 {fn.emit(f'urem i64 {done}, {tiling.sum_block}')}, 0")
        ends = fn.emit(f"or i1 {whole}, {fn.emit(f'icmp eq i64 {done}, {dot.depth}')}")
        carried = [("ptr", kept), ("i1", begun), ("i1", ends)]
        self._run_tile(tile, operands, size, self._more(k, tiling.sum_block), width, carried)

    def _more(self, k: str, first: int) -> str:
        """Whether steps from `k` on are added to what there is: not in the block of the `first` steps."""
        return "true" if self.dot.accumulate else self.fn.emit(f"icmp uge i64 {k}, {first}")

    def _run_tile(
        self,
        tile: RegisterTile,
        operands: tuple[str, str, str],
        depth: int,
        more: str,
        width: int,
        carried: Sequence[tuple[str, str]] = (),
    ) -> None:
        values = [*operands, str(depth), more, str(width)]
        types = ["ptr", "ptr", "ptr", "i64", "i1", "i64"]
        self.fn.call("void", define(self.fn.module, tile), [*zip(types, values, strict=True), *carried])

    def _tile(self, width: int, left: _Left, out: Side) -> Callable[[Tiles], RegisterTile]:
        """The register tile for so many columns, by the run of rows."""
        tiling, dot = self.tiling, self.dot
        ragged = width % tiling.lanes != 0
        vectors = -(-width // tiling.lanes)
        depths = [runs for block in tiling.depth_runs(dot.depth) for runs in tiling.sum_runs(block.size)]

        def unrolls(run: Tiles) -> tuple[int, ...]:
            """The last rows are done once or twice where the others are done many times: less code serves."""
            return (1,) if run.count * run.size * _RARE <= self.rows else _UNROLLS

        def of(run: Tiles) -> RegisterTile:
            return RegisterTile(
                dtype=tiling.wide,
                rows=run.size,
                vectors=vectors,
                lanes=tiling.lanes,
                a_row=left.row,
                a_depth=left.depth,
                b_depth=vectors * tiling.lanes if tiling.pack_right else dot.rhs.row_stride,
                b_ragged=ragged and not tiling.pack_right,
                c_row=out.pitch,
                c_ragged=ragged,
                unroll=next(u for u in unrolls(run) if all(d.size % u == 0 for d in depths)),
                fetch_next=run.size < self.rows and depths[0].size >= _FETCHED_DEPTH,
                carried_row=_whole(dot.columns, tiling) if tiling.carries else 0,
            )

        return of

    def _pack(self, source: str, columns: int, depth: int) -> str:
        """The block as strips, one after another: the columns of a register tile, whole vectors wide, row by row."""
        fn, tiling, rhs = self.fn, self.tiling, self.dot.rhs
        target = self._bytes("%work", self.work.right)
        runs = tiling.tile_runs(columns)

        def strip(start: str, width: int, k: str | None) -> None:
            padded = -(-width // tiling.lanes) * tiling.lanes
            to = Side(
                self._element(target, tiling.wide, fn.emit(f"mul nuw nsw i64 {start}, {depth}")), padded, tiling.wide
            )
            offset = fn.emit(f"mul nuw nsw i64 {start}, {rhs.column_stride}")
            here = self._element(source, self.right, offset)
            if k is None:
                along = Side(here, rhs.column_stride, self.right)
                copy_transposed(fn, along, to, padded, depth, tiling.lanes, width)
            else:
                copy_row(fn, Side(here, rhs.row_stride, self.right), to, k, width, tiling.lanes)

        if rhs.column_stride != 1:
            self._each(runs, lambda start, width: strip(start, width, None))
        else:
            with counted_loop(fn, "0", str(depth), 1, nonempty=True, hint="k") as k:
                self._each(runs, lambda start, width: strip(start, width, k))
        return target

    def _each(self, runs: Sequence[Tiles], inside: Callable[[str, int], None]) -> None:
        """`inside(start, size)` for every tile of the runs."""
        for run in runs:
            if run.count == 1:
                inside(str(run.begin), run.size)
                continue
            begin, end = str(run.begin), str(run.end)
            with counted_loop(self.fn, begin, end, run.size, nonempty=True, as_written=True, hint="tile") as start:
                inside(start, run.size)

    def _element(self, base: str, dtype: DType, offset: str) -> str:
        return self.fn.emit(f"getelementptr inbounds {Vec(dtype, 1).memory_element}, ptr {base}, i64 {offset}")

    def _bytes(self, base: str, offset: int) -> str:
        return base if offset == 0 else self.fn.emit(f"getelementptr i8, ptr {base}, i64 {offset}")
