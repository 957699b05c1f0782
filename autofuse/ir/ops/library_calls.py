"""Calls of NumPy and SciPy functions by name: `custom_call` targets that any process can find again.

A target's name says all that the call is: the function and its arguments as JSON, operands by number:
`numpy.linalg.solve[{"operand":0},{"operand":1}]{}`. Only functions on the list below are ever looked up, so a graph
from a stranger's file calls nothing else; none of them reads or writes anything but its arguments.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.tree import as_dtype

_WHOLE_MODULES = ("numpy.linalg", "numpy.fft", "scipy.linalg", "scipy.fft", "scipy.special", "scipy.ndimage")
_NUMPY = [
    "argpartition",
    "corrcoef",
    "cov",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "i0",
    "lexsort",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "packbits",
    "partition",
    "percentile",
    "poly",
    "polyadd",
    "polyder",
    "polyfit",
    "polyint",
    "polymul",
    "quantile",
    "roots",
    "sort_complex",
    "unpackbits",
    "unwrap",
]


class UnnamableError(Exception):
    """An argument that cannot be written into a target's name."""


def allowed(module: str, function: str) -> bool:
    """Whether a graph may call this function by name."""
    return not function.startswith("_") and (module in _WHOLE_MODULES or (module == "numpy" and function in _NUMPY))


def target_name(module: str, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of a call; an argument that is an operand is given as `Operand`. Raises UnnamableError."""
    positional = json.dumps([_encoded(item) for item in args], separators=(",", ":"))
    named = json.dumps({key: _encoded(item) for key, item in kwargs.items()}, separators=(",", ":"), sort_keys=True)
    return f"{module}.{function}{positional}{named}"


class Operand(int):
    """An argument that is the operand of this number."""


def resolve(name: str) -> Callable[..., Any]:
    """The function that a target's name stands for, taking the operands.

    Raises GraphError for a function that is not on the list, or an ill-formed name.
    """
    path, bracket, rest = name.partition("[")
    module, _, function = path.rpartition(".")
    if not bracket or not allowed(module, function):
        raise GraphError(f"custom_call target {name!r} is neither registered nor a known function of NumPy or SciPy")
    target = getattr(import_module(module), function, None)
    if not callable(target) or isinstance(target, type):
        raise GraphError(f"custom_call target {name!r}: {module} has no function {function!r}")
    return _bound(target, *_arguments(name, bracket + rest))


def bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """`function` of the operands alone; the other arguments are fixed. Arguments are as in a target's name."""
    return _bound(function, [_encoded(item) for item in args], {key: _encoded(item) for key, item in kwargs.items()})


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        return function(*_filled(args, operands), **_filled(kwargs, operands))

    return call


def public_module(function: Any) -> str:
    """The module that users import `function` from: `numpy.linalg`, though NumPy keeps it in a private one."""
    module, name = str(getattr(function, "__module__", None) or ""), getattr(function, "__name__", "")
    for public in (*_WHOLE_MODULES, "numpy"):
        loaded = sys.modules.get(public)
        if loaded is not None and getattr(loaded, name, None) is function:
            return public
    return module


def _arguments(name: str, text: str) -> tuple[list[Any], dict[str, Any]]:
    decoder = json.JSONDecoder()
    try:
        args, end = decoder.raw_decode(text)
        kwargs = json.loads(text[end:])
    except ValueError as error:
        raise GraphError(f"custom_call target {name!r} has ill-formed arguments: {error}") from None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise GraphError(f"custom_call target {name!r} has ill-formed arguments")
    return cast("list[Any]", args), cast("dict[str, Any]", kwargs)


def _encoded(value: Any) -> Any:
    if isinstance(value, Operand):
        return {"operand": int(value)}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        items = [_encoded(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else {"tuple": items}
    dtype = as_dtype(value)
    if dtype is None:
        raise UnnamableError(f"an argument of type {type(value).__name__}")
    return {"dtype": dtype.name}


def _filled(value: Any, operands: Sequence[Any]) -> Any:
    match value:
        case {"operand": int(position)}:
            return operands[position]
        case {"tuple": list(items)}:
            return tuple(_filled(item, operands) for item in cast("list[Any]", items))
        case {"dtype": str(name)}:
            return dtypes.by_name(name).numpy
        case list():
            return [_filled(item, operands) for item in cast("list[Any]", value)]
        case dict():
            return {key: _filled(item, operands) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
