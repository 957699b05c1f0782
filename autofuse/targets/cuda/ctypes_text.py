"""How element types and numbers are written in CUDA C.

Values in registers are spelled differently from values in memory:

| dtype    | register              | memory          | note                                       |
|----------|-----------------------|-----------------|--------------------------------------------|
| bool     | `bool`                | `unsigned char` | 0 or 1 in memory                           |
| integers | the C type            | the C type      |                                            |
| f16      | `float`               | `__half`        | always already rounded to half             |
| bf16     | `float`               | `__nv_bfloat16` | always already rounded to bfloat16         |
| f32, f64 | `float`, `double`     | same            |                                            |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.ir.dtypes import DType

_INTEGERS = {
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
}
_REGISTER = {"bool": "bool", "f16": "float", "bf16": "float", "f32": "float", "f64": "double", **_INTEGERS}
_MEMORY = {**_REGISTER, "bool": "unsigned char", "f16": "__half", "bf16": "__nv_bfloat16"}


def register_type(dtype: DType) -> str:
    """The C type of a value of `dtype` in a register."""
    return _REGISTER[dtype.name]


def memory_type(dtype: DType) -> str:
    """The C type of an element of `dtype` in memory."""
    return _MEMORY[dtype.name]


def unsigned_type(dtype: DType) -> str:
    """The unsigned C type of the same width, for integer dtypes."""
    return _INTEGERS[f"u{dtype.bits}"]


def signed_type(dtype: DType) -> str:
    """The signed C type of the same width, for integer dtypes."""
    return _INTEGERS[f"i{dtype.bits}"]


def literal(value: Any, dtype: DType) -> str:
    """A Python or NumPy number, rounded to `dtype`, as an expression of its register type."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(value, dtype)
    number = int(value)
    if dtype.bits == 64:
        return _wide_literal(number, dtype)
    if dtype.name == "u32":
        return f"{number}u"
    if number == -(1 << 31):
        return "(-2147483647 - 1)"
    text = str(number) if number >= 0 else f"({number})"
    return text if dtype.name == "i32" else f"(({_INTEGERS[dtype.name]}){text})"


def _wide_literal(number: int, dtype: DType) -> str:
    if dtype.kind == "uint":
        return f"{number}ULL"
    if number == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    return f"{number}LL" if number >= 0 else f"({number}LL)"


def _float_literal(value: Any, dtype: DType) -> str:
    wide = np.float64 if dtype.name == "f64" else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        number = wide(dtype.numpy.type(value))
    if math.isfinite(number):
        text = str(number) + ("" if dtype.name == "f64" else "f")
        return f"({text})" if text.startswith("-") else text
    if dtype.name == "f64":
        return f"__longlong_as_double({int(number.view(np.uint64)):#x}LL)"
    return f"__int_as_float({int(number.view(np.uint32)):#x})"
