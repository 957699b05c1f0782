"""Products by matrix units: each warp multiplies fragments of 16 x 16 by 16 x 8 and keeps its sums in registers.

Products of two 16-bit floats are exact; each instruction adds 16 of them to a sum in f32, and the instructions of a sum
run in order of the depth. Units differ in how they round inside an instruction, so a block of the depth, as ordinary
multiply-adds have it, would gain nothing: a depth of 4,096 is 256 roundings or so.

Of f32, which is rounded to TF32, an instruction has half the depth; then the bytes of all fragments are the same, and
lie in the same lanes. Only `ldmatrix` does not turn rows of 32-bit elements: lanes read their words where it would.
"""

from __future__ import annotations

from contextlib import ExitStack

from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.operandtiles import OperandTile, alignment_of, matrix_index
from autofuse.targets.cuda.codegen.places import Place
from autofuse.targets.cuda.codegen.products import Fragment, Product
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, compute_dtype
from autofuse.targets.cuda.ctypes_text import memory_type

_WORD = 4
_TURNED_CHUNKS = 8
"""Chunks of a line that are swizzled among themselves: others are whole groups of them further on."""
_STEP_CHUNKS = 2
"""Chunks of a line that a fragment has."""
SETS = 2
"""Of fragments: one is multiplied, the other is read."""
_MULTIPLY = {"bf16": "multiply_bfloat16", "f16": "multiply_half", "f32": "multiply_tf32"}


