"""Element types: the closed set autofuse knows, and their NumPy counterparts."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np

from autofuse.errors import GraphError
from autofuse.lazydataclass import dataclass

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type."""

    name: str
    """Short name as in StableHLO text: `f32`, `i64`, `u8`, `bool`."""
    kind: Kind
    bits: int
    """Width of the value; `bool` is stored in 8 bits."""
    numpy: np.dtype[Any]
    """The NumPy dtype, native byte order."""

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned, not bool."""
        return self.kind in ("int", "uint")

    def __repr__(self) -> str:
        return self.name


F16 = DType("f16", "float", 16, np.dtype(np.float16))
BF16 = DType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16))
F32 = DType("f32", "float", 32, np.dtype(np.float32))
F64 = DType("f64", "float", 64, np.dtype(np.float64))
I8 = DType("i8", "int", 8, np.dtype(np.int8))
I16 = DType("i16", "int", 16, np.dtype(np.int16))
I32 = DType("i32", "int", 32, np.dtype(np.int32))
I64 = DType("i64", "int", 64, np.dtype(np.int64))
U8 = DType("u8", "uint", 8, np.dtype(np.uint8))
U16 = DType("u16", "uint", 16, np.dtype(np.uint16))
U32 = DType("u32", "uint", 32, np.dtype(np.uint32))
U64 = DType("u64", "uint", 64, np.dtype(np.uint64))
BOOL = DType("bool", "bool", 8, np.dtype(np.bool_))

ALL: tuple[DType, ...] = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL}


def by_name(name: str) -> DType:
    """The dtype called `name`. Raises GraphError for any other name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise GraphError(f"unknown dtype {name!r}; known: {', '.join(_BY_NAME)}") from None


class ComplexDtypeError(GraphError):
    """Complex numbers: NumPy has them, no graph does."""


def from_numpy(dtype: np.dtype[Any] | type) -> DType:
    """The dtype that stores `dtype`.

    Raises GraphError for strings, objects and foreign byte order, and its child ComplexDtypeError for complex numbers.
    """
    wanted = np.dtype(dtype)
    if wanted.kind == "c":
        raise ComplexDtypeError(f"dtype {wanted} is not supported; complex numbers are left to NumPy")
    try:
        return _BY_NUMPY[wanted]
    except KeyError:
        raise GraphError(
            f"dtype {wanted} is not supported; convert the array to one of: " + ", ".join(str(d.numpy) for d in ALL)
        ) from None
