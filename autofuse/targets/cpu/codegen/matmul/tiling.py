"""How a matrix product is cut: register tiles, blocks of the depth, which operands are copied first.

The choice of register tiles counts what a core can do per cycle: two fused multiply-adds on vectors, two loads.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.ir.dtypes import F32, DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Dot, Matrix
from autofuse.targets.cpu.codegen.widths import power_of_two_at_least, register_bits

DEPTH_BYTES = 96 << 10
"""Of the right operand under one register tile: at most this much of the depth is done at a time."""
BLOCK_BYTES = 512 << 10
"""Of the right operand packed at a time, a quarter of a second-level cache."""
LEFT_BYTES = 768 << 10
"""Rows of the left operand that stay in the second-level cache while all columns pass by."""
NEAR_BYTES = 128 << 10
"""A right operand spread over no more memory than this is read where it lies."""
DENSE_BYTES = 512 << 10
"""The same where its rows follow one another without a gap, so that no page holds anything else."""
SHORT_BYTES = 256
"""Rows of an operand that are no further apart are read where they lie, however many: a page holds sixteen."""
FEW_STEPS = 16
"""Block of the depth where a right operand is read once, row after row as it lies."""
_LATENCY = 4.0
"""Cycles of a fused multiply-add."""
_TILE_CYCLES = 30.0
"""Cycles to enter and leave a register tile."""
_RESULT_CYCLES = 1.5
"""Cycles per vector of the result and block of the depth."""
_COPY_CYCLES = 2.5
"""Cycles per vector of an operand that is copied."""
_TURN_CYCLES = 8.0
"""The same where it is transposed on the way."""
_CODE_COST = 0.005
"""Part of a product's time that one tile function less to compile is worth."""
_PAGE = 4096
_FEW_ROWS = 8
"""Up to so many rows a product is bound by reading its right operand."""
_MOST_VECTORS = 3
"""Wider tiles of few rows read too much of the right operand per multiply-add."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Equal runs of tiles along one dimension: `count` tiles of `size`, from `begin` on."""

    begin: int
    count: int
    size: int

    @property
    def end(self) -> int:
        """Where the run ends."""
        return self.begin + self.count * self.size


