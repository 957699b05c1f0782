"""A matrix product by one block: tiles of both operands pass through shared memory, threads keep small tiles of sums.

    tiles of the first depths come in
    for each round:                       wait for its tiles; meet
                                          tiles of a later round come in, while
                                          these are multiplied

What multiplies is in `tensorproducts` and `fusedproducts`, how tiles come in `operandtiles`, and how large all is in
`producttiles`. A sum is always added up in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Dot, Space
from autofuse.targets.cuda.codegen.fusedproducts import FusedProduct
from autofuse.targets.cuda.codegen.operandtiles import OperandTile
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena
from autofuse.targets.cuda.codegen.producttiles import ROWS, TileShape, best_tile, shape_of, tile_element, units_of
from autofuse.targets.cuda.codegen.tensorproducts import TensorProduct


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

    `deep`: whether a block has memory to spare for tiles.
    """
    left, right = (_dtype(matrix.buffer, buffers) for matrix in (dot.lhs, dot.rhs))
    return shape_of(dot, left, right, arch, schedule, (rows, columns or dot.columns), deep=deep)


def _dtype(name: str, buffers: Mapping[str, Buffer]) -> DType:
    return buffers[name].type.dtype


def dot_bytes(dot: Dot, buffers: Mapping[str, Buffer], shape: TileShape) -> int:
    """Shared memory of a dot's tiles."""
    out = buffers[dot.out.buffer]
    return -(-shape.nbytes(None if out.space is Space.SCRATCH else out.type.dtype) // 16) * 16


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
        out, use = self.code.out, self.code.prelude.use
        left, right = (
            OperandTile(self.code, self.arch, dot, shape, is_left, self.threads, rows, self.steps)
            for is_left in (True, False)
        )
        product = TensorProduct(left, right) if shape.units == "matrix" else FusedProduct(left, right)
        product.declare()
        rounds, ahead = -(-dot.depth // shape.depth), shape.stages - 1
        left_bytes = shape.rows * shape.depth * shape.element.itemsize
        stage = f"round % {shape.stages} * {shape.stage_bytes}"
        with out.braces("const auto fill = [&](int round)"):
            out.line(f"const int step = round * {shape.depth};")
            out.line(f"unsigned char* const into = tiles + {stage};")
            left.fill("into")
            right.fill(f"into + {left_bytes}")
        out.line(";")
        copied = left.is_copied or right.is_copied
        out.line("__syncthreads();")
        for number in range(ahead):
            if number < rounds:
                out.line(f"fill({number});")
            if copied:
                out.line(f"{use('copy_commit')}();")
        with out.braces(f"for (int round = 0; round < {rounds}; ++round)"):
            if copied:
                out.line(f"{use('copy_wait')}<{ahead - 1}>();")
            out.line("__syncthreads();")
            out.line(f"if (round + {ahead} < {rounds}) fill(round + {ahead});")
            if copied:
                out.line(f"{use('copy_commit')}();")
            out.line(f"const unsigned char* const left = tiles + {stage};")
            out.line(f"const unsigned char* const right = left + {left_bytes};")
            product.multiply()
        out.line("__syncthreads();")  # the result may lie where the tiles do
        product.store()
