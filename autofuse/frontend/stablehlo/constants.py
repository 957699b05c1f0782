"""Arrays of MLIR attributes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.tensortypes import tensor_type
from autofuse.ir import dtypes
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_LITERAL = re.compile(r"dense<(.*)> : [^>]*>", re.DOTALL)


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


def _of_text(text: str, type_: TensorType) -> Array:
    """An array of bfloat16, which MLIR's bindings do not hand out: from its text, of numbers or of raw bytes."""
    literal = _LITERAL.fullmatch(text)
    body = "" if literal is None else literal[1]
    if body.startswith('"0x'):
        raw = np.frombuffer(bytes.fromhex(body[3:-1]), "<u2")
    else:
        raw = np.array([_bits(number) for number in _NUMBER.findall(body)], np.uint16)
    if raw.size not in (1, type_.size):
        raise UnsupportedOperation(f"has a value of {raw.size} elements where {type_} needs {type_.size}")
    whole = raw if raw.size == type_.size else np.broadcast_to(raw, type_.size)
    return np.ascontiguousarray(whole).view(type_.dtype.numpy).reshape(type_.shape)


def _bits(number: str) -> int:
    if number.startswith("0x"):
        return int(number, 16)
    return int(np.float32(float(number)).astype(dtypes.BF16.numpy).view(np.uint16))
