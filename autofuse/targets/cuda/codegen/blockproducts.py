"""A matrix product by one block: square tiles of both operands in shared memory, a small square of sums per thread.

Blocks of the depth (`autofuse.lower.summing`) are summed in order, one fused multiply-add per term, and their sums are
added in order: a dot is one op, and what `strict` fixes is its order. 16-bit floats are multiplied and summed in float
and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Dot, Matrix
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.body import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena, unwrapped
from autofuse.targets.cuda.ctypes_text import literal, register_type

TILE = 64
"""Rows and columns of a tile of the result."""
DEPTH = 16
"""Columns of the left tile and rows of the right one."""
SIDE = 16
"""Threads along each side of the tile."""
DOT_THREADS = SIDE * SIDE
_EACH = TILE // SIDE
_PITCH = TILE + 1
"""Elements between rows of a tile in memory: odd, so that neither way of filling it hits one bank."""


def compute_dtype(dot: Dot) -> DType:
    """What products and sums are held in."""
    return dtypes.F32 if dot.dtype.is_float and dot.dtype.bits == 16 else dot.dtype


def tile_bytes(dot: Dot) -> int:
    """Shared memory of the two operand tiles."""
    return 2 * (-(-_PITCH * DEPTH * compute_dtype(dot).itemsize // 16) * 16)


class DotWriter:
    """Writes the dots of one phase; they share their operand tiles."""

    def __init__(self, code: PhaseCode, arena: SharedArena, threads: int, dots: Sequence[Dot]) -> None:
        self.code = code
        self.threads = threads
        size = max((tile_bytes(dot) for dot in dots), default=0) // 2
        self._high = TILE
        """Rows of a tile: fewer for short row blocks."""
        self._offsets = tuple(arena.take(size, "a dot's operand tile") for _ in range(2)) if dots else ()

    def write(self, dot: Dot, rows: str, most: int, *, row_tile: str | None, column_tile: str | None) -> None:
        """One dot over `rows` rows, `most` at most; the tile numbers are given when a block computes one tile of it."""
        out, type_ = self.code.out, register_type(compute_dtype(dot))
        self._high = min(TILE, -(-most // SIDE) * SIDE)
        for name, offset in zip(("left", "right"), self._offsets, strict=True):
            out.line(f"{type_}* const {name} = {SharedArena.pointer(type_, offset)};")
        out.line(f"const int across = threadIdx.x % {SIDE}, down = threadIdx.x / {SIDE};")
        with ExitStack() as stack:
            self._tile_loop(stack, "top", row_tile, rows, self._high)
            self._tile_loop(stack, "edge", column_tile, str(dot.columns), TILE)
            self._tile(dot, rows, type_)

    def _tile_loop(self, stack: ExitStack, name: str, tile: str | None, extent: str, size: int) -> None:
        out = self.code.out
        if tile is not None:
            out.line(f"const int {name} = {tile} * {size};")
        elif extent.isdigit() and int(extent) <= size:
            out.line(f"const int {name} = 0;")
        else:
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {extent}; {name} += {size})"))

    def _tile(self, dot: Dot, rows: str, type_: str) -> None:
        out, zero, block = self.code.out, literal(0, compute_dtype(dot)), sum_block(dot.depth)
        names = ("sum", "total") if block < dot.depth else ("sum",)
        for name in names:
            out.line(f"{type_} {name}[{self._high // SIDE}][{_EACH}];")
        with self._each_sum():
            out.line(" ".join(f"{name}[m][n] = {zero};" for name in names))
        with out.braces(f"for (int step = 0; step < {dot.depth}; step += {DEPTH})"):
            if block < dot.depth:
                with out.braces(f"if (step % {block} == 0)"), self._each_sum():
                    out.line(f"total[m][n] = {self._added('total[m][n]', 'sum[m][n]', compute_dtype(dot))};")
                    out.line(f"sum[m][n] = {zero};")
            out.line("__syncthreads();")
            self._fill("left", dot, dot.lhs, rows, by_row=dot.lhs.column_stride != 1)
            self._fill("right", dot, dot.rhs, rows, by_row=dot.rhs.column_stride == 1)
            out.line("__syncthreads();")
            self._multiply(dot, type_)
        if block < dot.depth:
            with self._each_sum():
                out.line(f"sum[m][n] = {self._added('total[m][n]', 'sum[m][n]', compute_dtype(dot))};")
        self._store(dot, rows)

    def _each_sum(self) -> ExitStack:
        stack, out = ExitStack(), self.code.out
        for name, count in (("m", self._high // SIDE), ("n", _EACH)):
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {count}; ++{name})"))
        return stack

    def _fill(self, tile: str, dot: Dot, matrix: Matrix, rows: str, *, by_row: bool) -> None:
        """Copy a tile into `tile[depth][row or column]`; neighbouring threads read neighbouring elements.

        `by_row`: along the tile's long side, else along the depth.
        """
        out, size = self.code.out, self._high if tile == "left" else TILE
        long_, deep = (f"each % {size}", f"each / {size}") if by_row else (f"each / {DEPTH}", f"each % {DEPTH}")
        with out.braces(f"for (int each = threadIdx.x; each < {size * DEPTH}; each += {self.threads})"):
            if tile == "left":
                out.line(f"const int i = top + {long_}, j = step + {deep};")
                bound = f"i < {rows} && j < {dot.depth}"
            else:
                out.line(f"const int i = step + {deep}, j = edge + {long_};")
                bound = f"i < {dot.depth} && j < {dot.columns}"
            value = self._read(matrix, compute_dtype(dot))
            out.line(f"{tile}[({deep}) * {_PITCH} + {long_}] = {bound} ? {value} : {literal(0, compute_dtype(dot))};")

    def _read(self, matrix: Matrix, target: DType) -> str:
        place = self.code.places[matrix.buffer]
        text = place.read(self.code.prelude, f"{place.name}[{self._index(matrix)}]")
        return scalars.convert(self.code.prelude, text, place.dtype, target)

    def _index(self, matrix: Matrix) -> str:
        type_ = self.code.index.type
        texts = [] if matrix.offset == Affine() else [unwrapped(self.code.affine(matrix.offset))]
        for name, stride in (("i", matrix.row_stride), ("j", matrix.column_stride)):
            wide = f"({type_}){name}" if type_ != "int" else name
            texts.append(name if stride == 1 else f"{wide} * {stride}")
        return " + ".join(texts)

    def _multiply(self, dot: Dot, type_: str) -> None:
        out, dtype = self.code.out, compute_dtype(dot)
        out.line("#pragma unroll")
        with out.braces(f"for (int k = 0; k < {DEPTH}; ++k)"):
            for side, count, row in (("left", self._high // SIDE, f"down % {SIDE}"), ("right", _EACH, "across")):
                out.line(f"{type_} from_{side}[{count}];")
                out.line("#pragma unroll")
                with out.braces(f"for (int m = 0; m < {count}; ++m)"):
                    out.line(f"from_{side}[m] = {side}[k * {_PITCH} + {row} + {SIDE} * m];")
            with self._each_sum():
                out.line(f"sum[m][n] = {self._fused(dtype)};")

    def _fused(self, dtype: DType) -> str:
        prelude = self.code.prelude
        if dtype.is_float:
            return scalars.map_expression(
                prelude, "fma", ("from_left[m]", "from_right[n]", "sum[m][n]"), (dtype,) * 3, dtype
            )
        product = scalars.map_expression(prelude, "multiply", ("from_left[m]", "from_right[n]"), (dtype,) * 2, dtype)
        return self._added("sum[m][n]", f"({product})", dtype)

    def _added(self, a: str, b: str, dtype: DType) -> str:
        return scalars.map_expression(self.code.prelude, "add", (a, b), (dtype, dtype), dtype)

    def _store(self, dot: Dot, rows: str) -> None:
        out, place = self.code.out, self.code.places[dot.out.buffer]
        value = scalars.convert(self.code.prelude, "sum[m][n]", compute_dtype(dot), dot.dtype)
        added = value
        value = scalars.convert(self.code.prelude, value, dot.dtype, place.dtype)
        if dot.dtype.is_float and dot.dtype.bits == 16 and dot.dtype == place.dtype:
            value = "sum[m][n]"  # storing rounds it
        with self._each_sum():
            out.line(f"const int i = top + down + {SIDE} * m, j = edge + across + {SIDE} * n;")
            guard = f"i < {rows} && j < {dot.columns}"
            if self.threads > DOT_THREADS:
                guard = f"threadIdx.x < {DOT_THREADS} && {guard}"
            target = f"{place.name}[{self._index(dot.out)}]"
            if dot.accumulate:
                before = place.read(self.code.prelude, target)
                before = scalars.convert(self.code.prelude, before, place.dtype, dot.dtype)
                value = self._added(before, f"({added})", dot.dtype)
            out.line(f"if ({guard}) {target} = {place.written(self.code.prelude, value)};")
