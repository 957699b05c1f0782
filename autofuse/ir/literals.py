"""Attribute values as text: numbers, strings, dtypes, types, lists of them, and arrays bit by bit.

An array is `dense<f32[3]: 1.0, 2.5, nan>`; an element whose decimal form would lose bits (a NaN with a payload) is
given by them, `0x7fc00001`. Arrays above 1 KB are `dense<f32[2048]: @HASH>` and travel in a side table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.dtypes import DType
from autofuse.ir.types import TensorType, of_array

Array = NDArray[Any]
INLINE_BYTES = 1024
"""Arrays of more bytes are referred to by their hash."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def value_name(name: str) -> str:
    """`%name`, quoted where it is no plain word."""
    return "%" + (name if _PLAIN.fullmatch(name) else json.dumps(name))


def attribute_text(value: Any, constants: dict[str, Array] | None = None) -> str:
    """The text of one attribute value. Large arrays are added to `constants` under their hash."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value)
        case float():
            return repr(value)
        case tuple():
            items = cast("tuple[Any, ...]", value)
            return f"[{', '.join(attribute_text(item, constants) for item in items)}]"
        case np.ndarray():
            return _array_text(cast("Array", value), constants)
        case DType():
            return value.name
        case TensorType() | int():
            return str(value)
        case _:
            raise TypeError(f"an attribute cannot be a {type(value).__name__}: {value!r:.80}")


def array_hash(array: Array) -> str:
    """The sha256 of an array's type and elements, by which texts and plans refer to it."""
    hasher = hashlib.sha256(str(of_array(array)).encode())
    hasher.update(np.array(array, order="C", copy=None).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def _array_text(array: Array, constants: dict[str, Array] | None) -> str:
    type_ = of_array(array)
    if type_.nbytes <= INLINE_BYTES:
        numbers = array.reshape(-1).view(type_.dtype.part.numpy)  # of a complex number its real and imaginary part
        return f"dense<{type_}: {', '.join(_element_text(x) for x in numbers)}>"
    key = array_hash(array)
    if constants is not None:
        constants[key] = array
    return f"dense<{type_}: @{key}>"


def _element_text(element: np.generic) -> str:
    if isinstance(element, np.bool_):
        return "true" if element else "false"
    if isinstance(element, np.integer):
        return str(element)
    text = str(element)
    bits = element.tobytes()
    with np.errstate(all="ignore"):
        exact = type(element)(float(text)).tobytes() == bits
    if exact:
        return text if any(mark in text for mark in ".en") else f"{text}.0"
    if element == element:
        return repr(float(cast("Any", element)))
    return f"0x{int.from_bytes(bits, 'little'):x}"


def element_from(text: str, dtype: DType) -> np.generic:
    """The array element that `text` stands for. Raises ValueError where it is none of `dtype`."""
    if dtype.kind == "bool":
        if text not in ("true", "false"):
            raise ValueError("an element of a bool array is true or false")
        return np.bool_(text == "true")
    make = cast("Any", dtype.numpy.type)
    if dtype.is_integer:
        limits = np.iinfo(make)
        number = int(text, 10)
        if not limits.min <= number <= limits.max:
            raise ValueError(f"an element of an {dtype} array lies in {limits.min}..{limits.max}")
        return make(number)
    if not text.startswith("0x"):
        with np.errstate(all="ignore"):
            return make(float(text))
    bits = int(text, 16)
    if bits >= 1 << dtype.bits:
        raise ValueError(f"the bits of an element of an {dtype} array have {dtype.bits // 4} hex digits at most")
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype.numpy)[0]


def array_from(type_: TensorType, elements: list[str]) -> Array:
    """The read-only array with these elements in row-major order; of complex numbers real and imaginary parts in turn.

    Raises ValueError for a wrong number or element.
    """
    part = type_.dtype.part
    numbers = type_.nbytes // part.itemsize
    if len(elements) != numbers:
        raise ValueError(
            f"{type_} has {numbers} {'parts' if type_.dtype.is_complex else 'elements'}, got {len(elements)}"
        )
    array = np.empty(numbers, part.numpy)
    for position, text in enumerate(elements):
        array[position] = element_from(text, part)
    array.setflags(write=False)
    return array.view(type_.dtype.numpy).reshape(type_.shape)


def referred(type_: TensorType, key: str, constants: Mapping[str, Array]) -> Array:
    """The array that `@key` refers to. Raises ValueError if it is missing or of another type."""
    if key not in constants:
        raise ValueError(f"the side table has no array @{key:.16}...")
    if of_array(constants[key]) != type_:
        raise ValueError(f"array @{key:.16}... is {of_array(constants[key])}, required is {type_}")
    return constants[key]
