"""Products by fused multiply-adds: 16 x 16 threads, each with a small tile of sums in registers.

A thread reads neighbours of a line together where lines run along the result, and neighbours along the depth where they
run along that; either way neighbouring threads read neighbouring chunks. Sums have the order of
`autofuse.lower.summing`.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.summing import sum_block
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.operandtiles import OperandTile, alignment_of, element_type, matrix_index
from autofuse.targets.cuda.codegen.places import unwrapped
from autofuse.targets.cuda.codegen.products import Fragment, Product
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, DOT_THREADS, SIDE, compute_dtype
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type


@dataclass(frozen=True, slots=True)
class Side:
    """How a thread walks one operand."""

    name: str
    """`left` or `right`."""
    tile: OperandTile
    at: str
    """C: the thread's place among the 16 along this side."""
    count: int
    """Rows or columns of the thread."""

    @property
    def run(self) -> int:
        """Neighbours along the result that a thread has, and reads together."""
        return 1 if self.tile.layout.along_depth else self._neighbours

    def place(self, number: str) -> str:
        """C: the row or column in the tile of the thread's sum `number`."""
        if self.run == 1:
            return f"{self.at} + {SIDE} * {number}"
        return self.neighbour(number)

    @property
    def _neighbours(self) -> int:
        """Rows or columns that follow one another where a thread has such: as many in each of its groups."""
        return math.gcd(self.count, CHUNK_BYTES // self.tile.layout.itemsize)

    def neighbour(self, number: str) -> str:
        """C: the row or column of the thread's sum `number`, if a thread has several that follow one another."""
        run = self._neighbours
        return f"{self.at} * {run} + {number} % {run} + {SIDE * run} * ({number} / {run})"

    @property
    def order(self) -> str:
        """C: which row or column stands in a `line` that runs along the depth, so that a thread has neighbours."""
        run = self._neighbours
        return f"line % {SIDE} * {run} + line / {SIDE} % {run} + {SIDE * run} * (line / {SIDE * run})"


@dataclass(frozen=True, slots=True)
class FusedProduct(Product):
    """Multiply-adds. Reordered columns are those of `Side.order`."""

    @property
    def _dtype(self) -> DType:
        return compute_dtype(self.left.dot)

    @property
    def sides(self) -> tuple[Side, Side]:
        """How a thread walks the left and the right operand."""
        shape = self.left.shape
        return (
            Side("left", self.left, f"down % {SIDE}", shape.rows // SIDE),
            Side("right", self.right, "across", shape.columns // SIDE),
        )

    @property
    def _blocked(self) -> bool:
        return sum_block(self.left.dot.depth) < self.left.dot.depth

    def stand(self) -> None:
        """Where the thread stands."""
        self.code.out.line(f"const int across = threadIdx.x % {SIDE}, down = threadIdx.x / {SIDE};")

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.sums, "total") if self._blocked else (self.sums,)

    def fragment(self) -> Fragment:
        """The elements that a thread has of the result."""
        left, right = self.sides
        return Fragment(
            rows=left.count,
            columns=right.count,
            row=left.place("m"),
            column=right.neighbour("n") if self.reordered else right.place("n"),
            element="{}[m][n]",
            shape=f"[{left.count}][{right.count}]",
            lanes=SIDE,
        )

    def declare_sums(self) -> None:
        """Arrays, which hold nothing yet."""
        left, right = self.sides
        for name in self._names:
            self.code.out.line(f"{register_type(self._dtype)} {name}[{left.count}][{right.count}];")

    def clear(self) -> None:
        """All sums become zero."""
        with self._each():
            self.code.out.line(" ".join(f"{name}[m][n] = {literal(0, self._dtype)};" for name in self._names))

    def _each(self) -> ExitStack:
        left, right = self.sides
        return self.each_of((left.count, right.count))

    def multiply(self) -> None:
        """Add the products of the tiles at `left` and `right` to the sums."""
        out, shape, sides = self.code.out, self.left.shape, self.sides
        if self._blocked:
            with out.braces(f"if (round * {shape.depth} % {sum_block(self.left.dot.depth)} == 0)"), self._each():
                out.line(f"total[m][n] = {self._added('total[m][n]', f'{self.sums}[m][n]')};")
                out.line(f"{self.sums}[m][n] = {literal(0, self._dtype)};")
        together = max(
            CHUNK_BYTES // side.tile.layout.itemsize if side.tile.layout.along_depth else 1 for side in sides
        )
        out.line("#pragma unroll 1" if together > 1 else "#pragma unroll 4")  # more would take registers, not time
        with out.braces(f"for (int k = 0; k < {shape.reached(self.left.dot.depth, together)}; k += {together})"):
            for side in sides:
                if side.tile.layout.along_depth:
                    self._load_along(side, together)
            out.line("#pragma unroll")
            with out.braces(f"for (int next = 0; next < {together}; ++next)"):
                for side in sides:
                    self._take(side)
                with self._each():
                    out.line(f"{self.sums}[m][n] = {self._fused()};")

    def _pack(self, count: int) -> str:
        return f"{self.code.prelude.use('Pack')}<{element_type(self.left.shape)}, {count}>"

    def _address(self, side: Side, line: str, element: str) -> str:
        """C: a pointer to an element of a tile, to read it."""
        return self.place_in(side.name, side, line, element, constant="const ")

    def place_in(self, tile: str, side: Side, line: str, element: str, constant: str = "") -> str:
        """C: a pointer to an element of the tile of that side at `tile`."""
        per, type_ = CHUNK_BYTES // side.tile.layout.itemsize, element_type(self.left.shape)
        at = f"{self.code.prelude.use('swizzled')}<{side.tile.layout.chunks}>({line}, ({element}) / {per}) * {per}"
        return f"reinterpret_cast<{constant}{type_}*>({tile}) + {at} + ({element}) % {per}"

    def _load_along(self, side: Side, together: int) -> None:
        """Neighbours along the depth, of each row or column of the thread."""
        out, prelude = self.code.out, self.code.prelude
        out.line(f"{self._pack(together)} along_{side.name}[{side.count}];")
        out.line("#pragma unroll")
        address = self._address(side, side.place("m"), "k")
        load = f"{prelude.use('load_pack')}<{together}>({address})"
        out.line(f"for (int m = 0; m < {side.count}; ++m) along_{side.name}[m] = {load};")

    def _take(self, side: Side) -> None:
        """The thread's elements at one depth, in registers."""
        out, name, type_ = self.code.out, f"from_{side.name}", register_type(self._dtype)
        out.line(f"{type_} {name}[{side.count}];")
        out.line("#pragma unroll")
        if side.tile.layout.along_depth:
            value = f"along_{side.name}[m].at[next]"
            out.line(f"for (int m = 0; m < {side.count}; ++m) {name}[m] = {self._narrow(value)};")
            return
        with out.braces(f"for (int m = 0; m < {side.count}; m += {side.run})"):
            address = self._address(side, "k + next", side.place("m"))
            load = f"{self.code.prelude.use('load_pack')}<{side.run}>({address})"
            out.line(f"const {self._pack(side.run)} several = {load};")
            for n in range(side.run):
                out.line(f"{name}[m + {n}] = {self._narrow(f'several.at[{n}]')};")

    def _narrow(self, value: str) -> str:
        """An element of a tile as what it is multiplied as."""
        if self.left.shape.element == self._dtype:
            return value
        return scalars.convert(self.code.prelude, value, self.left.shape.element, self._dtype)

    def _fused(self) -> str:
        prelude, dtype = self.code.prelude, self._dtype
        operands = ("from_left[m]", "from_right[n]")
        if dtype.is_float:
            return scalars.map_expression(prelude, "fma", (*operands, f"{self.sums}[m][n]"), (dtype,) * 3, dtype)
        product = scalars.map_expression(prelude, "multiply", operands, (dtype,) * 2, dtype)
        return self._added(f"{self.sums}[m][n]", f"({product})")

    def _added(self, a: str, b: str) -> str:
        return scalars.map_expression(self.code.prelude, "add", (a, b), (self._dtype, self._dtype), self._dtype)

    def store(self) -> None:
        """The sums into the result."""
        if self._blocked:
            with self._each():
                out = self.code.out
                out.line(f"{self.sums}[m][n] = {self._added('total[m][n]', f'{self.sums}[m][n]')};")
        with ExitStack() as stack:
            if self.left.threads > DOT_THREADS:
                stack.enter_context(self.code.out.braces(f"if (threadIdx.x < {DOT_THREADS})"))
            if self._packed() > 1:
                self._store_packs(self._packed())
            else:
                self._store_each()

    def _packed(self) -> int:
        """Neighbours that are stored as one."""
        dot, run = self.left.dot, self.sides[1].run
        itemsize = self.out.dtype.itemsize
        width = min(run, CHUNK_BYTES // itemsize)
        aligned = alignment_of(dot.out, itemsize, self.left.steps) // itemsize
        return 1 if dot.accumulate or dot.columns % width or aligned < width else width

    def _value(self, sum_: str) -> tuple[str, DType]:
        dot = self.left.dot
        return scalars.convert(self.code.prelude, sum_, self._dtype, dot.dtype), dot.dtype

    def _store_packs(self, width: int) -> None:
        out, prelude, dot = self.code.out, self.code.prelude, self.left.dot
        place, (left, right) = self.out, self.sides
        out.line("#pragma unroll")
        with out.braces(f"for (int m = 0; m < {left.count}; ++m)"):
            out.line("#pragma unroll")
            with out.braces(f"for (int n = 0; n < {right.count}; n += {width})"):
                out.line(f"const int i = top + {left.place('m')}, j = edge + {right.place('n')};")
                with out.braces(f"if (i < {self.left.rows} && j < {dot.columns})"):
                    out.line(f"{prelude.use('Pack')}<{memory_type(place.dtype)}, {width}> several;")
                    for n in range(width):
                        value, dtype = self._value(f"{self.sums}[m][n + {n}]")
                        value = scalars.convert(prelude, value, dtype, place.dtype)
                        out.line(f"several.at[{n}] = {place.written(prelude, value)};")
                    out.line(
                        f"{prelude.use('store_pack')}({place.name} + {matrix_index(self.code, dot.out)}, several);"
                    )

    def _store_each(self) -> None:
        out, prelude, dot = self.code.out, self.code.prelude, self.left.dot
        place, (left, right) = self.out, self.sides
        with self._each():
            out.line(f"const int i = top + {left.place('m')}, j = edge + {right.place('n')};")
            target = f"{place.name}[{matrix_index(self.code, dot.out)}]"
            value, dtype = self._value(f"{self.sums}[m][n]")
            if dot.accumulate:
                before = scalars.convert(prelude, place.read(prelude, target), place.dtype, dtype)
                value = scalars.map_expression(prelude, "add", (before, f"({value})"), (dtype, dtype), dtype)
            value = scalars.convert(prelude, unwrapped(value), dtype, place.dtype)
            out.line(f"if (i < {self.left.rows} && j < {dot.columns}) {target} = {place.written(prelude, value)};")
