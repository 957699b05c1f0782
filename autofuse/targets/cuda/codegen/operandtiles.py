"""Bringing a tile of an operand into shared memory: by asynchronous copies, or element by element.

What lies outside the operand becomes 0, so that products of it add nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

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
_TURNED = 8
"""Lines after which chunks are swizzled alike."""
_MOST_TURNS = 16
"""Copies of a tile that a thread makes one behind the other, without a loop."""


def matrix_index(code: PhaseCode, matrix: Matrix, row: str = "i", column: str = "j") -> str:
    """Where element (`row`, `column`) of a matrix is, as C: names of integers."""
    texts = [] if matrix.offset == Affine() else [unwrapped(code.affine(matrix.offset))]
    places = (row, matrix.row_stride), (column, matrix.column_stride)
    return " + ".join((*texts, *(steps_of(code, name, stride) for name, stride in places)))


def steps_of(code: PhaseCode, name: str, stride: int) -> str:
    """So many strides, as C: in the type of indices."""
    wide = f"({code.index.type}){name}" if code.index.type != "int" else name
    return name if stride == 1 else f"{wide} * {stride}"


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
    name: str = ""
    """C: what its names begin with, beside others of the same side."""

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

    @property
    def own(self) -> str:
        """C: what names of this operand begin with."""
        return self.name or self.side

    def declare(self) -> None:
        """Where the thread begins to copy: in memory, of a tile at the beginning of the operand, and in the tile."""
        copied = self._copied
        if copied is None or not copied.is_regular:
            return
        code, own, layout, along = self.code, self.own, self.layout, self.layout.along_depth
        elements = copied.width // layout.itemsize
        code.out.line(
            f"const int {own}_line = threadIdx.x / {copied.pieces}, "
            f"{own}_along = threadIdx.x % {copied.pieces} * {elements};"
        )
        names = (f"{own}_line", f"{own}_along") if along == self.is_left else (f"{own}_along", f"{own}_line")
        source = matrix_index(code, self.matrix, *names)
        code.out.line(f"const {memory_type(self.place.dtype)}* const {own}_from = {self.place.name} + {source};")
        per = CHUNK_BYTES // layout.itemsize
        place = f"{self.chunk_at(f'{own}_line', f'{own}_along / {per}')} * {CHUNK_BYTES}"
        inside = "" if copied.width == CHUNK_BYTES else f" + {own}_along % {per} * {layout.itemsize}"
        code.out.line(f"const int {own}_into = {place}{inside};")

    def fill(self, into: str) -> None:
        """Fill the tile at `into`, from depth `step` on, and `top` or `edge` along the result. Needs `declare`."""
        copied = self._copied
        if copied is None:
            self._by_elements(into)
        elif copied.is_regular:
            self._by_regular_copies(into, copied)
        else:
            self._by_copies(into, copied)

    @property
    def is_copied(self) -> bool:
        """Whether filling goes on behind the thread's back, until it waits."""
        return self._copied is not None

    @property
    def _copied(self) -> _Copied | None:
        """How asynchronous copies fill a tile; None where there can be none."""
        place, layout = self.place, self.layout
        same = _is_same(place.dtype, self.shape.element)
        if not is_new(self.arch) or place.kind != "memory" or place.shared or not same:
            return None
        aligned = alignment_of(self.matrix, place.dtype.itemsize, self.steps)
        width = next((width for width in _COPIED if width <= aligned), None)
        if width is None:
            return None
        pieces = layout.elements * layout.itemsize // width
        regular = self.order == "line" and self.threads % (_TURNED * pieces) == 0
        return _Copied(width, pieces, layout.lines * pieces, is_regular=regular)

    @property
    def _starts(self) -> tuple[str, str]:
        """C: where the tile begins, across lines and along a line."""
        beside = "top" if self.is_left else "edge"
        return (beside, "step") if self.layout.along_depth else ("step", beside)

    @property
    def _limits(self) -> tuple[str, str]:
        """C: of the operand, across lines and along a line; empty where a tile never reaches behind its end."""
        depth, shape = self.dot.depth, self.shape
        deep = "" if depth % shape.depth == 0 else str(depth)
        extent, size = (self.rows, shape.rows) if self.is_left else (str(self.dot.columns), shape.columns)
        beside = "" if extent.isdigit() and int(extent) % size == 0 else extent
        return (beside, deep) if self.layout.along_depth else (deep, beside)

    def _position(self, across: str) -> None:
        """Define i and j, the row and the column in the operand, of what is `across` in a `line`."""
        out, along = self.code.out, self.layout.along_depth
        start = "top" if self.is_left else "edge"
        beside, deep = (self.order, across) if along else (across, "line")
        i, j = (f"{start} + {beside}", f"step + {deep}") if self.is_left else (f"step + {deep}", f"{start} + {beside}")
        out.line(f"const int i = {i}, j = {j};")

    def _asked(self, line: str, first: str, width: int) -> str:
        """C: bytes of a copy that are the operand's. `line`, `first`: where it is across lines and along a line."""
        lines, limit = self._limits
        itemsize, whole = self.layout.itemsize, str(width)
        if limit and not (limit.isdigit() and int(limit) * itemsize % width == 0):
            left = f"({limit} - ({first})) * {itemsize}"
            whole = f"({left} < {width} ? {left} : {width})"
        tests = [f"{at} < {end}" for at, end in ((line, lines), (first, limit)) if end]
        return f"{' && '.join(tests)} ? {whole} : 0" if tests else whole

    def _by_regular_copies(self, into: str, copied: _Copied) -> None:
        """Lines that a thread copies are equally far apart, and so are their places in the tile."""
        code, out, own, matrix = self.code, self.code.out, self.own, self.matrix
        start, first = self._starts
        lines = self.threads // copied.pieces
        across, along = matrix.row_stride, matrix.column_stride
        if self.layout.along_depth != self.is_left:
            across, along = along, across
        begin = f"{own}_from + {steps_of(code, start, across)} + {steps_of(code, first, along)}"
        out.line(f"const {memory_type(self.place.dtype)}* const {own}_next = {begin};")
        asked = self._asked(f"{start} + {own}_line + n * {lines}", f"{first} + {own}_along", copied.width)
        with self._each_copy(copied.count):
            target = f"{into} + {own}_into + n * {lines * self.layout.chunks * CHUNK_BYTES}"
            source = f"{own}_next + {steps_of(code, 'n', lines * across)}"
            out.line(f"{code.prelude.use('copy_async')}<{copied.width}>({target}, {source}, {asked});")

    def _by_copies(self, into: str, copied: _Copied) -> None:
        out, prelude, layout, pieces, width = self.code.out, self.code.prelude, self.layout, copied.pieces, copied.width
        each = CHUNK_BYTES // width
        with self._each_copy(copied.count):
            out.line(f"const int each = threadIdx.x + n * {self.threads};")
            out.line(f"const int line = each / {pieces}, piece = each % {pieces};")
            self._position(f"piece * {width // layout.itemsize}")
            across, along = ("i", "j") if layout.along_depth == self.is_left else ("j", "i")
            inside = "" if each == 1 else f" + piece % {each} * {width}"
            chunk = "piece" if each == 1 else f"piece / {each}"
            target = f"{into} + {self.chunk_at('line', chunk)} * {CHUNK_BYTES}{inside}"
            source = f"{self.place.name} + {matrix_index(self.code, self.matrix)}"
            asked = self._asked(across, along, width)
            out.line(f"{prelude.use('copy_async')}<{width}>({target}, {source}, {asked});")

    def _by_elements(self, into: str) -> None:
        out, prelude, layout, place = self.code.out, self.code.prelude, self.layout, self.place
        type_ = element_type(self.shape)
        with self._each_copy(layout.lines * layout.elements):
            out.line(f"const int each = threadIdx.x + n * {self.threads};")
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
            names = ("i", "j") if layout.along_depth == self.is_left else ("j", "i")
            tests = " && ".join(f"{at} < {limit}" for at, limit in zip(names, self._limits, strict=True) if limit)
            per = CHUNK_BYTES // layout.itemsize
            at = f"{self.chunk_at('line', f'at / {per}')} * {per} + at % {per}"
            chosen = f"{tests} ? {value} : {zero}" if tests else value
            out.line(f"reinterpret_cast<{type_}*>({into})[{at}] = {chosen};")

    @contextmanager
    def _each_copy(self, count: int) -> Generator[None]:
        """Those of the thread among `count`, by n.

        How many there are does not depend on the thread, so that the compiler writes them out: all of them, or where
        few threads have many, some at a time, as it would keep the addresses of all in registers.
        """
        out, threads = self.code.out, self.threads
        turns = -(-count // threads)
        if count % threads == 0:
            out.line("#pragma unroll" if turns <= _MOST_TURNS else f"#pragma unroll {_MOST_TURNS}")
        with ExitStack() as stack:
            stack.enter_context(out.braces(f"for (int n = 0; n < {turns}; ++n)"))
            if count % threads:
                stack.enter_context(out.braces(f"if (threadIdx.x + n * {threads} < {count})"))
            yield


@dataclass(frozen=True, slots=True)
class _Copied:
    """Asynchronous copies of one tile."""

    width: int
    """Bytes of one."""
    pieces: int
    """Copies of a line."""
    count: int
    """Of the tile, by all threads."""
    is_regular: bool
    """Whether a thread has the same piece of lines that are equally far apart, by whole turns of the swizzle."""


def element_type(shape: TileShape) -> str:
    """The C type of what tiles hold."""
    return memory_type(shape.element) if shape.units == "matrix" else register_type(shape.element)


def _is_same(place: DType, element: DType) -> bool:
    """Whether elements can be copied as they are."""
    return place == element and place.kind != "bool"
