"""Element types: the closed set autofuse knows, and their NumPy counterparts."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np

from autofuse.errors import GraphError
from autofuse.lazydataclass import dataclass, field

Kind = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. There is one object for each, so that they are compared by identity: they are asked often."""

    name: str
    """Short name as in StableHLO text: `f32`, `i64`, `u8`, `bool`."""
    kind: Kind
    bits: int
    """Width of the value; `bool` is stored in 8 bits."""
    numpy: np.dtype[Any]
    """The NumPy dtype, native byte order."""
    itemsize: int = field(init=False)
    """Bytes of one stored element."""
    is_float: bool = field(init=False)
    is_integer: bool = field(init=False)
    """Signed or unsigned, not bool."""
    is_complex: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "itemsize", self.numpy.itemsize)
        object.__setattr__(self, "is_float", self.kind == "float")
        object.__setattr__(self, "is_integer", self.kind in ("int", "uint"))
        object.__setattr__(self, "is_complex", self.kind == "complex")

    def __reduce__(self) -> tuple[Any, ...]:
        """By its name, so that copies and other processes have their own one object."""
        return by_name, (self.name,)

    @property
    def part(self) -> DType:
        """The dtype of the real and the imaginary part; of a real dtype itself."""
        return _PARTS.get(self.name, self)

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

C64 = DType("c64", "complex", 64, np.dtype(np.complex64))
C128 = DType("c128", "complex", 128, np.dtype(np.complex128))

ALL: tuple[DType, ...] = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
"""What kernels compute with."""
COMPLEX: tuple[DType, ...] = (C64, C128)
"""What programs have besides: `autofuse.passes.complexparts` makes two real numbers of each."""
KNOWN: tuple[DType, ...] = (*ALL, *COMPLEX)
_PARTS = {"c64": F32, "c128": F64}
_BY_NAME = {d.name: d for d in KNOWN}
_BY_NUMPY = {d.numpy: d for d in KNOWN}


def complex_of(part: DType) -> DType:
    """The dtype whose parts are of `part`. Raises ComplexDtypeError where there is none: 16-bit floats, integers."""
    for dtype in COMPLEX:
        if dtype.part is part:
            return dtype
    raise ComplexDtypeError(f"complex numbers have parts of f32 or f64, got {part}; convert them first")


def by_name(name: str) -> DType:
    """The dtype called `name`. Raises GraphError for any other name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise GraphError(f"unknown dtype {name!r:.80}; known: {', '.join(_BY_NAME)}") from None


class ComplexDtypeError(GraphError):
    """Complex numbers where no graph has them: of another width, or in an operation that takes real numbers."""


def from_numpy(dtype: np.dtype[Any] | type) -> DType:
    """The dtype that stores `dtype`.

    Raises GraphError for strings, objects and foreign byte order, and its child ComplexDtypeError for complex numbers
    of more bits.
    """
    wanted = np.dtype(dtype)
    if wanted.kind == "c" and wanted not in _BY_NUMPY and wanted.itemsize > C128.itemsize:
        raise ComplexDtypeError(f"dtype {wanted} is not supported; complex64 and complex128 are")
    try:
        return _BY_NUMPY[wanted]
    except KeyError:
        raise GraphError(
            f"dtype {wanted} is not supported; convert the array to one of: " + ", ".join(str(d.numpy) for d in KNOWN)
        ) from None
