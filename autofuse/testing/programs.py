"""Hand-built TilePrograms that every backend can be tried on, each the smallest example of its kind.

The same programs are checked on the SIMT shim, on a GPU, and against `autofuse.lower.evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import (
    ArgReduce,
    Buffer,
    Constant,
    Dot,
    Load,
    Map,
    Matrix,
    Panel,
    Phase,
    Position,
    Reduce,
    RowGroup,
    Scalar,
    Scan,
    Space,
    Stage,
    Statement,
    Store,
    Test,
    TileProgram,
)

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_finite"))
DEFAULT = Schedule()


class Body:
    """Writes the statements of one phase, numbering scalars; `stage` closes a stage."""

    def __init__(self) -> None:
        self._statements: list[Statement] = []
        self._types: list[DType] = []

    def _new(self, dtype: DType) -> Scalar:
        self._types.append(dtype)
        return len(self._types) - 1

    def _add(self, statement: Statement, result: Scalar) -> Scalar:
        self._statements.append(statement)
        return result

    def constant(self, dtype: DType, value: bool | int | float) -> Scalar:
        """A Constant."""
        result = self._new(dtype)
        return self._add(Constant(result, dtype, value), result)

    def position(self, dtype: DType, value: Affine) -> Scalar:
        """A Position."""
        result = self._new(dtype)
        return self._add(Position(result, dtype, value), result)

    def test(self, *conditions: Condition) -> Scalar:
        """A Test."""
        result = self._new(dtypes.BOOL)
        return self._add(Test(result, conditions), result)

    def load(self, buffer: Buffer, offset: Affine, mask: Scalar | None = None, fill: Scalar | None = None) -> Scalar:
        """A Load of the buffer's dtype."""
        result = self._new(buffer.type.dtype)
        return self._add(Load(result, buffer.type.dtype, buffer.name, offset, mask, fill), result)

    def map(self, opcode: str, *operands: Scalar, dtype: DType | None = None) -> Scalar:
        """A Map; its dtype is the last operand's, bool for comparisons, unless given."""
        kind = dtype or (dtypes.BOOL if opcode in _COMPARISONS else self._types[operands[-1]])
        result = self._new(kind)
        return self._add(Map(result, kind, opcode, operands), result)

    def reduce(self, combiner: str, operand: Scalar, dtype: DType | None = None) -> Scalar:
        """A Reduce, in the operand's dtype unless given."""
        result = self._new(dtype or self._types[operand])
        return self._add(Reduce(result, self._types[result], combiner, operand), result)

    def arg_reduce(self, direction: str, operand: Scalar, position: Affine, dtype: DType) -> Scalar:
        """An ArgReduce."""
        result = self._new(dtype)
        return self._add(ArgReduce(result, dtype, direction, operand, position), result)

    def scan(self, combiner: str, operand: Scalar, *, reverse: bool = False) -> Scalar:
        """A Scan in the operand's dtype."""
        result = self._new(self._types[operand])
        return self._add(Scan(result, self._types[result], combiner, operand, reverse), result)

    def store(self, buffer: Buffer, offset: Affine, value: Scalar, mask: Scalar | None = None) -> None:
        """A Store."""
        self._statements.append(Store(buffer.name, offset, value, mask))

    def stage(self, *symbols: Symbol, lane: Symbol | None = None) -> Stage:
        """The statements so far as a stage."""
        done = Stage(symbols, tuple(self._statements), lane)
        self._statements = []
        return done


def buffer(name: str, space: Space, dtype: DType, *shape: int) -> Buffer:
    """A buffer by its parts."""
    return Buffer(name, TensorType(shape, dtype), space)


def one_phase(
    name: str,
    buffers: Sequence[Buffer],
    grid: Sequence[Symbol],
    stages: Sequence[Stage],
    *,
    lane: Symbol | None = None,
    schedule: Schedule = DEFAULT,
) -> TileProgram:
    """A program of one launch, one phase, one row group."""
    phase = Phase(tuple(grid), (RowGroup(tuple(stages)),), lane)
    return TileProgram(name, tuple(buffers), ((phase,),), schedule)


