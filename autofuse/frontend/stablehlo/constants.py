"""Arrays of MLIR attributes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.tensortypes import tensor_type
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_LITERAL = re.compile(r"dense<(.*)> : tensor<", re.DOTALL)


def array_of(attribute: Any) -> Array:
    """The array that a `dense<...>` holds. Raises UnsupportedOperation for any other."""
    if type(attribute).__name__ not in ("DenseFPElementsAttr", "DenseIntElementsAttr", "DenseElementsAttr"):
        raise UnsupportedOperation(
            f"has the value {attribute!s:.60}: only dense<...> can be read",
            "write the module with its constants in place: they stand beside it, or were left out when it was printed",
        )
    type_ = tensor_type(str(attribute.type))
    if not type_.size:
        return np.empty(type_.shape, type_.dtype.numpy)
    if type_.dtype == dtypes.BF16:
        return _of_text(str(attribute), type_)
    return np.array(attribute).astype(type_.dtype.numpy, copy=False).reshape(type_.shape)


def complex_array_of(operation: str, type_: TensorType) -> Array:
    """The array of complex numbers in the text of a constant. Raises UnsupportedOperation for any other value."""
    if not type_.size:
        return np.empty(type_.shape, type_.dtype.numpy)
    return _of_text(operation, type_)


def _of_text(text: str, type_: TensorType) -> Array:
    """An array that MLIR's bindings do not hand out: from its text, of numbers or of raw bytes."""
    part = type_.dtype.part
    parts = type_.dtype.itemsize // part.itemsize
    literal = _LITERAL.search(text)
    body = "" if literal is None else literal[1]
    unsigned = np.dtype(f"<u{part.itemsize}")
    if body.startswith('"0x'):
        raw = np.frombuffer(bytes.fromhex(body[3:-1]), unsigned)
    else:
        raw = np.array([_bits(number, part) for number in _NUMBER.findall(body)], unsigned)
    if raw.size not in (parts, parts * type_.size):
        raise UnsupportedOperation(f"has a value of {raw.size // parts} elements where {type_} needs {type_.size}")
    whole = raw if raw.size == parts * type_.size else np.tile(raw, type_.size)
    return np.ascontiguousarray(whole).view(type_.dtype.numpy).reshape(type_.shape)


def _bits(number: str, dtype: DType) -> int:
    if number.startswith("0x"):
        return int(number, 16)
    wide = np.float64(float(number)) if dtype.bits > 32 else np.float32(float(number))
    return int(wide.astype(dtype.numpy).view(np.dtype(f"u{dtype.itemsize}")))
