"""Scalar opcodes on register values of any lane count: maps, reduction combiners, constants, splats and tail masks.

Nothing here opens a block in the caller's function: what needs control flow is put into an internal function of the
module. Numerics are IEEE's: one rounding per op, no contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.ir.optable import scalar_op
from autofuse.targets.cpu import integers, vectormath
from autofuse.targets.cpu.conversions import (
    bitcast_convert,
    convert,
    emit_load_conversion,
    emit_store_conversion,
    narrow,
    widen,
)
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.vectormath.lanes import Lanes, Order, constant

__all__ = [
    "OPCODES",
    "Combiner",
    "emit_combine",
    "emit_constant",
    "emit_horizontal",
    "emit_load_conversion",
    "emit_map",
    "emit_splat",
    "emit_store_conversion",
    "emit_tail_mask",
    "identity",
]

Combiner = Literal["add", "multiply", "minimum", "maximum", "and", "or"]

_ORDERS: Mapping[str, Order] = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def _maximum(a: Lanes, b: Lanes) -> Lanes:
    """np.maximum: NaN where either is NaN; of equal values (zeros of two signs) the second."""
    return a.is_nan().select(a, (a > b).select(a, b))


def _minimum(a: Lanes, b: Lanes) -> Lanes:
    return a.is_nan().select(a, (a < b).select(a, b))


def _clamp(low: Lanes, x: Lanes, high: Lanes) -> Lanes:
    return _minimum(_maximum(x, low), high)


def _sign(x: Lanes) -> Lanes:
    nonzero = (x < 0) | (x > 0)
    return nonzero.select(x.like(1.0).copysign(x), x)


def _intrinsic(name: str) -> Callable[..., Lanes]:
    return lambda x, *others: x.intrinsic(name, *others)


def _vector_math(name: str) -> Callable[..., Lanes]:
    return lambda *arguments: vectormath.apply(name, *arguments)


_FLOAT: Mapping[str, Callable[..., Lanes]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": _clamp,
    "negate": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sign": _sign,
    "sqrt": lambda x: x.sqrt(),
    "fma": lambda a, b, c: a.fma(b, c),
    "is_finite": lambda x: x.abs() < np.inf,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round_nearest_even": _intrinsic("rint"),
    "round_nearest_afz": _intrinsic("round"),
    "remainder": _vector_math("fmod"),
    "power": _vector_math("pow"),
} | {name: _vector_math(name) for name in vectormath.NAMES - {"fmod", "pow"}}

_BOOL: Mapping[str, Callable[..., Lanes]] = {
    "add": lambda a, b: a | b,
    "or": lambda a, b: a | b,
    "maximum": lambda a, b: a | b,
    "multiply": lambda a, b: a & b,
    "and": lambda a, b: a & b,
    "minimum": lambda a, b: a & b,
    "subtract": lambda a, b: a ^ b,
    "xor": lambda a, b: a ^ b,
    "not": lambda x: ~x,
    "abs": lambda x: x,
    "sign": lambda x: x,
    "clamp": lambda low, x, high: (x | low) & high,
}

OPCODES = frozenset({*_FLOAT, *_BOOL, *_ORDERS, *integers.OPERATIONS, "select", "convert", "bitcast_convert"})
"""The closed set `emit_map` knows."""


def emit_map(
    fn: FunctionText,
    op: str,
    operands: Sequence[str],
    operand_dtypes: Sequence[DType],
    result_dtype: DType,
    lanes: int,
) -> str:
    """Append the code of scalar opcode `op` (a StableHLO name) lane by lane; returns the result's name.

    `operands` are register values (see `text`) of `operand_dtypes`; clamp takes (low, x, high), select (bool, yes, no).
    The bits of a lane depend on neither `lanes` nor its neighbours. Raises BackendError for an opcode that the dtype
    does not have.
    """
    values = [
        Lanes(fn, name, Vec(dtype, lanes).element, lanes) for name, dtype in zip(operands, operand_dtypes, strict=True)
    ]
    dtype = operand_dtypes[0]
    match op:
        case "select":
            return values[0].select(values[1], values[2]).name
        case "convert":
            return convert(values[0], dtype, result_dtype).name
        case "bitcast_convert":
            return bitcast_convert(values[0], dtype, result_dtype).name
        case _ if op in _ORDERS:
            left, right = (widen(value) for value in values)
            return left.compare(_ORDERS[op], right, unsigned=dtype.kind != "int").name
        case _:
            return _arithmetic(op, values, dtype).name


def _arithmetic(op: str, values: Sequence[Lanes], dtype: DType) -> Lanes:
    if dtype.kind == "bool" and op in _BOOL:
        return _BOOL[op](*values)
    if dtype.is_integer and op in integers.OPERATIONS:
        return integers.OPERATIONS[op](dtype.kind == "uint", *values)
    if dtype.is_float and op in _FLOAT:
        result = _FLOAT[op](*(widen(value) for value in values))
        if result.element == "i1" or (dtype.name == "bf16" and not scalar_op(op).work.rounds):
            return result
        return narrow(result, dtype)
    known = op if op in OPCODES else f"{op} (not one of the opcodes)"
    raise BackendError(f"scalar opcode {known} is not defined on {dtype}; convert the operand to a dtype that has it")


def emit_combine(fn: FunctionText, combiner: str, a: str, b: str, dtype: DType, lanes: int) -> str:
    """One step of a reduction on two register values: add, multiply, minimum, maximum, and, or."""
    return emit_map(fn, combiner, (a, b), (dtype, dtype), dtype, lanes)


def identity(combiner: str, dtype: DType, lanes: int = 1) -> str:
    """The constant that changes nothing when combined. A float sum starts at -0.0, which keeps a sum of -0.0 at -0.0.

    Raises BackendError where `dtype` has no such combiner (and, or of floats).
    """
    if combiner in ("and", "or") and dtype.is_float:
        raise BackendError(f"reduction combiner {combiner} needs a bool or integer dtype, got {dtype}")
    match combiner:
        case "add":
            value: Any = -0.0 if dtype.is_float else 0
        case "multiply":
            value = 1
        case "minimum":
            value = _extreme(dtype, largest=True)
        case "maximum":
            value = _extreme(dtype, largest=False)
        case "and":
            value = True if dtype.kind == "bool" else -1
        case "or":
            value = 0
        case _:
            raise BackendError(f"unknown combiner {combiner!r}; known: add, multiply, minimum, maximum, and, or")
    return constant(Vec(dtype, lanes).element, value, lanes)


def _extreme(dtype: DType, *, largest: bool) -> float | int | bool:
    if dtype.is_float:
        return np.inf if largest else -np.inf
    if dtype.kind == "bool":
        return largest
    info = np.iinfo(cast("Any", dtype.numpy))
    return int(info.max if largest else info.min)


def emit_horizontal(fn: FunctionText, combiner: str, vector: str, dtype: DType, lanes: int) -> str:
    """Reduce the lanes of one vector to a scalar, always in the same tree: lane i with lane i + lanes/2, and again.

    Raises BackendError when `lanes` is not a power of two.
    """
    if lanes & (lanes - 1) or lanes < 1:
        raise BackendError(f"a horizontal reduction needs a power of two lanes, got {lanes}")
    while lanes > 1:
        whole, half = Vec(dtype, lanes).llvm, lanes // 2
        parts = [
            fn.emit(f"shufflevector {whole} {vector}, {whole} poison, <{half} x i32> <{_indices(start, half)}>")
            for start in (0, half)
        ]
        if half == 1:
            element = Vec(dtype, 1).llvm
            parts = [fn.emit(f"extractelement <1 x {element}> {part}, i32 0") for part in parts]
        vector = emit_combine(fn, combiner, parts[0], parts[1], dtype, half)
        lanes = half
    return vector


def _indices(start: int, count: int) -> str:
    return ", ".join(f"i32 {index}" for index in range(start, start + count))


def emit_splat(fn: FunctionText, scalar: str, dtype: DType, lanes: int) -> str:
    """A register scalar (a name or a constant) in every lane."""
    if lanes == 1:
        return scalar
    vec = Vec(dtype, lanes)
    if not scalar.startswith("%"):
        return f"splat ({vec.element} {scalar})"
    first = fn.emit(f"insertelement {vec.llvm} poison, {vec.element} {scalar}, i32 0")
    return fn.emit(f"shufflevector {vec.llvm} {first}, {vec.llvm} poison, <{lanes} x i32> zeroinitializer")


def emit_constant(dtype: DType, value: Any, lanes: int = 1) -> str:
    """A Python or NumPy number as an operand, rounded to `dtype` first; NaN and infinities included."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            value = dtype.numpy.type(value)
    return constant(Vec(dtype, lanes).element, value, lanes)


def emit_tail_mask(fn: FunctionText, remaining: str, lanes: int) -> str:
    """Lanes whose index is below the i64 `remaining`, as `i1` lanes."""
    if lanes == 1:
        return fn.emit(f"icmp sgt i64 {remaining}, 0")
    index = "<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">"
    first = fn.emit(f"insertelement <{lanes} x i64> poison, i64 {remaining}, i32 0")
    limit = fn.emit(f"shufflevector <{lanes} x i64> {first}, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer")
    return fn.emit(f"icmp slt <{lanes} x i64> {index}, {limit}")
