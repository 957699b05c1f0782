"""Scalar opcodes as CUDA C expressions: maps, conversions, reduction combiners.

Operands are C expressions without side effects and of the highest precedence (names, literals, calls, parenthesised),
so that they may be repeated. Numerics are `strict`: IEEE, one rounding per op, correctly rounded division and square
root; f16 and bf16 are computed in float and rounded after every op. Integer edges as in docs/ops.md. Opcodes that may
be approximated take the forms of `fastmath`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.errors import BackendError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.ops import randombits
from autofuse.ir.optable import scalar_op
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type, signed_type, unsigned_type
from autofuse.targets.cuda.fastmath import fast_form, has_fast_form
from autofuse.targets.cuda.prelude import Prelude

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = {"add": "+", "subtract": "-", "multiply": "*"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")

_FLOAT_CALLS: Mapping[str, str] = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "cbrt", "tanh", "erf")},
    **{name: name for name in ("sin", "cos", "tan", "atan2", "floor", "ceil", "fma")},
    "power": "pow",
    "remainder": "fmod",
    "abs": "fabs",
    "round_nearest_even": "rint",
    "round_nearest_afz": "round",
}
"""Opcode -> C math function, `f` appended for float."""

MATH_NAMES = frozenset(name + f for name in (*_FLOAT_CALLS.values(), "copysign") for f in ("", "f"))
"""C functions that generated code calls."""

_BOOL: Mapping[str, str] = {
    **dict.fromkeys(("add", "or", "maximum"), "({0} || {1})"),
    **dict.fromkeys(("multiply", "and", "minimum"), "({0} && {1})"),
    **dict.fromkeys(("subtract", "xor"), "({0} != {1})"),
    **dict.fromkeys(("abs", "sign"), "{0}"),
    "not": "(!{0})",
    "clamp": "(({1} || {0}) && {2})",
}


def map_expression(
    prelude: Prelude,
    opcode: str,
    operands: Sequence[str],
    operand_dtypes: Sequence[DType],
    result: DType,
    *,
    fast: bool = False,
) -> str:
    """The value of a scalar opcode; `fast`: it may be approximated.

    Raises BackendError for an opcode that the dtype does not have.
    """
    dtype = operand_dtypes[0]
    if fast and has_fast_form(opcode, dtype):
        return narrow(prelude, fast_form(prelude, opcode, operands, dtype), dtype)
    match opcode:
        case "select":
            return f"({operands[0]} ? {operands[1]} : {operands[2]})"
        case "convert":
            return convert(prelude, operands[0], dtype, result)
        case "bitcast_convert":
            return bitcast(prelude, operands[0], dtype, result)
        case _ if opcode in _COMPARISONS:
            return f"({operands[0]} {_COMPARISONS[opcode]} {operands[1]})"
        case _:
            text = _arithmetic(prelude, opcode, operands, dtype)
    if text is None:
        raise BackendError(
            f"scalar opcode {opcode!r} is not defined on {dtype}; convert the operand to a dtype that has it"
        )
    return text


def _arithmetic(prelude: Prelude, opcode: str, operands: Sequence[str], dtype: DType) -> str | None:
    if dtype.kind == "bool":
        return _BOOL[opcode].format(*operands) if opcode in _BOOL else None
    if opcode == "clamp":
        low = f"{prelude.use('maximum')}({operands[1]}, {operands[0]})"
        return f"{prelude.use('minimum')}({low}, {operands[2]})"
    if opcode in ("maximum", "minimum", "sign"):
        return f"{prelude.use(opcode)}({', '.join(operands)})"
    if not dtype.is_float:
        return _integer(prelude, opcode, operands, dtype)
    text = _float(prelude, opcode, operands, dtype)
    if text is None or not scalar_op(opcode).work.rounds:
        return text
    return narrow(prelude, text, dtype)


def _float(prelude: Prelude, opcode: str, operands: Sequence[str], dtype: DType) -> str | None:
    f = "" if dtype.name == "f64" else "f"
    one = "1.0" + f
    match opcode:
        case "add" | "subtract" | "multiply":
            return f"({operands[0]} {_INFIX[opcode]} {operands[1]})"
        case "divide":
            return f"({operands[0]} / {operands[1]})"
        case "negate":
            return f"(-{operands[0]})"
        case "rsqrt":
            return f"({one} / sqrt{f}({operands[0]}))"
        case "logistic":
            return f"({one} / ({one} + exp{f}(-{operands[0]})))"
        case "erf_inv":
            return f"{prelude.use(opcode + f)}({operands[0]})"
        case "is_finite":
            infinity = literal(np.inf, dtypes.F64 if dtype.name == "f64" else dtypes.F32)
            return f"(fabs{f}({operands[0]}) < {infinity})"
        case _:
            name = _FLOAT_CALLS.get(opcode)
            return None if name is None else f"{name}{f}({', '.join(operands)})"


def _integer(prelude: Prelude, opcode: str, operands: Sequence[str], dtype: DType) -> str | None:
    type_, wide = register_type(dtype), "unsigned long long" if dtype.bits == 64 else "unsigned int"
    if opcode in _INFIX:
        return f"({type_})(({wide}){operands[0]} {_INFIX[opcode]} ({wide}){operands[1]})"
    if opcode in _BITWISE:
        return f"({type_})({operands[0]} {_BITWISE[opcode]} {operands[1]})"
    if opcode in _SHIFTS:
        same = unsigned_type(dtype) + (f", {signed_type(dtype)}" if opcode == "shift_right_arithmetic" else "")
        return f"{prelude.use(opcode)}<{same}>({operands[0]}, {operands[1]})"
    if opcode in ("divide", "power", randombits.PHILOX) or opcode in randombits.OPCODES:
        return f"{prelude.use(opcode)}({', '.join(operands)})"
    if opcode == "remainder":
        return f"{prelude.use('remainder_of')}({operands[0]}, {operands[1]})"
    return _unary_integer(opcode, operands[0], dtype, wide)


def _unary_integer(opcode: str, x: str, dtype: DType, wide: str) -> str | None:
    type_, suffix = register_type(dtype), "ll" if dtype.bits == 64 else ""
    negated = f"({type_})(0 - ({wide}){x})"
    bits = f"({unsigned_type(dtype)}){x}"
    match opcode:
        case "not":
            return f"({type_})(~{x})"
        case "negate":
            return negated
        case "abs":
            return x if dtype.kind == "uint" else f"({x} < 0 ? {negated} : {x})"
        case "popcnt":
            return f"({type_})__popc{suffix}({bits})"
        case "count_leading_zeros":
            signed = "long long" if suffix else "int"
            return f"({type_})(__clz{suffix}(({signed}){bits}) - {0 if suffix else 32 - dtype.bits})"
        case _:
            return None


def narrow(prelude: Prelude, text: str, dtype: DType) -> str:
    """A float expression rounded to f16 or bf16; other dtypes as they are."""
    if dtype.name == "f16":
        prelude.header("cuda_fp16.h")
        return f"{prelude.use('round_half')}({text})"
    if dtype.name == "bf16":
        prelude.header("cuda_bf16.h")
        return f"{prelude.use('round_bfloat16')}({text})"
    return text


def convert(prelude: Prelude, x: str, source: DType, target: DType) -> str:
    """StableHLO `convert`: float to integer saturates with NaN to 0, integers wrap, to bool is `!= 0`."""
    if source == target:
        return x
    if target.kind == "bool":
        return f"({x} != {literal(0, source)})"
    if not target.is_float:
        return _float_to_integer(prelude, x, source, target) if source.is_float else f"({register_type(target)}){x}"
    if target.name == "f64":
        return f"(double){x}"
    if source.name == "f64":
        if target.name == "f16":
            prelude.header("cuda_fp16.h")
            return f"__half2float(__double2half({x}))"
        return narrow(prelude, f"(float){x}", target)
    if source.is_float:
        exact = target.name == "f32"
        return x if exact else narrow(prelude, x, target)
    return narrow(prelude, f"(float){x}", target)


def _float_to_integer(prelude: Prelude, x: str, source: DType, target: DType) -> str:
    compute = dtypes.F64 if source.name == "f64" else dtypes.F32
    info = np.iinfo(cast("Any", target.numpy))
    ends = (literal(float(info.min), compute), literal(float(int(info.max) + 1), compute))
    limits = (literal(int(info.min), target), literal(int(info.max), target))
    return f"{prelude.use('saturate')}<{register_type(target)}>({', '.join((x, *ends, *limits))})"


def _bits_of(prelude: Prelude, x: str, dtype: DType) -> str:
    """The bits of a float as an unsigned integer expression."""
    match dtype.name:
        case "f64":
            return f"(unsigned long long)__double_as_longlong({x})"
        case "f32":
            return f"__float_as_uint({x})"
        case "bf16":
            return f"(__float_as_uint({x}) >> 16)"
        case _:
            return f"__half_as_ushort({to_memory(prelude, x, dtype)})"


def _from_bits(prelude: Prelude, x: str, dtype: DType) -> str:
    """The float whose bits are the integer `x` of the same width."""
    bits = f"({unsigned_type(dtypes.I16 if dtype.bits == 16 else dtypes.I32)}){x}"
    match dtype.name:
        case "f64":
            return f"__longlong_as_double((long long){x})"
        case "f32":
            return f"__uint_as_float({bits})"
        case "bf16":
            return f"__uint_as_float((unsigned int){bits} << 16)"
        case _:
            return from_memory(prelude, f"__ushort_as_half({bits})", dtype)


def bitcast(prelude: Prelude, x: str, source: DType, target: DType) -> str:
    """StableHLO `bitcast_convert` between types of one width; the payload of an f16 NaN is lost.

    Raises BackendError for different widths.
    """
    if source.bits != target.bits:
        raise BackendError(
            f"bitcast_convert from {source} ({source.bits} bits) to {target} ({target.bits} bits): element-wise "
            "code needs equal widths; reshape around it instead"
        )
    if source.is_float:
        x = _bits_of(prelude, x, source)
    if target.is_float:
        return _from_bits(prelude, x, target)
    return f"({register_type(target)}){x}"


def from_memory(prelude: Prelude, x: str, dtype: DType) -> str:
    """What was read from memory, as a register value."""
    match dtype.name:
        case "bool":
            return f"({x} != 0)"
        case "f16":
            prelude.header("cuda_fp16.h")
            return f"__half2float({x})"
        case "bf16":
            prelude.header("cuda_bf16.h")
            return f"__bfloat162float({x})"
        case _:
            return x


def to_memory(prelude: Prelude, x: str, dtype: DType) -> str:
    """A register value in the form that memory holds."""
    match dtype.name:
        case "bool":
            return f"({memory_type(dtype)}){x}"
        case "f16":
            prelude.header("cuda_fp16.h")
            return f"__float2half_rn({x})"
        case "bf16":
            prelude.header("cuda_bf16.h")
            return f"__float2bfloat16_rn({x})"
        case _:
            return x


def combine(prelude: Prelude, combiner: str, a: str, b: str, dtype: DType) -> str:
    """One step of a reduction."""
    return map_expression(prelude, combiner, (a, b), (dtype, dtype), dtype)


def shuffled(which: str, value: str, dtype: DType, mask: str, *arguments: str) -> str:
    """What another thread of the warp holds. `which`: the function's, `xor`; empty for that of a numbered thread.

    `arguments`: after the value.
    """
    call = f"__shfl_{which}_sync" if which else "__shfl_sync"
    if dtype.is_float or dtype.bits >= 32:
        return f"{call}({', '.join((mask, value, *arguments))})"
    return f"({register_type(dtype)}){call}({', '.join((mask, f'(int){value}', *arguments))})"


def order_matters(combiner: str, dtype: DType) -> bool:
    """Whether `combine(a, b)` and `combine(b, a)` may differ in bits (zeros of two signs)."""
    return dtype.is_float and combiner in ("minimum", "maximum")


def identity(combiner: str, dtype: DType) -> str:
    """What changes nothing when combined. A float sum starts at -0.0, which keeps a sum of -0.0 at -0.0."""
    if combiner in ("and", "or") and dtype.is_float:
        raise BackendError(f"reduction combiner {combiner} needs a bool or integer dtype, got {dtype}")
    values: Mapping[str, Callable[[], Any]] = {
        "add": lambda: -0.0 if dtype.is_float else 0,
        "multiply": lambda: 1,
        "minimum": lambda: _extreme(dtype, largest=True),
        "maximum": lambda: _extreme(dtype, largest=False),
        "and": lambda: (1 << dtype.bits) - 1 if dtype.kind == "uint" else -1,
        "or": lambda: 0,
    }
    if combiner not in values:
        raise BackendError(f"unknown combiner {combiner!r}; known: {', '.join(values)}")
    return literal(values[combiner](), dtype)


def _extreme(dtype: DType, *, largest: bool) -> Any:
    if dtype.is_float:
        return np.inf if largest else -np.inf
    if dtype.kind == "bool":
        return largest
    info = np.iinfo(cast("Any", dtype.numpy))
    return int(info.max if largest else info.min)