def binary(name: str, opcode: str, size: int, dtype: DType = dtypes.F32, schedule: Schedule = DEFAULT) -> TileProgram:
    """`z = opcode(x, y)` over vectors."""
    z_dtype = dtypes.BOOL if opcode in _COMPARISONS else dtype
    x, y = (buffer(n, Space.INPUT, dtype, size) for n in "xy")
    z = buffer("z", Space.OUTPUT, z_dtype, size)
    i, body = Symbol("i0", size), Body()
    at = index.of(i)
    body.store(z, at, body.map(opcode, body.load(x, at), body.load(y, at)))
    return one_phase(name, (x, y, z), (i,), (body.stage(),), lane=i, schedule=schedule)


def unary(name: str, opcode: str, size: int, dtype: DType, result: DType) -> TileProgram:
    """`y = opcode(x)` over vectors, `result` being y's dtype."""
    x, y = buffer("x", Space.INPUT, dtype, size), buffer("y", Space.OUTPUT, result, size)
    i, body = Symbol("i0", size), Body()
    body.store(y, index.of(i), body.map(opcode, body.load(x, index.of(i)), dtype=result))
    return one_phase(name, (x, y), (i,), (body.stage(),), lane=i)


def row_reduce(
    name: str,
    combiner: str,
    rows: int,
    columns: int,
    dtype: DType = dtypes.F32,
    accumulator: DType | None = None,
    schedule: Schedule = DEFAULT,
) -> TileProgram:
    """`y[i] = fold of x[i, :]`; the stage walks columns side by side."""
    kind = accumulator or dtype
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, kind, rows)
    i, k, body = Symbol("i0", rows), Symbol("k0", columns), Body()
    total = body.reduce(combiner, body.load(x, index.of(i) * columns + index.of(k)), kind)
    stages = [body.stage(k, lane=k)]
    body.store(y, index.of(i), total)
    return one_phase(name, (x, y), (i,), (*stages, body.stage()), schedule=schedule)


def column_sum(name: str, rows: int, columns: int, dtype: DType = dtypes.F32) -> TileProgram:
    """`y[j] = sum of x[:, j]`; columns are side by side."""
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, dtype, columns)
    j, k, body = Symbol("i0", columns), Symbol("k0", rows), Body()
    total = body.reduce("add", body.load(x, index.of(k) * columns + index.of(j)))
    stages = [body.stage(k)]
    body.store(y, index.of(j), total)
    return one_phase(name, (x, y), (j,), (*stages, body.stage()), lane=j)


def softmax(name: str, rows: int, columns: int, dtype: DType = dtypes.F32, schedule: Schedule = DEFAULT) -> TileProgram:
    """Softmax over rows: three stages, exponentials kept in scratch."""
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, dtype, rows, columns)
    s = buffer("s", Space.SCRATCH, dtype, columns)
    i, k, body = Symbol("i0", rows), Symbol("k0", columns), Body()
    at, local = index.of(i) * columns + index.of(k), index.of(k)
    largest = body.reduce("maximum", body.load(x, at))
    stages = [body.stage(k, lane=k)]
    power = body.map("exp", body.map("subtract", body.load(x, at), largest))
    body.store(s, local, power)
    total = body.reduce("add", power, dtypes.F32 if dtype.bits == 16 else dtype)
    stages.append(body.stage(k, lane=k))
    total = body.map("convert", total, dtype=dtype)
    body.store(y, at, body.map("divide", body.load(s, local), total))
    stages.append(body.stage(k, lane=k))
    return one_phase(name, (x, y, s), (i,), stages, schedule=schedule)


