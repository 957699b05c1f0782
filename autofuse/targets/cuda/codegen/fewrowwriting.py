"""The code of products of few rows: see `fewrowproducts`.

for (int k = 0; k < depth; k += 4) {
l[m] = load_pack<4>(lhs + row(m) * pitch + k);                  shared memory, alike for all threads of a group
r = load_pack<1>(rhs + (k + next) * pitch); sum[m] = fma(l[m].at[next], r.at[0], sum[m]);
}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Dot
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.fewrowproducts import (
    MOST_COLUMNS,
    MOST_READ,
    UNROLLED,
    FewRowsShape,
    chunk_of,
    copied_pitch,
    kept_bytes,
    kept_pitch,
)
from autofuse.targets.cuda.codegen.operandtiles import alignment_of, matrix_index, steps_of
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type


class FewRowsWriter:
    """Writes the products of one phase."""

    def __init__(
        self,
        code: PhaseCode,
        arena: SharedArena,
        threads: int,
        dots: Sequence[tuple[Dot, FewRowsShape]],
        steps: dict[Symbol, int],
        rows: int | None,
    ) -> None:
        """`steps`: of what symbols in the offsets of matrices are multiples. `rows`: of a full block of rows."""
        self.code, self.threads, self.steps, self.rows = code, threads, steps, rows
        copied = max((shape.copied_bytes for _, shape in dots), default=0)
        self._copied = arena.take(copied, "left operands") if copied else 0
        self._kept = {
            id(dot): (code.names.fresh(f"{dot.rhs.buffer}_kept"), arena.take(kept_bytes(dot, shape), "a right operand"))
            for dot, shape in dots
            if shape.kept
        }
        self._dots = dots

    def begin(self) -> None:
        """Right operands come in that stay for all iterations."""
        code = self.code
        for dot, shape in self._dots:
            if not shape.kept:
                continue
            name, offset = self._kept[id(dot)]
            element, pitch = memory_type(dot.dtype), kept_pitch(dot)
            code.out.line(f"{element}* const {name} = {SharedArena.pointer(element, offset)};")
            source = f"{code.places[dot.rhs.buffer].name}[{matrix_index(code, dot.rhs)}]"
            with self._each(shape.kept, dot.columns):
                code.out.line(f"{name}[i * {pitch} + j] = {source};")
        if self._kept:
            code.out.line("__syncthreads();")

    def _each(self, rows: int, columns: int) -> ExitStack:
        """The elements of a matrix, shared out among the threads of a block: i and j."""
        stack, out = ExitStack(), self.code.out
        out.line("#pragma unroll 4")
        stack.enter_context(
            out.braces(f"for (int each = threadIdx.x; each < {rows * columns}; each += {self.threads})")
        )
        out.line(f"const int i = each / {columns}, j = each % {columns};")
        return stack

    def write(self, dot: Dot, shape: FewRowsShape, rows: str) -> None:
        """One product. `rows`: C, of the block."""
        out = self.code.out
        left, right = self._left(dot, shape, rows), self._right(dot, shape)
        out.line(f"const int own = threadIdx.x % {shape.across} * {shape.columns};")
        out.line(f"const int group = threadIdx.x / {shape.across};")
        with ExitStack() as stack:
            if shape.turns(dot.columns) > 1:
                step = shape.across * shape.columns
                stack.enter_context(out.braces(f"for (int edge = 0; edge < {dot.columns}; edge += {step})"))
                out.line("const int j = edge + own;")
            else:
                out.line("const int j = own;")
            tests = [f"j < {dot.columns}"] if dot.columns % (shape.across * shape.columns) else []
            tests += [f"group < {shape.groups}"] if shape.across * shape.groups < self.threads else []
            if tests:
                stack.enter_context(out.braces(f"if ({' && '.join(tests)})"))
            full = dot.rows if self.rows is None else self.rows
            _Sums(self.code, dot, shape, full, rows, left, right).write()

    def _left(self, dot: Dot, shape: FewRowsShape, rows: str) -> tuple[str, int, int]:
        """C: where the left operand lies in shared memory, its pitch, and of how many elements its lines begin at."""
        code, place = self.code, self.code.places[dot.lhs.buffer]
        if not shape.copied_bytes:
            aligned = alignment_of(dot.lhs, dot.dtype.itemsize, self.steps) // dot.dtype.itemsize
            return f"{place.name} + {code.affine(dot.lhs.offset)}", dot.lhs.row_stride, aligned
        element, pitch = memory_type(dot.dtype), copied_pitch(dot)
        code.out.line(f"{element}* const left = {SharedArena.pointer(element, self._copied)};")
        source = f"{place.name}[{matrix_index(code, dot.lhs)}]"
        with self._each(dot.rows if self.rows is None else self.rows, dot.depth):
            test = "" if rows.isdigit() else f"if (i < {rows}) "
            code.out.line(f"{test}left[i * {pitch} + j] = {source};")
        code.out.line("__syncthreads();")
        return "left", pitch, chunk_of(dot)

    def _right(self, dot: Dot, shape: FewRowsShape) -> tuple[_Lines, ...]:
        """The depths of the right operand, by where they lie."""
        code, found = self.code, list[_Lines]()
        if shape.kept:
            found.append(
                _Lines(self._kept[id(dot)][0], kept_pitch(dot), MOST_COLUMNS, range(shape.kept), UNROLLED // 2)
            )
        if shape.kept < dot.depth:
            aligned = alignment_of(dot.rhs, dot.dtype.itemsize, self.steps) // dot.dtype.itemsize
            whole = math.gcd(aligned, dot.columns)  # what begins in the operand ends in it
            start = f"{code.places[dot.rhs.buffer].name} + {code.affine(dot.rhs.offset)}"
            found.append(_Lines(start, dot.rhs.row_stride, whole, range(shape.kept, dot.depth), UNROLLED))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Some depths of a right operand."""

    start: str
    """C: where the operand would begin if all of it lay here."""
    pitch: int
    chunk: int
    """Elements that are read at once at a multiple of so many."""
    depths: range
    unrolled: int
    """Depths whose reads are begun together."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Writes the sums of one thread, for rows of its group and columns from j on."""

    code: PhaseCode
    dot: Dot
    shape: FewRowsShape
    full: int
    """Rows of a full block."""
    rows: str
    """C: rows of the block."""
    left: tuple[str, int, int]
    """C: where the left operand lies, its pitch, and of how many elements its lines begin at a multiple."""
    rights: tuple[_Lines, ...]
    """The right operand."""

    @property
    def _dtype(self) -> DType:
        return self.dot.dtype

    @property
    def _together(self) -> int:
        """Depths whose elements of the left operand are read at once."""
        together = math.gcd(self.dot.depth, self.left[2])
        while self.shape.rows * together > MOST_READ:
            together //= 2
        return max(together, 1)

    @property
    def _whole(self) -> bool:
        """Whether every thread has all its rows, in every block."""
        return self.rows.isdigit() and self.full % self.shape.groups == 0

    def _row(self, m: str) -> str:
        row = f"group + {m} * {self.shape.groups}"
        return row if self._whole else f"({row} < {self.rows} ? {row} : {self.rows} - 1)"

    def write(self) -> None:
        out, depth, block = self.code.out, self.dot.depth, sum_block(self.dot.depth)
        rows, columns, type_ = self.shape.rows, self.shape.columns, register_type(self._dtype)
        zero = literal(0, self._dtype)
        out.line(f"const {memory_type(self._dtype)}* const lhs = {self.left[0]};")
        for number, lines in enumerate(self.rights):
            out.line(f"const {memory_type(self._dtype)}* const rhs{number} = {lines.start} + j;")
        out.line(f"{type_} sum[{rows}][{columns}];")
        if block >= depth:
            self._all(f"sum[m][n] = {zero};")
            for number, lines in enumerate(self.rights):
                self._walk(number, str(lines.depths.start), str(lines.depths.stop))
        else:
            out.line(f"{type_} total[{rows}][{columns}];")
            self._all(f"total[m][n] = {zero};")
            for number, lines in enumerate(self.rights):
                first, last, end = lines.depths.start, lines.depths.stop, f"begin + {block}"
                out.line("#pragma unroll 1")
                with out.braces(f"for (int begin = {first}; begin < {last}; begin += {block})"):
                    self._all(f"sum[m][n] = {zero};")
                    self._walk(number, "begin", f"({end} < {last} ? {end} : {last})" if last % block else end)
                    self._all(f"total[m][n] = {self._added('total[m][n]', 'sum[m][n]')};")
        self._store("sum[m][n]" if block >= depth else "total[m][n]")

    def _all(self, line: str) -> None:
        """A line for each sum."""
        with self._each_sum():
            self.code.out.line(line)

    def _each_sum(self) -> ExitStack:
        stack, out = ExitStack(), self.code.out
        for name, count in (("m", self.shape.rows), ("n", self.shape.columns)):
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {count}; ++{name})"))
        return stack

    def _walk(self, number: int, first: str, end: str) -> None:
        """Multiply-adds for depths from `first` to `end`, which are in some lines of the right operand."""
        code, out, together, columns = self.code, self.code.out, self._together, self.shape.columns
        lines, left_pitch = self.rights[number], self.left[1]
        pack, load = code.prelude.use("Pack"), code.prelude.use("load_pack")
        element = memory_type(self._dtype)
        out.line(f"#pragma unroll {max(lines.unrolled // together, 1)}")
        with out.braces(f"for (int k = {first}; k < {end}; k += {together})"):
            out.line(f"{pack}<{element}, {together}> l[{self.shape.rows}];")
            out.line("#pragma unroll")
            address = f"lhs + ({self._row('m')}) * {left_pitch} + k"
            out.line(f"for (int m = 0; m < {self.shape.rows}; ++m) l[m] = {load}<{together}>({address});")
            out.line("#pragma unroll")
            with out.braces(f"for (int next = 0; next < {together}; ++next)"):
                out.line(f"{pack}<{element}, {columns}> r;")
                line = f"rhs{number} + {steps_of(code, '(k + next)', lines.pitch)}"
                if lines.chunk % columns == 0:
                    out.line(f"r = {load}<{columns}>({line});")
                else:
                    out.line("#pragma unroll")
                    out.line(f"for (int n = 0; n < {columns}; ++n) r.at[n] = {self._known('n')} ? ({line})[n] : 0;")
                fused = ("l[m].at[next]", "r.at[n]", "sum[m][n]")
                value = scalars.map_expression(code.prelude, "fma", fused, (self._dtype,) * 3, self._dtype)
                self._all(f"sum[m][n] = {value};")

    def _known(self, n: str) -> str:
        """C: whether a column is one of the product's."""
        return f"j + {n} < {self.dot.columns}"

    def _added(self, a: str, b: str) -> str:
        return scalars.map_expression(self.code.prelude, "add", (a, b), (self._dtype, self._dtype), self._dtype)

    def _store(self, sum_: str) -> None:
        code, dot = self.code, self.dot
        place = code.places[dot.out.buffer]
        target = f"{place.name}[{matrix_index(code, dot.out, 'i', 'at')}]"
        value = self._added(target, sum_) if dot.accumulate else sum_
        tests = [] if self._whole else [f"i < {self.rows}"]
        tests += [] if self.shape.columns == 1 else [f"at < {dot.columns}"]
        with self._each_sum():
            code.out.line(f"const int i = group + m * {self.shape.groups}, at = j + n;")
            test = f"if ({' && '.join(tests)}) " if tests else ""
            code.out.line(f"{test}{target} = {value};")