@dataclass(frozen=True, slots=True)
class Tiling:
    """All decisions about one product."""

    wide: DType
    """What is computed in: f32 for 16-bit floats."""
    lanes: int
    vectors: int
    """Vectors of columns in a register tile."""
    most_rows: int
    """Most rows of a register tile."""
    depth_block: int
    """Steps of the depth that all rows go through before the next ones: whole sum blocks, or a part of one."""
    sum_block: int
    """Steps of the depth that are added in order before their sum is added to the result."""
    pack_right: bool
    """Copy the block of the right operand under a column of tiles into contiguous memory."""
    copy_left: bool
    """Copy the row block's left operand: it needs conversion, or its lines would evict each other."""
    column_block: int
    """Columns of the right operand that are packed together: rows of it are then read in long pieces."""
    depth_outside: bool
    """Walk the blocks of the depth outside the columns: the right operand is then read as it lies in memory."""
    narrow_out: bool
    """The result is stored in a narrower type than it is computed in."""

    @property
    def carries(self) -> bool:
        """The sums of a block are kept in memory from one part of it to the next."""
        return self.depth_block < self.sum_block

    def row_runs(self, rows: int) -> tuple[Tiles, ...]:
        """Register tiles over `rows` rows: as few and as equal as possible."""
        count = -(-rows // self.most_rows)
        size, larger = divmod(rows, count)
        runs = Tiles(0, larger, size + 1), Tiles(larger * (size + 1), count - larger, size)
        return tuple(run for run in runs if run.count)

    def tile_runs(self, columns: int) -> tuple[Tiles, ...]:
        """Whole tiles of columns, then one narrower tile; its `size` counts columns and may be no whole vector."""
        return _runs(columns, self.vectors * self.lanes)

    def blocks(self, columns: int) -> tuple[Tiles, ...]:
        """Blocks of columns."""
        return _runs(columns, self.column_block)

    def depth_runs(self, depth: int) -> tuple[Tiles, ...]:
        """Blocks of the depth."""
        return _runs(depth, self.depth_block)

    def sum_runs(self, depth: int) -> tuple[Tiles, ...]:
        """What a register tile adds in order, of so many steps of the depth."""
        return _runs(depth, self.sum_block)


def _runs(extent: int, size: int) -> tuple[Tiles, ...]:
    """Pieces of `size`, and what is left."""
    whole, rest = divmod(extent, size)
    runs = Tiles(0, whole, size), Tiles(whole * size, 1, rest)
    return tuple(run for run in runs if run.count and run.size)


def plan_tiling(dot: Dot, left: DType, right: DType, vector_bits: int, registers: int) -> Tiling:
    """Decide. `left` and `right` are the types in memory of the operands."""
    wide = F32 if dot.dtype.is_float and dot.dtype.bits == 16 else dot.dtype
    lanes = min(max(vector_bits // register_bits(wide), 1), power_of_two_at_least(dot.columns))
    once = dot.rows <= _FEW_ROWS
    vectors, most_rows = _register_tile(dot, lanes, registers, once)
    near = _lies_near(dot, right)
    pack = right != wide or dot.rhs.column_stride != 1 or not (once or near)
    sequential = once and not pack and not near
    width = vectors * lanes
    in_order = sum_block(dot.depth)
    depth_block = min(FEW_STEPS, in_order) if sequential else _depth_block(dot.depth, in_order, width * wide.itemsize)
    column_block = max(width, BLOCK_BYTES // (depth_block * wide.itemsize) // width * width)
    return Tiling(
        wide=wide,
        lanes=lanes,
        vectors=vectors,
        most_rows=most_rows,
        depth_block=depth_block,
        sum_block=in_order,
        column_block=column_block if pack else max(dot.columns, 1),
        pack_right=pack,
        copy_left=left != wide or _evicts_itself(dot.lhs, dot, left),
        depth_outside=sequential or dot.rows * dot.depth * left.itemsize > LEFT_BYTES,
        narrow_out=wide != dot.dtype,
    )


def _lies_near(dot: Dot, right: DType) -> bool:
    """Whether rows of the right operand are read where they lie: many are on a page, or all in little memory."""
    step = abs(dot.rhs.row_stride) * right.itemsize
    spread = (dot.depth - 1) * step + dot.columns * right.itemsize
    dense = dot.rhs.row_stride == dot.columns
    return step <= SHORT_BYTES or spread <= (DENSE_BYTES if dense else NEAR_BYTES)


def product_cycles(dot: Dot, tiling: Tiling) -> float:
    """Estimated cycles of one core for all of a product, its operands in cache; copies of operands included."""
    steps = sum(
        runs.count * columns.count * (_step_cycles(runs.size, -(-columns.size // tiling.lanes)) * dot.depth)
        for runs in tiling.row_runs(dot.rows)
        for columns in tiling.tile_runs(dot.columns)
    )
    blocks = -(-dot.depth // min(tiling.depth_block, tiling.sum_block))
    tiles = -(-dot.rows // tiling.most_rows) * -(-dot.columns // (tiling.vectors * tiling.lanes)) * blocks
    results = _RESULT_CYCLES * dot.rows * -(-dot.columns // tiling.lanes) * blocks
    copied = dot.rows * dot.depth * tiling.copy_left * _COPY_CYCLES
    packing = _COPY_CYCLES if dot.rhs.column_stride == 1 else _TURN_CYCLES
    copied += dot.depth * dot.columns * tiling.pack_right * packing
    return steps + tiles * _TILE_CYCLES + results + copied / tiling.lanes


def _register_tile(dot: Dot, lanes: int, registers: int, once: bool) -> tuple[int, int]:
    """(vectors, most rows) that need the fewest cycles for the whole product."""
    shapes = [shape for shape in _shapes(registers) if once or shape[0] <= _MOST_VECTORS]
    shapes += [(vectors, most - 1) for vectors, most in shapes if most > 1 and dot.rows % (most - 1) == 0]

    def cycles(shape: tuple[int, int]) -> tuple[float, int]:
        vectors, most = shape
        tiles = -(-dot.rows // most)
        rows = -(-dot.rows // tiles)
        whole, rest = divmod(-(-dot.columns // lanes), vectors)
        total = tiles * (whole * _step_cycles(rows, vectors) + (_step_cycles(rows, rest) if rest else 0))
        functions = (1 + (rest > 0)) * (1 + (dot.rows % tiles > 0))
        return total * (1 + _CODE_COST * functions), abs(vectors - 2)

    return min(shapes, key=cycles)


def _shapes(registers: int) -> Iterator[tuple[int, int]]:
    """(vectors, rows) whose accumulators, with a row of the right operand and one element, fit in registers."""
    for vectors in range(1, 9):
        rows = (registers - 1 - vectors) // vectors
        if rows >= 1:
            yield vectors, min(rows, 24)


def _step_cycles(rows: int, vectors: int) -> float:
    """Cycles per step of the depth: multiply-adds, loads, and the dependence of a sum on the one before."""
    return max(rows * vectors / 2, (rows + vectors) / 2, _LATENCY) + 0.5


def _depth_block(depth: int, in_order: int, row_bytes: int) -> int:
    """As many whole blocks of `in_order` steps as fit into `DEPTH_BYTES`, at least one, spread evenly."""
    sums = max(-(-depth // in_order), 1)
    most = max(1, DEPTH_BYTES // (in_order * row_bytes))
    return -(-sums // -(-sums // most)) * in_order


def _evicts_itself(left: Matrix, dot: Dot, dtype: DType) -> bool:
    """Whether lines read together share so few cache sets that they push each other out, or lie on too many pages."""
    if left.column_stride != 1:
        step = left.column_stride * dtype.itemsize
        return dot.depth > 16 and step > SHORT_BYTES and step * dot.depth > NEAR_BYTES
    return dot.rows > 8 and dot.columns > 64 and dot.depth > 64 and left.row_stride * dtype.itemsize % (_PAGE // 2) == 0