def mirrored(name: str, rows: int, columns: int, *, down: bool = False) -> TileProgram:
    """`y[i, k] = 2 x[i, -k]`, `z[i, k] = x[i, -k] + 1`: a scratch row is written, read mirrored, and used again.

    `down` mirrors columns instead, with columns side by side.
    """
    dtype = dtypes.F32
    x, y, z = (buffer(n, Space.INPUT if n == "x" else Space.OUTPUT, dtype, rows, columns) for n in "xyz")
    length = rows if down else columns
    s = buffer("s", Space.SCRATCH, dtype, length)
    i, k, body = Symbol("i0", columns if down else rows), Symbol("k0", length), Body()
    at = index.of(k) * columns + index.of(i) if down else index.of(i) * columns + index.of(k)
    lane, mirror = None if down else k, index.of(k) * -1 + (length - 1)
    stages: list[Stage] = []
    for opcode, factor, out in (("multiply", 2.0, y), ("add", 1.0, z)):
        body.store(s, index.of(k), body.map(opcode, body.load(x, at), body.constant(dtype, factor)))
        stages.append(body.stage(k, lane=lane))
        body.store(out, at, body.load(s, mirror))
        stages.append(body.stage(k, lane=lane))
    return one_phase(name, (x, y, z, s), (i,), stages, lane=i if down else None)


def layer_norm(name: str, rows: int, columns: int) -> TileProgram:
    """Layer norm over rows with scale and shift; the centred row in scratch, scalar stages in between."""
    dtype = dtypes.F32
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, dtype, rows, columns)
    scale, shift = (buffer(n, Space.INPUT, dtype, columns) for n in ("scale", "shift"))
    s = buffer("s", Space.SCRATCH, dtype, columns)
    i, k, body = Symbol("i0", rows), Symbol("k0", columns), Body()
    at, local = index.of(i) * columns + index.of(k), index.of(k)
    total = body.reduce("add", body.load(x, at))
    stages = [body.stage(k, lane=k)]
    mean = body.map("divide", total, body.constant(dtype, columns))
    centred = body.map("subtract", body.load(x, at), mean)
    body.store(s, local, centred)
    squares = body.reduce("add", body.map("multiply", centred, centred))
    stages.append(body.stage(k, lane=k))
    variance = body.map("divide", squares, body.constant(dtype, columns))
    inverse = body.map("rsqrt", body.map("add", variance, body.constant(dtype, 1e-5)))
    scaled = body.map("multiply", body.map("multiply", body.load(s, local), inverse), body.load(scale, local))
    body.store(y, at, body.map("add", scaled, body.load(shift, local)))
    stages.append(body.stage(k, lane=k))
    return one_phase(name, (x, scale, shift, y, s), (i,), stages)


def padded(name: str, rows: int, columns: int) -> TileProgram:
    """`y` = `x` with a border of one row above and two columns right, filled with 7; a masked load."""
    x = buffer("x", Space.INPUT, dtypes.F32, rows, columns)
    y = buffer("y", Space.OUTPUT, dtypes.F32, rows + 1, columns + 2)
    i, j, body = Symbol("i0", rows + 1), Symbol("i1", columns + 2), Body()
    mask = body.test(Condition(index.of(i) + -1, 0, rows), Condition(index.of(j), 0, columns))
    value = body.load(x, (index.of(i) + -1) * columns + index.of(j), mask, body.constant(dtypes.F32, 7.0))
    body.store(y, index.of(i) * (columns + 2) + index.of(j), value)
    return one_phase(name, (x, y), (i, j), (body.stage(),), lane=j)


def gathered(name: str, rows: int, columns: int, picks: int) -> TileProgram:
    """`y[p, j] = x[at[p], j]`, the row number clamped."""
    x, at = buffer("x", Space.INPUT, dtypes.F32, rows, columns), buffer("at", Space.INPUT, dtypes.I64, picks)
    y = buffer("y", Space.OUTPUT, dtypes.F32, picks, columns)
    p, j, body = Symbol("i0", picks), Symbol("i1", columns), Body()
    row = body.load(at, index.of(p))
    picked = index.of(Element(row, (), 0, rows - 1))
    body.store(y, index.of(p) * columns + index.of(j), body.load(x, picked * columns + index.of(j)))
    return one_phase(name, (x, at, y), (p, j), (body.stage(),), lane=j)


