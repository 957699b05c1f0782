"""Matrix products: generated code, or calls of BLAS, as the schedule says or as suits the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir.dtypes import DType
from autofuse.lower.tile import Dot, Matrix
from autofuse.targets.cpu.codegen.accesses import Places
from autofuse.targets.cpu.codegen.matmul.product import define_product, work_bytes
from autofuse.targets.cpu.codegen.matmul.tiling import Tiling, plan_tiling, product_cycles
from autofuse.targets.cpu.codegen.offsets import pointer
from autofuse.targets.cpu.codegen.values import Group
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_constant

_WRAPPERS: Mapping[str, tuple[str, str]] = {"f32": ("af_sgemm", "float"), "f64": ("af_dgemm", "double")}
_FEW = 4
"""Columns, or rows where the right operand lies transposed, up to which a product is one of matrix and vector, which
needs sums across lanes: BLAS has them."""
_WORTH_A_CALL = 4096
"""Multiply-adds below which a call of BLAS costs more than it saves."""


def calls_library(dot: Dot, policy: str) -> bool:
    """Whether a product is a call of BLAS. `policy` is `Schedule.dots`."""
    if dot.dtype.name not in _WRAPPERS or policy == "generated":
        return False
    if policy == "library":
        return True
    few = dot.columns <= _FEW and dot.lhs.column_stride == 1
    few = few or (dot.rows <= _FEW and dot.rhs.column_stride != 1)
    return few and dot.rows * dot.columns * dot.depth >= _WORTH_A_CALL


def dot_work_bytes(dot: Dot, types: Mapping[str, DType], widths: Widths) -> int:
    """Memory beside scratch that one worker needs for a product. `types`: those of the buffers, by name."""
    if calls_library(dot, widths.products):
        return 0
    return work_bytes(dot, _tiling(dot, types[dot.lhs.buffer], types[dot.rhs.buffer], widths))


def dot_cycles(dot: Dot, types: Mapping[str, DType], widths: Widths) -> float | None:
    """Estimated cycles of one core for a generated product; None for a call of BLAS."""
    if calls_library(dot, widths.products):
        return None
    return product_cycles(dot, _tiling(dot, types[dot.lhs.buffer], types[dot.rhs.buffer], widths))


def write_dot(
    fn: FunctionText,
    places: Places,
    dot: Dot,
    group: Group,
    rows: tuple[str, Sequence[int]],
    widths: Widths,
    work: str,
) -> None:
    """Append `out = lhs @ rhs` for the first rows: an i64 operand, and the values it can have.

    `work` points to `dot_work_bytes` of memory.
    """
    if dot.columns == 0 or dot.rows == 0:
        return
    if calls_library(dot, widths.products):
        _call(fn, places, dot, group, rows[0])
        return
    addresses = [_address(fn, places, matrix, group) for matrix in (dot.lhs, dot.rhs, dot.out)]
    operand, counts = rows
    done = fn.label("multiplied")
    for number, count in enumerate(counts):
        otherwise = ""
        if number + 1 < len(counts):
            here, otherwise = fn.label("rows"), fn.label("others")
            fn.branch_if(fn.emit(f"icmp eq i64 {operand}, {count}"), here, otherwise)
            fn.block(here)
        _generated(fn, places, dot, count, addresses, widths, work)
        fn.branch(done)
        fn.block(otherwise or done)


def _generated(
    fn: FunctionText, places: Places, dot: Dot, rows: int, addresses: Sequence[str], widths: Widths, work: str
) -> None:
    left, right = places[dot.lhs.buffer].dtype, places[dot.rhs.buffer].dtype
    callee = define_product(fn.module, dot, rows, left, right, _tiling(dot, left, right, widths))
    fn.call("void", callee, [("ptr", operand) for operand in (*addresses, work)])


def _tiling(dot: Dot, left: DType, right: DType, widths: Widths) -> Tiling:
    return plan_tiling(dot, left, right, widths.vector_bits, widths.registers)


def _call(fn: FunctionText, places: Places, dot: Dot, group: Group, rows: str) -> None:
    """`af_?gemm` takes row-major matrices with flags that transpose the factors."""
    name, real = _WRAPPERS[dot.dtype.name]
    (left_flag, left_ld), (right_flag, right_ld) = _layout(dot.lhs), _layout(dot.rhs)
    left, right, out = [_address(fn, places, matrix, group) for matrix in (dot.lhs, dot.rhs, dot.out)]
    one, kept = emit_constant(dot.dtype, 1), emit_constant(dot.dtype, int(dot.accumulate))
    types = ["i1", "i1", "i64", "i64", "i64", real, "ptr", "i64", "ptr", "i64", real, "ptr", "i64"]
    values = [
        *(left_flag, right_flag, rows, str(dot.columns), str(dot.depth), one, left, left_ld),
        *(right, right_ld, kept, out, str(dot.out.row_stride)),
    ]
    fn.module.declare(name, "void", types)
    fn.call("void", f"@{name}", list(zip(types, values, strict=True)))


def _layout(matrix: Matrix) -> tuple[str, str]:
    """(is it stored transposed, leading dimension)."""
    if matrix.column_stride == 1:
        return "false", str(matrix.row_stride)
    return "true", str(matrix.column_stride)


def _address(fn: FunctionText, places: Places, matrix: Matrix, group: Group) -> str:
    place = places[matrix.buffer]
    return pointer(fn, place.base, place.element, matrix.offset, group)
