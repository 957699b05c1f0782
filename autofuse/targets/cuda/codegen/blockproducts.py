"""A matrix product by one block: tiles of both operands pass through shared memory, threads keep small tiles of sums.

    tiles of the first depths come in
    for each round:                       wait for its tiles; meet
                                          tiles of a later round come in, while
                                          these are multiplied

Where matrix units multiply, fragments of the tiles are in registers a step before they are multiplied.

What multiplies is in `tensorproducts` and `fusedproducts`, how tiles come in `operandtiles`, and how large all is in
`producttiles`. A sum is always added up in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Dot, Space
from autofuse.targets.cuda.codegen.fusedproducts import FusedProduct
from autofuse.targets.cuda.codegen.operandtiles import OperandTile
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena
from autofuse.targets.cuda.codegen.products import Product
from autofuse.targets.cuda.codegen.producttiles import (
    COLUMNS,
    ROWS,
    WIDEST,
    TileShape,
    best_tile,
    shape_of,
    tile_element,
    tiles_clocks,
    units_of,
)
from autofuse.targets.cuda.codegen.tensorproducts import SETS, TensorProduct
from autofuse.targets.cuda.gpus import shared_bytes_per_block


def dot_shape(
    dot: Dot,
    buffers: Mapping[str, Buffer],
    arch: str,
    schedule: Schedule,
    rows: int,
    columns: int | None = None,
    *,
    deep: bool = False,
) -> TileShape:
    """The shape of a dot's tiles in a block that does `rows` of its rows at a time, and of its columns `columns`.

    `columns`: of the tile that is a block's; None for a block that does all columns, some at a time. `deep`: whether a
    block has memory to spare for tiles.
    """
    left, right = (_dtype(matrix.buffer, buffers) for matrix in (dot.lhs, dot.rhs))
    most = rows, min(dot.columns, COLUMNS[0]) if columns is None else columns
    return shape_of(dot, left, right, arch, schedule, most, deep=deep)


def _dtype(name: str, buffers: Mapping[str, Buffer]) -> DType:
    return buffers[name].type.dtype


def dot_bytes(dot: Dot, buffers: Mapping[str, Buffer], shape: TileShape) -> int:
    """Shared memory of a dot's tiles."""
    out = buffers[dot.out.buffer]
    return -(-shape.nbytes(None if out.space is Space.SCRATCH else out.type.dtype) // 16) * 16


def wide_columns(dot: Dot, buffers: Mapping[str, Buffer], arch: str) -> tuple[int, ...]:
    """Columns of the widest tiles, if a dot may have such: its result has space in shared memory, on its way out."""
    left, right = (_dtype(matrix.buffer, buffers) for matrix in (dot.lhs, dot.rhs))
    shape = TileShape("matrix", ROWS[0], WIDEST, 0, 0, left)
    fits = shape.nbytes(_dtype(dot.out.buffer, buffers)) <= shared_bytes_per_block(arch)
    return (WIDEST,) if fits and units_of(dot, left, right, arch) == "matrix" else ()


def tile_of(
    dot: Dot,
    buffers: Mapping[str, Buffer],
    arch: str,
    schedule: Schedule,
    rows: int,
    others: int,
    widths: tuple[int, ...],
    most_rows: int = ROWS[0],
) -> tuple[int, int]:
    """Rows and columns of the tiles of a dot with `rows` rows in all: see `best_tile`."""
    left, right = (_dtype(matrix.buffer, buffers) for matrix in (dot.lhs, dot.rhs))
    units, size = units_of(dot, left, right, arch), tile_element(dot, left, right, arch).itemsize
    return best_tile(rows, dot.columns, others, units, size, widths, schedule, most_rows)


def product_clocks(
    dot: Dot, buffers: Mapping[str, Buffer], arch: str, schedule: Schedule, rows: int, others: int
) -> float:
    """Clocks of a step of the depth of a lone product in its best tiles. `others`: of the same kind, itself counted."""
    left, right = (_dtype(matrix.buffer, buffers) for matrix in (dot.lhs, dot.rhs))
    units, size = units_of(dot, left, right, arch), tile_element(dot, left, right, arch).itemsize
    tile = tile_of(dot, buffers, arch, schedule, rows, others, (*wide_columns(dot, buffers, arch), *COLUMNS))
    return tiles_clocks(rows, dot.columns, others, units, size, tile)


class DotWriter:
    """Writes the dots of one phase; they share the memory of their operands' tiles."""

    def __init__(
        self,
        code: PhaseCode,
        arena: SharedArena,
        threads: int,
        buffers: Mapping[str, Buffer],
        dots: Sequence[tuple[Dot, TileShape]],
        steps: dict[Symbol, int],
        least: int,
    ) -> None:
        """`steps`: of what symbols in the offsets of matrices are multiples. `least`: bytes to have in any case."""
        self.code = code
        self.arch = arena.arch
        self.threads = threads
        self.steps = steps
        size = max((dot_bytes(dot, buffers, shape) for dot, shape in dots), default=0)
        self.offset = arena.take(max(size, least), "a dot's operand tiles") if dots else 0
        """Where the operands' tiles lie."""

    def write(self, dot: Dot, shape: TileShape, rows: str, *, row_tile: str | None, column_tile: str | None) -> None:
        """One dot over `rows` rows; the tile numbers are given when a block computes one tile of it."""
        out = self.code.out
        out.line(f"unsigned char* const tiles = shared_memory + {self.offset};")
        with ExitStack() as stack:
            self._tile_loop(stack, "top", row_tile, rows, shape.rows)
            self._tile_loop(stack, "edge", column_tile, str(dot.columns), shape.columns)
            self._tile(dot, shape, rows)

    def _tile_loop(self, stack: ExitStack, name: str, tile: str | None, extent: str, size: int) -> None:
        out = self.code.out
        if tile is not None:
            out.line(f"const int {name} = {tile} * {size};")
        elif extent.isdigit() and int(extent) <= size:
            out.line(f"const int {name} = 0;")
        else:
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {extent}; {name} += {size})"))

    def _tile(self, dot: Dot, shape: TileShape, rows: str) -> None:
        out = self.code.out
        left, right = (
            OperandTile(self.code, self.arch, dot, shape, is_left, self.threads, rows, self.steps)
            for is_left in (True, False)
        )
        product = TensorProduct(left, right) if shape.units == "matrix" else FusedProduct(left, right)
        product.declare()
        for operand in (left, right):
            operand.declare()
        left_bytes = shape.rows * shape.depth * shape.element.itemsize
        with out.braces("const auto fill = [&](int round, int stage)"):
            out.line(f"const int step = round * {shape.depth};")
            out.line("unsigned char* const into = tiles + stage;")
            left.fill("into")
            right.fill(f"into + {left_bytes}")
        out.line(";")
        rounds = _Rounds(self.code, shape, -(-dot.depth // shape.depth), left.is_copied or right.is_copied, left_bytes)
        out.line("__syncthreads();")  # what was computed before may be an operand, or lie where tiles do
        rounds.begin()
        if isinstance(product, TensorProduct):
            rounds.in_advance(product)
        else:
            rounds.one_by_one(product)
        out.line("__syncthreads();")  # the result may lie where the tiles do
        product.store()


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Walks the depth: `here` is where the tiles of a round lie, `free` where those of a later one may come in."""

    code: PhaseCode
    shape: TileShape
    count: int
    copied: bool
    """Whether tiles come in behind a thread's back."""
    left_bytes: int

    @property
    def _ahead(self) -> int:
        """Rounds from asking for tiles to multiplying them."""
        return self.shape.stages - 1

    @property
    def _last(self) -> int:
        """Where the tiles of the last stage lie."""
        return self._ahead * self.shape.stage_bytes

    def _commit(self) -> None:
        if self.copied:
            self.code.out.line(f"{self.code.prelude.use('copy_commit')}();")

    def _meet(self) -> None:
        """The next round's tiles have come, and all are done with those of the round before."""
        if self.copied:
            self.code.out.line(f"{self.code.prelude.use('copy_wait')}<{self._ahead - 1}>();")
        self.code.out.line("__syncthreads();")

    def _fill(self) -> None:
        self.code.out.line(f"if (round + {self._ahead} < {self.count}) fill(round + {self._ahead}, free);")
        self._commit()

    def begin(self) -> None:
        """Ask for the tiles of the first rounds."""
        out = self.code.out
        for number in range(self._ahead):
            if number < self.count:
                out.line(f"fill({number}, {number * self.shape.stage_bytes});")
            self._commit()
        out.line(f"int here = 0, free = {self._last};")

    def _next(self) -> str:
        return f"here == {self._last} ? 0 : here + {self.shape.stage_bytes}"

    def one_by_one(self, product: Product) -> None:
        """Each round reads its tiles as it multiplies them."""
        out = self.code.out
        with out.braces(f"for (int round = 0; round < {self.count}; ++round)"):
            self._meet()
            self._fill()
            out.line("const unsigned char* const left = tiles + here;")
            out.line(f"const unsigned char* const right = left + {self.left_bytes};")
            product.multiply()
            out.line("free = here;")
            out.line(f"here = {self._next()};")

    def in_advance(self, product: TensorProduct) -> None:
        """Fragments of a step are read while those of the step before are multiplied, from round to round too.

        All have read their last fragments of a round when they meet in it, so its tiles may then be filled anew. The
        last round reads fragments that nothing is made of.
        """
        if not self.count:
            return
        out, deep = self.code.out, self.shape.instruction_depth
        reached = self.shape.reached(product.left.dot.depth, deep)
        product.declare_fragments(self.left_bytes)
        self._meet()
        product.load("0", "tiles", "0")
        with out.braces(f"for (int round = 0; round < {self.count}; ++round)"):
            self._fill()
            out.line(f"const int next = {self._next()};")
            out.line("#pragma unroll")  # steps of a round are as many as sets of fragments, or there is one round
            with out.braces(f"for (int k = 0; k < {reached}; k += {deep})"):
                out.line(f"const int now = k / {deep} % {SETS};")
                with out.braces(f"if (k + {deep} < {reached})"):
                    product.load("!now", "tiles + here", f"k + {deep}")
                with out.braces("else"):
                    self._meet()
                    product.load("!now", "tiles + next", "0")
                product.multiply_fragments("now")
            out.line("free = here;")
            out.line("here = next;")
