"""Bringing a tile of an operand into shared memory: by asynchronous copies, or element by element.

What lies outside the operand becomes 0, so that products of it add nothing.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Dot, Matrix
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, unwrapped
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, Layout, TileShape, is_new, layout_of
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type

_COPIED = (16, 8, 4)
"""Bytes that one asynchronous copy may have."""


def matrix_index(code: PhaseCode, matrix: Matrix) -> str:
    """Where element (i, j) of a matrix is, as C."""
    texts = [] if matrix.offset == Affine() else [unwrapped(code.affine(matrix.offset))]
    for name, stride in (("i", matrix.row_stride), ("j", matrix.column_stride)):
        wide = f"({code.index.type}){name}" if code.index.type != "int" else name
        texts.append(name if stride == 1 else f"{wide} * {stride}")
    return " + ".join(texts)


def alignment_of(matrix: Matrix, itemsize: int, steps: dict[Symbol, int]) -> int:
    """Bytes, at most 16, at a multiple of which every line of a matrix starts.

    `steps`: of symbols that are always a multiple of some number.
    """
    pitch = max(matrix.row_stride, matrix.column_stride)
    terms = [c * (steps.get(atom, 1) if isinstance(atom, Symbol) else 1) for atom, c in matrix.offset.terms]
    return math.gcd(CHUNK_BYTES, itemsize * math.gcd(pitch, matrix.offset.constant, *terms))


@dataclass(frozen=True, slots=True)
class OperandTile:
    """One operand of a dot, and how its tiles are filled."""

    code: PhaseCode
    arch: str
    dot: Dot
    shape: TileShape
    is_left: bool
    threads: int
    """Of the block; all of them fill."""
    rows: str
    """C: rows of the dot."""
    steps: dict[Symbol, int]
    """Of what symbols in offsets are multiples."""
    order: str = "line"
    """C: which row or column stands in a `line`, where lines run along the depth."""

    @property
    def side(self) -> str:
        """C: where the tile that is multiplied lies."""
        return "left" if self.is_left else "right"

    @property
    def matrix(self) -> Matrix:
        return self.dot.lhs if self.is_left else self.dot.rhs

    @property
    def layout(self) -> Layout:
        return layout_of(
            self.matrix, self.shape.rows if self.is_left else self.shape.columns, self.shape, is_left=self.is_left
        )

    @property
    def place(self) -> Place:
        return self.code.places[self.matrix.buffer]

    def chunk_at(self, line: str, chunk: str) -> str:
        """C: where in the tile a chunk of a line stands, in chunks."""
        by_words = self.shape.units == "matrix" and self.layout.by_words
        swizzle = self.code.prelude.use("swizzled_words" if by_words else "swizzled")
        return f"{swizzle}<{self.layout.chunks}>({line}, {chunk})"

    def fill(self, into: str) -> None:
        """Fill the tile at `into`, from depth `step` on, and `top` or `edge` along the result."""
        width = self._copied_bytes()
        if width is None:
            self._by_elements(into)
        else:
            self._by_copies(into, width)

    @property
    def is_copied(self) -> bool:
        """Whether filling goes on behind the thread's back, until it waits."""
        return self._copied_bytes() is not None

    def _copied_bytes(self) -> int | None:
        """Bytes of an asynchronous copy; None where there can be none."""
        place, same = self.place, _is_same(self.place.dtype, self.shape.element)
        if not is_new(self.arch) or place.kind != "memory" or place.shared or not same:
            return None
        aligned = alignment_of(self.matrix, place.dtype.itemsize, self.steps)
        return next((width for width in _COPIED if width <= aligned), None)

    def _position(self, across: str) -> None:
        """Define i and j, the row and the column in the operand, of what is `across` in a `line`."""
        out, along = self.code.out, self.layout.along_depth
        start = "top" if self.is_left else "edge"
        beside, deep = (self.order, across) if along else (across, "line")
        i, j = (f"{start} + {beside}", f"step + {deep}") if self.is_left else (f"step + {deep}", f"{start} + {beside}")
        out.line(f"const int i = {i}, j = {j};")

    def _bounds(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(index, limit) across lines, then along a line."""
        deep = ("j" if self.is_left else "i", str(self.dot.depth))
        beside = ("i", self.rows) if self.is_left else ("j", str(self.dot.columns))
        return (beside, deep) if self.layout.along_depth else (deep, beside)

    def _by_copies(self, into: str, width: int) -> None:
        out, prelude, layout = self.code.out, self.code.prelude, self.layout
        pieces = layout.elements * layout.itemsize // width
        each = CHUNK_BYTES // width
        with self._every(layout.lines * pieces):
            out.line(f"const int line = each / {pieces}, piece = each % {pieces};")
            self._position(f"piece * {width // layout.itemsize}")
            (line, lines), (first, limit) = self._bounds()
            left = f"({limit} - {first}) * {layout.itemsize}"
            whole = limit.isdigit() and int(limit) * layout.itemsize % width == 0
            within = f"{width}" if whole else f"({left} < {width} ? {left} : {width})"
            out.line(f"const int asked = {line} < {lines} && {first} < {limit} ? {within} : 0;")
            inside = "" if each == 1 else f" + piece % {each} * {width}"
            chunk = "piece" if each == 1 else f"piece / {each}"
            target = f"{into} + {self.chunk_at('line', chunk)} * {CHUNK_BYTES}{inside}"
            source = f"{self.place.name} + {matrix_index(self.code, self.matrix)}"
            out.line(f"{prelude.use('copy_async')}<{width}>({target}, {source}, asked);")

    def _by_elements(self, into: str) -> None:
        out, prelude, layout, place = self.code.out, self.code.prelude, self.layout, self.place
        type_ = element_type(self.shape)
        with self._every(layout.lines * layout.elements):
            out.line(f"const int line = each / {layout.elements}, at = each % {layout.elements};")
            self._position("at")
            value = place.read(prelude, f"{place.name}[{matrix_index(self.code, self.matrix)}]")
            dtype = self.shape.element
            if self.shape.units == "matrix":
                held, zero = f"{place.name}[{matrix_index(self.code, self.matrix)}]", f"{type_}()"
                as_it_is = place.dtype == dtype and not place.in_registers
                value = held if as_it_is else scalars.to_memory(prelude, value, dtype)
            else:
                value, zero = scalars.convert(prelude, value, place.dtype, dtype), literal(0, dtype)
            tests = " && ".join(f"{at} < {limit}" for at, limit in self._bounds())
            per = CHUNK_BYTES // layout.itemsize
            at = f"{self.chunk_at('line', f'at / {per}')} * {per} + at % {per}"
            out.line(f"reinterpret_cast<{type_}*>({into})[{at}] = {tests} ? {value} : {zero};")

    def _every(self, count: int) -> AbstractContextManager[None]:
        out = self.code.out
        if count % self.threads == 0:
            out.line("#pragma unroll")
        return out.braces(f"for (int each = threadIdx.x; each < {count}; each += {self.threads})")


def element_type(shape: TileShape) -> str:
    """The C type of what tiles hold."""
    return memory_type(shape.element) if shape.units == "matrix" else register_type(shape.element)


def _is_same(place: DType, element: DType) -> bool:
    """Whether elements can be copied as they are."""
    return place == element and place.kind != "bool"
