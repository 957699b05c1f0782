"""Copies of operands into contiguous memory, converted on the way; transposed by squares in registers."""

from __future__ import annotations

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.masking import masked_load, masked_store
from autofuse.targets.cpu.codegen.registertranspose import transposed
from autofuse.targets.cpu.codegen.values import counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.scalars import (
    emit_constant,
    emit_load_conversion,
    emit_map,
    emit_store_conversion,
    emit_tail_mask,
)

_FEW_VECTORS = 4
"""Rows of so many vectors are copied without a loop."""


@dataclass(frozen=True, slots=True)
class Side:
    """Rows in memory: the address of the first element (an SSA name), elements per row, type."""

    base: str
    pitch: int
    dtype: DType


def copy_rows(fn: FunctionText, source: Side, target: Side, rows: int, length: int, lanes: int) -> None:
    """`target[i, j] = source[i, j]` for `rows` x `length` elements."""
    if rows and length:
        with counted_loop(fn, "0", str(rows), 1, nonempty=True, hint="row") as row:
            copy_row(fn, source, target, row, length, lanes)


def copy_row(fn: FunctionText, source: Side, target: Side, row: str, length: int, lanes: int) -> None:
    """`target[row, j] = source[row, j]` for `length` elements."""
    lanes = min(lanes, 1 << max(length - 1, 0).bit_length())
    middle = length // lanes * lanes

    def vector(at: str, mask: str | None) -> None:
        value = load(fn, source, row, at, lanes, mask)
        store(fn, target, row, at, converted(fn, value, source.dtype, target.dtype, lanes), lanes, mask)

    if middle <= _FEW_VECTORS * lanes:
        for at in range(0, middle, lanes):
            vector(str(at), None)
    else:
        with counted_loop(fn, "0", str(middle), lanes, nonempty=True, hint="at") as at:
            vector(at, None)
    if middle < length:
        vector(str(middle), emit_tail_mask(fn, str(length - middle), lanes))


def clear_rows(fn: FunctionText, target: Side, rows: int, length: int) -> None:
    """`target[i, j] = 0`."""
    with (
        counted_loop(fn, "0", str(rows), 1, nonempty=True, hint="row") as row,
        counted_loop(fn, "0", str(length), 1, nonempty=True, hint="at") as at,
    ):
        store(fn, target, row, at, emit_constant(target.dtype, 0), 1, None)


def copy_transposed(
    fn: FunctionText, source: Side, target: Side, columns: int, depth: int, lanes: int, valid: int | None = None
) -> None:
    """`target[k, j] = source[j, k]` for `depth` rows k and `columns` columns j of the target, a multiple of `lanes`.

    Columns from `valid` on exist in the target only, and get copies of the last valid one.
    """
    valid = columns if valid is None else valid
    middle = depth // lanes * lanes
    whole = valid // lanes * lanes

    def column_of_squares(first: str, clamp: int) -> None:
        if middle:
            with counted_loop(fn, "0", str(middle), lanes, nonempty=True, hint="k") as k:
                _square(fn, source, target, (first, clamp), k, lanes, lanes)
        if middle < depth:
            _square(fn, source, target, (first, clamp), str(middle), lanes, depth - middle)

    if whole > lanes:
        with counted_loop(fn, "0", str(whole), lanes, nonempty=True, as_written=True, hint="square") as first:
            column_of_squares(first, lanes)
    elif whole:
        column_of_squares("0", lanes)
    if whole < columns:
        column_of_squares(str(whole), valid - whole)


def _square(
    fn: FunctionText, source: Side, target: Side, columns: tuple[str, int], k: str, lanes: int, rows: int
) -> None:
    """Columns from the first on, of which so many are valid."""
    first, valid = columns
    mask = emit_tail_mask(fn, str(rows), lanes) if rows < lanes else None
    vec = Vec(target.dtype, lanes)
    loaded: list[str] = []
    for column in range(lanes):
        at = fn.emit(f"add nuw nsw i64 {first}, {min(column, valid - 1)}")
        value = load(fn, source, at, k, lanes, mask)
        value = converted(fn, value, source.dtype, target.dtype, lanes)
        loaded.append(emit_store_conversion(fn, value, target.dtype, lanes))
    for number, value in enumerate(transposed(fn, loaded, vec.memory_element)[:rows]):
        row = fn.emit(f"add nuw nsw i64 {k}, {number}")
        fn.line(f"store {vec.memory} {value}, ptr {_address(fn, target, row, first)}, align {target.dtype.itemsize}")


def converted(fn: FunctionText, value: str, source: DType, target: DType, lanes: int) -> str:
    """A register value in another type."""
    return value if source == target else emit_map(fn, "convert", (value,), (source,), target, lanes)


def load(fn: FunctionText, side: Side, row: str, column: str, lanes: int, mask: str | None) -> str:
    """A vector of a row, in its register type; elements where `mask` is false are not read."""
    vec = Vec(side.dtype, lanes)
    address = _address(fn, side, row, column)
    if mask is None or lanes == 1:
        raw = fn.emit(f"load {vec.memory}, ptr {address}, align {side.dtype.itemsize}")
    else:
        raw = masked_load(fn, vec, address, mask)
    return emit_load_conversion(fn, raw, side.dtype, lanes)


def store(fn: FunctionText, side: Side, row: str, column: str, value: str, lanes: int, mask: str | None) -> None:
    """Write a vector of a row from its register type."""
    vec = Vec(side.dtype, lanes)
    address = _address(fn, side, row, column)
    raw = emit_store_conversion(fn, value, side.dtype, lanes)
    if mask is None or lanes == 1:
        fn.line(f"store {vec.memory} {raw}, ptr {address}, align {side.dtype.itemsize}")
        return
    masked_store(fn, vec, raw, address, mask)


def _address(fn: FunctionText, side: Side, row: str, column: str) -> str:
    element = Vec(side.dtype, 1).memory_element
    start = fn.emit(f"mul nuw nsw i64 {row}, {side.pitch}")
    offset = fn.emit(f"add nuw nsw i64 {start}, {column}")
    return fn.emit(f"getelementptr inbounds {element}, ptr {side.base}, i64 {offset}")