def row_arg(name: str, direction: str, rows: int, columns: int, dtype: DType = dtypes.F32) -> TileProgram:
    """`y[i]` = the place of the greatest or least of `x[i, :]`, columns side by side."""
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, dtypes.I64, rows)
    i, k, body = Symbol("i0", rows), Symbol("k0", columns), Body()
    value = body.load(x, index.of(i) * columns + index.of(k))
    place = body.arg_reduce(direction, value, index.of(k), dtypes.I64)
    stages = [body.stage(k, lane=k)]
    body.store(y, index.of(i), place)
    return one_phase(name, (x, y), (i,), (*stages, body.stage()))


def column_arg(name: str, direction: str, rows: int, columns: int) -> TileProgram:
    """`y[j]` = the place of the greatest or least of `x[:, j]`; columns are side by side."""
    x, y = buffer("x", Space.INPUT, dtypes.F32, rows, columns), buffer("y", Space.OUTPUT, dtypes.I32, columns)
    j, k, body = Symbol("i0", columns), Symbol("k0", rows), Body()
    value = body.load(x, index.of(k) * columns + index.of(j))
    place = body.arg_reduce(direction, value, index.of(k), dtypes.I32)
    stages = [body.stage(k)]
    body.store(y, index.of(j), place)
    return one_phase(name, (x, y), (j,), (*stages, body.stage()), lane=j)


def running(
    name: str, combiner: str, rows: int, columns: int, dtype: DType, *, along_rows: bool, reverse: bool = False
) -> TileProgram:
    """`cumulative`: down the columns (lanes are columns), or `along_rows` (one lane walks the row in scratch order)."""
    x, y = buffer("x", Space.INPUT, dtype, rows, columns), buffer("y", Space.OUTPUT, dtype, rows, columns)
    i, j, body = Symbol("i0", rows), Symbol("i1", columns), Body()
    at = index.of(i) * columns + index.of(j)
    body.store(y, at, body.scan(combiner, body.load(x, at), reverse=reverse))
    if along_rows:
        return one_phase(name, (x, y), (i,), (body.stage(j),))
    return one_phase(name, (x, y), (j,), (body.stage(i),), lane=j)


def split_sum(name: str, size: int, parts: int) -> TileProgram:
    """The sum of a vector in two launches: `parts` partial sums in a workspace, then one."""
    if size % parts:
        raise LegalityError(f"size must be a multiple of parts={parts}, got {size}")
    each = size // parts
    x, y = buffer("x", Space.INPUT, dtypes.F32, size), buffer("y", Space.OUTPUT, dtypes.F32)
    w = buffer("w", Space.WORKSPACE, dtypes.F32, parts)
    p, k, q, body = Symbol("i0", parts), Symbol("k0", each), Symbol("k1", parts), Body()
    part = body.reduce("add", body.load(x, index.of(p) * each + index.of(k)))
    first = [body.stage(k, lane=k)]
    body.store(w, index.of(p), part)
    first.append(body.stage())
    body = Body()
    total = body.reduce("add", body.load(w, index.of(q)))
    second = [body.stage(q, lane=q)]
    body.store(y, Affine(), total)
    second.append(body.stage())
    launches = ((Phase((p,), (RowGroup(tuple(first)),)),), (Phase((), (RowGroup(tuple(second)),)),))
    return TileProgram(name, (x, y, w), launches, DEFAULT)


