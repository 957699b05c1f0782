"""Matrix products: calls of BLAS where it has the dtype and the size is worth a call, else generated loops."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.backends.cpu.codegen import memory
from autofuse.backends.cpu.codegen.indexing import pointer
from autofuse.backends.cpu.codegen.memory import Places
from autofuse.backends.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.backends.cpu.codegen.widths import Widths, register_bits
from autofuse.backends.cpu.scalars import emit_constant, emit_map, emit_tail_mask
from autofuse.backends.cpu.text import FunctionText, Vec
from autofuse.ir.dtypes import BOOL, F32, DType
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lower.tile import Dot, Load, Matrix, Store

_WRAPPERS: Mapping[str, tuple[str, str]] = {"f32": ("af_sgemm", "float"), "f64": ("af_dgemm", "double")}
_WORTH_A_CALL = 4096
"""Products below which a call costs more than it saves."""


def write_dot(fn: FunctionText, places: Places, dot: Dot, group: Group, rows: str, widths: Widths) -> None:
    """Append `out = lhs @ rhs` for the first `rows` (an i64 operand, at most `dot.rows`) rows."""
    if dot.columns == 0 or dot.rows == 0:
        return
    if dot.dtype.name in _WRAPPERS and dot.rows * dot.columns * dot.depth >= _WORTH_A_CALL:
        _call(fn, places, dot, group, rows)
    else:
        _loops(fn, places, dot, group, rows, widths)


def _call(fn: FunctionText, places: Places, dot: Dot, group: Group, rows: str) -> None:
    """`af_?gemm` takes row-major matrices with flags that transpose the factors."""
    name, real = _WRAPPERS[dot.dtype.name]
    m, n = rows, str(dot.columns)
    left, right, out = dot.lhs, dot.rhs, dot.out
    if out.column_stride != 1:  # the transposed product has a row-major result
        m, n = n, m
        left, right, out = _transposed(right), _transposed(left), _transposed(out)
    (left_flag, left_ld), (right_flag, right_ld), (_, out_ld) = (_layout(matrix) for matrix in (left, right, out))
    addresses = [_address(fn, places, matrix, group) for matrix in (left, right, out)]
    one, zero = emit_constant(dot.dtype, 1), emit_constant(dot.dtype, 0)
    types = ["i1", "i1", "i64", "i64", "i64", real, "ptr", "i64", "ptr", "i64", real, "ptr", "i64"]
    values = [
        *(left_flag, right_flag, m, n, str(dot.depth), one, addresses[0], left_ld),
        *(addresses[1], right_ld, zero, addresses[2], out_ld),
    ]
    fn.module.declare(name, "void", types)
    fn.call("void", f"@{name}", list(zip(types, values, strict=True)))


def _transposed(matrix: Matrix) -> Matrix:
    return Matrix(matrix.buffer, matrix.offset, matrix.column_stride, matrix.row_stride)


def _layout(matrix: Matrix) -> tuple[str, str]:
    """(is it stored transposed, leading dimension)."""
    if matrix.column_stride == 1:
        return "false", str(matrix.row_stride)
    return "true", str(matrix.column_stride)


def _address(fn: FunctionText, places: Places, matrix: Matrix, group: Group) -> str:
    place = places[matrix.buffer]
    return pointer(fn, place.base, place.element, matrix.offset, group)


def _loops(fn: FunctionText, places: Places, dot: Dot, group: Group, rows: str, widths: Widths) -> None:
    """Rows outside, vectors of columns, the depth inside; sums kept in registers, in f32 for 16-bit floats."""
    lanes = min(widths.vector_bits // register_bits(dot.dtype), 1 << max(dot.columns - 1, 0).bit_length())
    columns = Symbol("column", dot.columns)
    with counted_loop(fn, "0", rows, 1, nonempty=False, hint="row") as row:
        middle = dot.columns // lanes * lanes
        if middle:
            with counted_loop(fn, "0", str(middle), lanes, nonempty=True, hint="column") as column:
                _vector(fn, places, dot, group, (row, Index(column), columns), lanes, None)
        if middle < dot.columns:
            active = emit_tail_mask(fn, str(dot.columns - middle), lanes)
            _vector(fn, places, dot, group, (row, Index("", middle), columns), lanes, active)


def _vector(
    fn: FunctionText,
    places: Places,
    dot: Dot,
    group: Group,
    at: tuple[str, Index, Symbol],
    lanes: int,
    active: str | None,
) -> None:
    row, column, columns = at
    rows, depths = Symbol("row", dot.rows), Symbol("depth", dot.depth)
    wide = F32 if dot.dtype.is_float and dot.dtype.bits == 16 else dot.dtype
    vec = Vec(wide, lanes)
    spread = Lanes(lanes, columns if lanes > 1 else None)
    outer = group.nested({rows: Index(row), columns: column}, lanes=spread, active=active if lanes > 1 else None)
    cell = fn.alloca(vec.llvm)
    fn.line(f"store {vec.llvm} {emit_constant(wide, 0, lanes)}, ptr {cell}")
    if dot.depth:
        with counted_loop(fn, "0", str(dot.depth), 1, nonempty=True, hint="depth") as depth:
            inner = outer.nested({depths: Index(depth)})
            left = _element(fn, places, dot.lhs, (rows, depths), inner, wide)
            right = _element(fn, places, dot.rhs, (depths, columns), inner, wide)
            product = _combine(fn, "multiply", left, right, wide, lanes)
            seen = fn.emit(f"load {vec.llvm}, ptr {cell}")
            fn.line(f"store {vec.llvm} {_combine(fn, 'add', seen, product, wide, lanes)}, ptr {cell}")
    total = fn.emit(f"load {vec.llvm}, ptr {cell}")
    if wide != dot.dtype:
        total = emit_map(fn, "convert", (total,), (wide,), dot.dtype, lanes)
    outer.values[0] = memory.Value(total, dot.dtype, lanes > 1)
    memory.store(fn, places[dot.out.buffer], Store(dot.out.buffer, _offset(dot.out, rows, columns), 0), outer)


def _element(
    fn: FunctionText, places: Places, matrix: Matrix, at: tuple[Symbol, Symbol], group: Group, wide: DType
) -> str:
    place = places[matrix.buffer]
    number = 0
    group.values[number] = memory.load(fn, place, Load(number, place.dtype, matrix.buffer, _offset(matrix, *at)), group)
    name = group.vector(fn, number)
    lanes = group.lanes.count
    return name if place.dtype == wide else emit_map(fn, "convert", (name,), (place.dtype,), wide, lanes)


def _combine(fn: FunctionText, opcode: str, a: str, b: str, dtype: DType, lanes: int) -> str:
    if dtype == BOOL:
        opcode = {"multiply": "and", "add": "or"}[opcode]
    return emit_map(fn, opcode, (a, b), (dtype, dtype), dtype, lanes)


def _offset(matrix: Matrix, row: Symbol, column: Symbol) -> Affine:
    return matrix.offset + of(row) * matrix.row_stride + of(column) * matrix.column_stride
