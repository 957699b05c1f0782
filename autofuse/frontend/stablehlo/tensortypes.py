"""Types of MLIR tensors, from their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from autofuse.errors import GraphError
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_TENSOR = re.compile(r"tensor<((?:[0-9?]+x)*)([A-Za-z0-9]+|complex<[a-z0-9]+>)>")
_SEPARATOR = re.compile(r", (?=[!\w]+[<.]|\()")
"""Between types, not within one."""
ELEMENTS: Mapping[str, DType] = {
    "i1": dtypes.BOOL,
    **{f"i{d.bits}": d for d in dtypes.ALL if d.kind == "int"},
    **{f"ui{d.bits}": d for d in dtypes.ALL if d.kind == "uint"},
    **{d.name: d for d in dtypes.ALL if d.is_float},
    **{f"complex<{d.part}>": d for d in dtypes.COMPLEX},
}
_WHY: tuple[tuple[str, str], ...] = (
    ("!quant.", "is quantised, which autofuse is not"),
    ("!stablehlo.token", "is a token: it orders effects (callbacks, printing), which a plan has none of"),
    ("!mhlo.token", "is a token: it orders effects (callbacks, printing), which a plan has none of"),
    ("tuple<", "is a tuple, which only functions inside the module may take and return"),
)


@dataclass(frozen=True, slots=True)
class Shaped:
    """A tensor type some of whose extents may be unknown."""

    shape: tuple[int | None, ...]
    """None where the extent is known only for the arguments of a call."""
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if n is None else str(n) for n in self.shape)}]"


@lru_cache(maxsize=4096)
def shaped(text: str) -> Shaped:
    """The type that MLIR writes so. Raises UnsupportedOperation for what no graph holds."""
    found = _TENSOR.fullmatch(text)
    if found is None:
        reason = next((why for mark, why in _WHY if mark in text), "is a type that autofuse does not have")
        raise UnsupportedOperation(f"has a value of type {text:.80}, which {reason}")
    extents, element = found.groups()
    dtype = ELEMENTS.get(element)
    if dtype is None:
        known = ", ".join(ELEMENTS)
        raise UnsupportedOperation(f"has elements of {element}; autofuse has {known}", "convert it to one of these")
    return Shaped(tuple(None if n == "?" else int(n) for n in extents.split("x")[:-1]), dtype)


@lru_cache(maxsize=4096)
def tensor_type(text: str) -> TensorType:
    """The type that MLIR writes so. Raises UnsupportedOperation for unknown extents, and as `shaped` does."""
    found = shaped(text)
    extents = tuple(n for n in found.shape if n is not None)
    if len(extents) < len(found.shape):
        raise UnsupportedOperation(
            f"has the shape {text}, which the arguments' shapes do not decide", "export the program for fixed shapes"
        )
    try:
        return TensorType(extents, found.dtype)
    except GraphError as error:
        raise UnsupportedOperation(f"has a value that cannot be: {error}") from None


@lru_cache(maxsize=4096)
def results_of(text: str) -> tuple[TensorType, ...]:
    """The types behind the arrow of an operation's types: one, or several in parentheses."""
    results = text.partition(") -> ")[2]
    if not results.startswith("("):
        return (tensor_type(results),)
    return tuple(tensor_type(part) for part in _SEPARATOR.split(results[1:-1]) if part)


def mlir_text(type_: TensorType) -> str:
    """How MLIR writes a type."""
    name = next(name for name, dtype in ELEMENTS.items() if dtype == type_.dtype)
    return f"tensor<{''.join(f'{n}x' for n in type_.shape)}{name}>"
