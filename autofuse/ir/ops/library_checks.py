"""Whether a call of a listed function may stand in a graph: which parameters it sets, and to what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.ops.library_signatures import parameters
from autofuse.lazydataclass import dataclass

_SPECIAL = "scipy.special"
_MOST_NUMBERS = 10_000
_DEEPEST_LIST = 4
_LARGEST_INTEGER = 1 << 62
_MOST_AXES = 64


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call as the name of its target spells it: operands are `{"operand": number}`, the rest are plain values."""

    module: str
    function: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def label(self) -> str:
        """How messages name the call."""
        return f"{self.module}.{self.function}"


def is_listed(module: str, function: str) -> bool:
    """Whether a graph may call this function, with some parameters."""
    return parameters(module, function) is not None or _ufunc(module, function) is not None


def _ufunc(module: str, function: str) -> np.ufunc | None:
    found = getattr(import_module(module), function, None) if module == _SPECIAL else None
    return found if isinstance(found, np.ufunc) else None


def check_parameters(call: LibraryCall) -> dict[str, Any]:
    """The call's arguments by parameter, in the order of the function's own, whatever the order in the name.

    Raises GraphError that names the first one that a graph may not set so.
    """
    known = parameters(call.module, call.function)
    if known is None:
        ufunc = _ufunc(call.module, call.function)
        if ufunc is None:
            raise GraphError(
                f"custom_call target {call.label!r:.80} is neither registered nor a listed function of NumPy or SciPy"
            )
        known = {f"x{number}": "array" for number in range(ufunc.nin)}
    if len(call.args) > len(known):
        raise GraphError(f"{call.label}: takes {len(known)} arguments in a graph, got {len(call.args)}")
    bound = dict(zip(known, call.args, strict=False))
    for name, value in call.kwargs.items():
        if name in bound or known.get(name, "-") == "-":
            fault = "is given twice" if name in bound else "may not be set in a graph"
            raise GraphError(f"{call.label}: {name} {fault}; parameters: {_joined(known)}")
        bound[name] = value
    for name, value in bound.items():
        if not any(_FITS.get(kind, _fits_word)(value, kind) for kind in known[name].split("|")):
            raise GraphError(f"{call.label}: {name} must be {_described(known[name])} in a graph, got {value!r:.80}")
    return {name: bound[name] for name in known if name in bound}


def _joined(known: Mapping[str, str]) -> str:
    return ", ".join(name for name, kind in known.items() if kind != "-")


def _described(kind: str) -> str:
    return "left as it is" if kind == "-" else f"of kind {kind} (see docs/ops.md)"


# ---- kinds of values ---------------------------------------------------------------------------------------------


def is_operand(value: Any) -> bool:
    """Whether an argument is an operand of the graph."""
    return isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["operand"]


def listed(value: Any) -> list[Any] | None:
    """The items of a list or tuple; None for anything else."""
    if isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["tuple"]:
        value = cast("dict[str, Any]", value)["tuple"]
    return cast("list[Any]", value) if isinstance(value, list) else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _all(value: Any, good: Callable[[Any], bool], at_most: int = _MOST_AXES) -> bool:
    items = listed(value)
    return items is not None and len(items) <= at_most and all(map(good, items))


def _is_array(value: Any, depth: int = 0) -> bool:
    if isinstance(value, bool) or _is_number(value) or (depth == 0 and is_operand(value)):
        return True
    return depth < _DEEPEST_LIST and _all(value, lambda item: _is_array(item, depth + 1), _MOST_NUMBERS)


def _is_axis(value: Any) -> bool:
    return value is None or (_is_integer(value) and abs(value) <= _MOST_AXES)


def _is_axes(value: Any) -> bool:
    return _is_axis(value) or _all(value, lambda item: item is not None and _is_axis(item))


def _is_length(value: Any) -> bool:
    return value is None or (_is_integer(value) and value >= 0)


def _is_lengths(value: Any) -> bool:
    return _is_length(value) or _all(value, lambda item: item is not None and _is_length(item))


def _is_indices(value: Any) -> bool:
    return _is_integer(value) or _all(value, _is_indices, _MOST_NUMBERS)


def _is_bins(value: Any) -> bool:
    return _is_length(value) or _is_array(value) or _all(value, lambda item: _is_length(item) or _is_array(item))


def _is_pair(value: Any) -> bool:
    items = listed(value)
    return items is not None and len(items) == 2 and _is_array(items[0]) and isinstance(items[1], bool)


def _is_range(value: Any) -> bool:
    items = listed(value)
    if items is not None and items and listed(items[0]) is not None:
        return all(_is_range(item) for item in items) and len(items) <= _MOST_AXES
    return value is None or (items is not None and len(items) == 2 and all(map(_is_number, items)))


def _is_dtype(value: Any) -> bool:
    if not isinstance(value, dict) or list(cast("dict[str, Any]", value)) != ["dtype"]:
        return value is None
    name = cast("dict[str, Any]", value)["dtype"]
    return isinstance(name, str) and name in {dtype.name for dtype in dtypes.KNOWN}


def _fits_word(value: Any, kind: str) -> bool:
    if ".." in kind:
        low, high = map(int, kind.split(".."))
        return _is_number(value) and low <= value <= high
    return isinstance(value, str) and value == kind


_FITS: Mapping[str, Callable[[Any, str], bool]] = {
    "array": lambda value, _: _is_array(value),
    "array?": lambda value, _: value is None or _is_array(value),
    "arrays": lambda value, _: _is_array(value) or _all(value, _is_array),
    "flag": lambda value, _: isinstance(value, bool),
    "axis": lambda value, _: _is_axis(value),
    "axes": lambda value, _: _is_axes(value),
    "indices": lambda value, _: _is_indices(value),
    "length": lambda value, _: _is_lengths(value),
    "bins": lambda value, _: _is_bins(value),
    "pair": lambda value, _: _is_pair(value),
    "range": lambda value, _: _is_range(value),
    "dtype": lambda value, _: _is_dtype(value),
    "#": lambda value, _: _is_number(value),
    "none": lambda value, _: value is None,
    "-": lambda *_: False,
}
