"""Attributes of nodes: checked against the op table and brought into one form.

Lists become tuples, NumPy integers become int, arrays are C-contiguous and cannot be written to.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir.dtypes import DType
from autofuse.ir.oprecord import AttrSpec, OpDef
from autofuse.ir.types import TensorType, of_array


def normalized(op: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """`attrs` in the op table's order and in normal form.

    Raises GraphError for an unknown attribute, one that is missing though not optional, a value of another kind.
    """
    if attrs.keys() != op.attrs.keys():
        _require_known(op, attrs)
    return {key: _value(op.name, key, spec, attrs[key]) for key, spec in op.attrs.items() if key in attrs}


def _require_known(op: OpDef, attrs: Mapping[str, Any]) -> None:
    unknown = sorted(set(attrs) - set(op.attrs))
    missing = sorted(key for key, spec in op.attrs.items() if key not in attrs and not spec.optional)
    if unknown or missing:
        parts = [f"unknown attributes {', '.join(unknown)}"] if unknown else []
        parts += [f"missing attributes {', '.join(missing)}"] if missing else []
        known = ", ".join(op.attrs) or "none"
        raise GraphError(f"{op.name}: {' and '.join(parts)}; its attributes: {known}")


def _value(op: str, key: str, spec: AttrSpec, value: Any) -> Any:
    try:
        result = _KINDS[spec.kind](value)
    except (TypeError, ValueError):
        raise GraphError(
            f"{op}: attribute {key} must be {_NAMES[spec.kind]} ({spec.doc}), got {value!r:.200}"
        ) from None
    if spec.choices and result not in spec.choices:
        raise GraphError(f"{op}: attribute {key} must be one of {', '.join(spec.choices)}; got {value!r:.200}")
    return result


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(_integer(item) for item in _items(value))


def _pairs(value: Any) -> tuple[tuple[int, int], ...]:
    pairs = tuple(_integers(item) for item in _items(value))
    return tuple((low, high) for low, high in pairs)


def _items(value: Any) -> Iterable[Any]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise TypeError
    return cast("Iterable[Any]", value)


def _instance(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return check


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_ | str):
        raise TypeError
    return math.fsum([value]) if math.isfinite(value) else float(value)


def _array(value: Any) -> Any:
    array = _instance(np.ndarray)(value)
    of_array(array)
    if array.flags.c_contiguous and not _can_change(array):
        return array
    array = array.copy(order="C")
    array.setflags(write=False)
    return array


def _can_change(array: Any) -> bool:
    """Whether the elements can be written to, through the array or what it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _types(value: Any) -> tuple[TensorType, ...]:
    return tuple(_instance(TensorType)(item) for item in _items(value))


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "int": _integer,
    "ints": _integers,
    "bool": _boolean,
    "str": _instance(str),
    "float": _number,
    "dtype": _instance(DType),
    "array": _array,
    "int_pairs": _pairs,
    "types": _types,
}
_NAMES: Mapping[str, str] = {
    "int": "an int",
    "ints": "a tuple of ints",
    "bool": "a bool",
    "str": "a string",
    "float": "a float",
    "dtype": "a DType such as dtypes.F32",
    "array": "a NumPy array",
    "int_pairs": "a tuple of (int, int)",
    "types": "a tuple of TensorType",
}