def matmul(
    name: str, rows: int, depth: int, columns: int, dtype: DType = dtypes.F32, *, transposed: bool = False
) -> TileProgram:
    """`y = a @ b` (`a @ b.T` if `transposed`), one dot in panels of 256 rows."""
    a = buffer("a", Space.INPUT, dtype, rows, depth)
    b = buffer("b", Space.INPUT, dtype, *((columns, depth) if transposed else (depth, columns)))
    y = buffer("y", Space.OUTPUT, dtype, rows, columns)
    i, local = Symbol("i0", rows), Symbol("r0", min(256, rows))
    rhs = Matrix("b", Affine(), 1, depth) if transposed else Matrix("b", Affine(), columns, 1)
    dot = Dot(
        Matrix("y", index.of(i) * columns, columns, 1),
        Matrix("a", index.of(i) * depth, depth, 1),
        rhs,
        local.extent,
        columns,
        depth,
        dtype,
    )
    phase = Phase((i,), (dot,), None, Panel(i, local, local.extent))
    return TileProgram(name, (a, b, y), ((phase,),), DEFAULT)


def dense(name: str, rows: int, depth: int, columns: int) -> TileProgram:
    """`y = maximum(a @ b + c, 0)`: a dot into panel scratch and an elementwise epilogue."""
    dtype = dtypes.F32
    a, b = buffer("a", Space.INPUT, dtype, rows, depth), buffer("b", Space.INPUT, dtype, depth, columns)
    c, y = buffer("c", Space.INPUT, dtype, columns), buffer("y", Space.OUTPUT, dtype, rows, columns)
    size = min(256, rows)
    t = buffer("t", Space.SCRATCH, dtype, size, columns)
    i, local, k = Symbol("i0", rows), Symbol("r0", size), Symbol("k0", columns)
    dot = Dot(
        Matrix("t", Affine(), columns, 1),
        Matrix("a", index.of(i) * depth, depth, 1),
        Matrix("b", Affine(), columns, 1),
        size,
        columns,
        depth,
        dtype,
    )
    body = Body()
    value = body.map("add", body.load(t, index.of(local) * columns + index.of(k)), body.load(c, index.of(k)))
    positive = body.map("maximum", value, body.constant(dtype, 0.0))
    body.store(y, index.of(i) * columns + index.of(k), positive)
    phase = Phase((i,), (dot, RowGroup((body.stage(k, lane=k),))), None, Panel(i, local, size))
    return TileProgram(name, (a, b, c, y, t), ((phase,),), DEFAULT)


def mlp_softmax(name: str, rows: int, depth: int, columns: int, dtype: DType = dtypes.F32) -> TileProgram:
    """`softmax(a @ b) @ c`: two dots with a row-wise step between them, all in panel scratch (attention's shape)."""
    a, b = buffer("a", Space.INPUT, dtype, rows, depth), buffer("b", Space.INPUT, dtype, depth, columns)
    c, y = buffer("c", Space.INPUT, dtype, columns, depth), buffer("y", Space.OUTPUT, dtype, rows, depth)
    size = min(256, rows)
    t, s = (buffer(n, Space.SCRATCH, dtype, size, columns) for n in ("t", "s"))
    i, local, k = Symbol("i0", rows), Symbol("r0", size), Symbol("k0", columns)
    here = index.of(local) * columns
    first = Dot(
        Matrix("t", Affine(), columns, 1),
        Matrix("a", index.of(i) * depth, depth, 1),
        Matrix("b", Affine(), columns, 1),
        size,
        columns,
        depth,
        dtype,
    )
    body, at = Body(), here + index.of(k)
    largest = body.reduce("maximum", body.load(t, at))
    stages = [body.stage(k, lane=k)]
    power = body.map("exp", body.map("subtract", body.load(t, at), largest))
    body.store(s, at, power)
    total = body.reduce("add", power)
    stages.append(body.stage(k, lane=k))
    body.store(s, at, body.map("divide", body.load(s, at), total))
    stages.append(body.stage(k, lane=k))
    second = Dot(
        Matrix("y", index.of(i) * depth, depth, 1),
        Matrix("s", Affine(), columns, 1),
        Matrix("c", Affine(), depth, 1),
        size,
        depth,
        columns,
        dtype,
    )
    phase = Phase((i,), (first, RowGroup(tuple(stages)), second), None, Panel(i, local, size))
    return TileProgram(name, (a, b, c, y, t, s), ((phase,),), DEFAULT)