@dataclass(frozen=True, slots=True)
class TensorProduct(Product):
    """Instructions of the matrix units.

    In reordered columns, 2 t of each eight is t of the right operand, and 2 t + 1 is t + 4: so a thread has of its sums
    what it needs as a left operand of TF32.
    """

    packed: str = ""
    """The C array of the left operand's fragments, if they are in registers."""

    @property
    def _fragments(self) -> tuple[int, int]:
        """Of a warp, along the rows and the columns."""
        shape = self.left.shape
        down, across = shape.warps
        return shape.rows // down // 16, shape.columns // across // 8

    def stand(self) -> None:
        """Where the thread stands."""
        out, shape = self.code.out, self.left.shape
        down, across = shape.warps
        out.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;")
        out.line(f"const int down = warp / {across} * {shape.rows // down};")
        out.line(f"const int across = warp % {across} * {shape.columns // across};")
        self.declare_places()

    def fragment(self) -> Fragment:
        """The elements that a thread has of the result."""
        count, (fragments, _) = self.left.shape.columns // 4, self._fragments
        of_eight = "n % 2 * 4 + lane % 4" if self.reordered else "lane % 4 * 2 + n % 2"
        return Fragment(
            rows=2 * fragments,
            columns=count,
            row="down + m * 8 + lane / 4",
            column=f"n / 2 * 8 + {of_eight}",
            element="{}[m / 2][n / 2][m % 2 * 2 + n % 2]",
            shape=f"[{fragments}][{count // 2}][4]",
            lanes=4,
        )

    def declare_sums(self) -> None:
        """Arrays, which hold nothing yet."""
        rows, columns = self._fragments
        self.code.out.line(f"float {self.sums}[{rows}][{columns}][4];")

    def clear(self) -> None:
        """All sums become zero."""
        with self._each():
            places = " = ".join(f"{self.sums}[m][n][{place}]" for place in range(4))
            self.code.out.line(f"{places} = 0.0f;")

    def _each(self) -> ExitStack:
        return self.each_of(self._fragments)

    def _warps_only(self) -> ExitStack:
        """The warps that multiply; a block may have more."""
        stack, (down, across) = ExitStack(), self.left.shape.warps
        if self.left.threads != 32 * down * across:
            stack.enter_context(self.code.out.braces(f"if (warp < {down * across})"))
        return stack

    def declare_places(self) -> None:
        """Where a thread reads its first fragments of a tile; others are whole steps further on."""
        for tile in (self.right,) if self.packed else (self.left, self.right):
            if tile.layout.by_words:
                continue
            out, walk = self.code.out, self._walk(tile)
            line, chunk, _ = walk
            count = self._distinct(tile)
            out.line(f"int {tile.own}_at[{count}];")
            out.line("#pragma unroll")
            place = tile.chunk_at(line, f"{chunk} + turn * {_STEP_CHUNKS}")
            out.line(f"for (int turn = 0; turn < {count}; ++turn) {tile.own}_at[turn] = {place} * {CHUNK_BYTES};")

    def declare_fragments(self, left_bytes: int) -> None:
        """Sets of fragments, and how one is read: from tiles that lie `left_bytes` apart."""
        out, (rows, columns) = self.code.out, self._fragments
        out.line(f"unsigned int from_left[{SETS}][{rows}][4], from_right[{SETS}][{columns // 2}][4];")
        with out.braces("const auto load = [&](int set, const unsigned char* left, int k)"):
            out.line(f"const unsigned char* const right = left + {left_bytes};")
            self._load_both("[set]")
        out.line(";")

    def load(self, set_: str, tiles: str, k: str) -> None:
        """Read a set of fragments at depth `k` of the tiles at `tiles`."""
        with self._warps_only():
            self.code.out.line(f"load({set_}, {tiles}, {k});")

    def multiply_fragments(self, set_: str) -> None:
        """Add the products of a set of fragments to the sums."""
        with self._warps_only():
            self._multiply(f"from_left[{set_}][m]", f"from_right[{set_}]")

    def multiply(self) -> None:
        """Add the products of the tiles at `left` and `right` to the sums."""
        out, shape, (rows, columns) = self.code.out, self.left.shape, self._fragments
        deep = shape.instruction_depth
        with self._warps_only():
            out.line("#pragma unroll")
            with out.braces(f"for (int k = 0; k < {shape.reached(self.left.dot.depth, deep)}; k += {deep})"):
                left = "" if self.packed else f"from_left[{rows}][4], "
                out.line(f"unsigned int {left}from_right[{columns // 2}][4];")
                self._load_both("")
                self._multiply(f"{self.packed}[m][k / {deep}]" if self.packed else "from_left[m]", "from_right")

    def _multiply(self, left: str, right: str) -> None:
        """C: `left` is a fragment of rows m, `right` all fragments of columns."""
        with self._each():
            name = self.code.prelude.use(_MULTIPLY[self.left.shape.element.name])
            halves = f"{right}[n / 2][n % 2 * 2], {right}[n / 2][n % 2 * 2 + 1]"
            self.code.out.line(f"{name}({self.sums}[m][n], {left}, {halves});")

    def _load_both(self, set_: str) -> None:
        """Fragments at depth `k` of the tiles at `left` and `right`, into a set: C, an index of the arrays."""
        out, (rows, columns) = self.code.out, self._fragments
        if not self.packed:
            out.line("#pragma unroll")
            out.line(f"for (int m = 0; m < {rows}; ++m) {self._load(self.left, 'm', set_)}")
        out.line("#pragma unroll")
        out.line(f"for (int n = 0; n < {columns // 2}; ++n) {self._load(self.right, 'n', set_)}")

    def _walk(self, tile: OperandTile) -> tuple[str, str, bool]:
        """C: the line and the chunk of it that a lane reads first, and whether matrices are turned on the way.

        Of the left operand, matrices are rows 0-7 and 8-15 of depths 0-7, then of depths 8-15 (of f32 0-3 and 4-7); of
        the right one, depths 0-7 and 8-15 (0-3 and 4-7) of columns 0-7, then of columns 8-15: two fragments.
        """
        along = tile.layout.along_depth
        if tile.is_left:
            if along:
                return "down + lane % 16", "lane / 16", False
            return "lane % 8 + lane / 16 * 8", "down / 8 + lane / 8 % 2", True
        if along:
            return f"across + {self._of_eight('lane % 8')} + lane / 16 * 8", "lane / 8 % 2", False
        assert not self.reordered  # columns are turned on the way, in order
        return "lane % 16", "across / 8 + lane / 16", True

    def _distinct(self, tile: OperandTile) -> int:
        """Fragments along a line whose places differ by more than whole turns of the swizzle."""
        rows, columns = self._fragments
        beside = rows if tile.is_left else columns // 2
        deep = tile.shape.reached(tile.dot.depth, tile.shape.instruction_depth) // tile.shape.instruction_depth
        return max(1, min(_TURNED_CHUNKS // _STEP_CHUNKS, deep if tile.layout.along_depth else beside))

    def _load(self, tile: OperandTile, number: str, set_: str) -> str:
        """C: a fragment, four matrices at once. `number`: of those beside one another along the result."""
        layout, fragment = tile.layout, f"from_{tile.side}{set_}[{number}]"
        rounded = f"{self.code.prelude.use('round_fragment')}({fragment});" if layout.itemsize == _WORD else ""
        if layout.by_words:
            return f"{{ {self._words(tile, number, fragment)} {rounded} }}"
        load = self.code.prelude.use("load_transposed" if self._walk(tile)[2] else "load_matrices")
        along, across = f"k / {tile.shape.instruction_depth}", number
        if not layout.along_depth:
            along, across = across, along
        turns = self._distinct(tile)
        further = f" + {across} * {16 * layout.chunks * CHUNK_BYTES}"
        if turns * _STEP_CHUNKS < layout.chunks:
            further += f" + {along} / {turns} * {turns * _STEP_CHUNKS * CHUNK_BYTES}"
        text = f"{load}({fragment}, {tile.side} + {tile.own}_at[{along} % {turns}]{further});"
        return f"{{ {text} {rounded} }}" if rounded else text

    def _words(self, tile: OperandTile, number: str, fragment: str) -> str:
        """C: the four words of a lane, one by one: word q stands in a line at an element."""
        if tile.is_left:
            line, element = "k + lane % 4 + q / 2 * 4", f"down + {number} * 16 + lane / 4 + q % 2 * 8"
        else:
            line = "k + lane % 4 + q % 2 * 4"
            element = f"across + {number} * 16 + {self._of_eight('lane / 4')} + q / 2 * 8"
        at = f"{tile.chunk_at(line, f'({element}) / 4')} * {CHUNK_BYTES} + ({element}) % 4 * {_WORD}"
        word = f"*reinterpret_cast<const unsigned int*>({tile.side} + {at})"
        return f"for (int q = 0; q < 4; ++q) {fragment}[q] = {word};"

    def _of_eight(self, column: str) -> str:
        """C: which column of eight of the right operand is one of the sums."""
        return f"({column}) / 2 + ({column}) % 2 * 4" if self.reordered else column

    def store(self) -> None:
        """The sums into the result: where it is on chip, else by way of the operands' tiles, in order and in chunks."""
        place = self.out
        if place.shared:
            with self._warps_only():
                self._store_pairs(place.name, self._is_paired(place))
            return
        type_ = memory_type(place.dtype)
        self.code.out.line(f"{type_}* const staged = reinterpret_cast<{type_}*>(tiles);")
        with self._warps_only():
            self._stage()
        self.code.out.line("__syncthreads();")
        self._send()

    def _is_paired(self, place: Place) -> bool:
        """Whether two neighbours can be stored as one."""
        dot = self.left.dot
        pair = 2 * place.dtype.itemsize
        return not dot.accumulate and dot.columns % 2 == 0 and alignment_of(dot.out, pair // 2, {}) >= pair

    def _value(self, sum_: str) -> str:
        """A sum as a register value of the dot's type, as the result's place has it."""
        dot, place = self.left.dot, self.out
        value = scalars.convert(self.code.prelude, sum_, compute_dtype(dot), dot.dtype)
        return scalars.convert(self.code.prelude, value, dot.dtype, place.dtype)

    def _quads(self) -> ExitStack:
        """Each pair of neighbouring sums: rows i in the tile, columns j and the next."""
        stack, out = self._each(), self.code.out
        out.line("#pragma unroll")
        stack.enter_context(out.braces("for (int half = 0; half < 2; ++half)"))
        return stack

    def _store_pairs(self, target: str, paired: bool) -> None:
        out, dot, prelude, place = self.code.out, self.left.dot, self.code.prelude, self.out
        with self._quads():
            out.line("const int i = top + down + m * 16 + half * 8 + lane / 4;")
            if paired:
                out.line("const int j = edge + across + n * 8 + lane % 4 * 2;")
                at = matrix_index(self.code, dot.out)
                with out.braces(f"if (i < {self.left.rows} && j < {dot.columns})"):
                    self._pair(f"{target} + {at}")
                return
            out.line("#pragma unroll")
            with out.braces("for (int next = 0; next < 2; ++next)"):
                out.line("const int j = edge + across + n * 8 + lane % 4 * 2 + next;")
                element = f"{target}[{matrix_index(self.code, dot.out)}]"
                value = self._added(element, self._value(f"{self.sums}[m][n][half * 2 + next]"))
                guard = f"i < {self.left.rows} && j < {dot.columns}"
                out.line(f"if ({guard}) {element} = {place.written(prelude, value)};")

    def _added(self, element: str, value: str) -> str:
        dot, place = self.left.dot, self.out
        if not dot.accumulate:
            return value
        return scalars.map_expression(
            self.code.prelude,
            "add",
            (place.read(self.code.prelude, element), f"({value})"),
            (place.dtype, place.dtype),
            place.dtype,
        )

    def _pair(self, address: str) -> None:
        out, prelude, place = self.code.out, self.code.prelude, self.out
        out.line(f"{prelude.use('Pack')}<{memory_type(place.dtype)}, 2> pair;")
        for n in range(2):
            value = self._value(f"{self.sums}[m][n][half * 2 + {n}]")
            out.line(f"pair.at[{n}] = {place.written(prelude, value)};")
        out.line(f"{prelude.use('store_pack')}({address}, pair);")

    def _stage(self) -> None:
        out, pitch = self.code.out, self.left.shape.staging_pitch
        with self._quads():
            out.line("const int i = down + m * 16 + half * 8 + lane / 4, j = across + n * 8 + lane % 4 * 2;")
            self._pair(f"staged + i * {pitch} + j")

    def _send(self) -> None:
        """Copy the tile of the result from shared memory to where it belongs."""
        out, prelude, place, dot, shape = self.code.out, self.code.prelude, self.out, self.left.dot, self.left.shape
        itemsize = place.dtype.itemsize
        aligned = alignment_of(dot.out, itemsize, self.left.steps) // itemsize
        wide = 1
        while wide * 2 <= aligned and dot.columns % (wide * 2) == 0:
            wide *= 2
        each = shape.columns // wide
        with out.braces(f"for (int each = threadIdx.x; each < {shape.rows * each}; each += {self.left.threads})"):
            out.line(f"const int line = each / {each}, at = each % {each} * {wide};")
            out.line("const int i = top + line, j = edge + at;")
            where, source = matrix_index(self.code, dot.out), f"line * {shape.staging_pitch} + at"
            with out.braces(f"if (i < {self.left.rows} && j < {dot.columns})"):
                if wide == 1:
                    element = f"{place.name}[{where}]"
                    value = self._added(element, place.read(prelude, f"staged[{source}]"))
                    out.line(f"{element} = {place.written(prelude, value)};")
                    return
                type_ = f"{prelude.use('Pack')}<{memory_type(place.dtype)}, {wide}>"
                load = f"{prelude.use('load_pack')}<{wide}>"
                out.line(f"{type_} several = {load}(staged + {source});")
                if dot.accumulate:
                    out.line(f"const {type_} before = {load}({place.name} + {where});")
                    for n in range(wide):
                        value = self._added(f"before.at[{n}]", place.read(prelude, f"several.at[{n}]"))
                        out.line(f"several.at[{n}] = {place.written(prelude, value)};")
                out.line(f"{prelude.use('store_pack')}({place.name} + {where}, several);")
