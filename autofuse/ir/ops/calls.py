"""`custom_call`: a NumPy callable registered under a name; only its dataflow is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import types
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.ops import library_calls
from autofuse.ir.optable import AttrSpec, Family, OpDef, register
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_CALLS: dict[str, Callable[..., Any]] = {}


def register_call(name: str, function: Callable[..., Any], *, replace: bool = False) -> None:
    """Make `function` the target `name`: it takes the operands as arrays, returns an array or a tuple of arrays.

    It must neither change nor keep its operands. Raises GraphError if another function has the name, unless `replace`.
    """
    if _CALLS.get(name, function) is not function and not replace:
        raise GraphError(f"custom_call target {name!r} is already registered; use another name or replace=True")
    _CALLS[name] = function


def call_target(name: str) -> Callable[..., Any]:
    """The function registered as `name`, or the library function it spells. Raises GraphError for any other name."""
    try:
        return _CALLS[name] if name in _CALLS else library_calls.resolve(name)
    except GraphError:
        known = ", ".join(sorted(_CALLS)) or "none"
        raise GraphError(
            f"custom_call target {name!r} is not registered; call register_call({name!r}, function); known: {known}"
        ) from None


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if not attrs["results"]:
        raise GraphError("custom_call: attribute results must hold at least one type, got none")
    return attrs["results"]


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    name, required = attrs["call_target_name"], attrs["results"]
    returned: Any = call_target(name)(*operands)
    items: Sequence[Any] = returned if isinstance(returned, tuple | list) else (returned,)
    results = tuple(map(np.asarray, items))
    came = tuple(map(types.of_array, results))
    if came != required:
        raise GraphError(
            f"custom_call target {name!r} must return {', '.join(map(str, required))}, "
            f"got {', '.join(map(str, came)) or 'nothing'}"
        )
    return results


register(
    OpDef(
        "custom_call",
        "Calls the registered NumPy function. An unknown name, and results of other types than declared, are errors "
        "when evaluated.",
        Family.OPAQUE,
        _infer,
        _evaluate,
        {
            "call_target_name": AttrSpec("str", "the registered name"),
            "results": AttrSpec("types", "the result types"),
        },
        flops=lambda *_: 0.0,
    )
)
