"""`custom_call`: a NumPy callable registered under a name; only its dataflow is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, CallError, GraphError
from autofuse.ir import types
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.library_sizes import check_sizes
from autofuse.ir.parts import as_complex, as_parts, seen_as
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_CALLS: dict[str, Callable[..., Any]] = {}
_OPERANDS, _RESULTS = "complex_operands", "complex_results"
UPDATES = "ufunc.at."
"""How the targets begin that are `ufunc.at`."""


def register_call(name: str, function: Callable[..., Any], *, replace: bool = False) -> None:
    """Make `function` the target `name`: it takes the operands as arrays, returns an array or a tuple of arrays.

    It must neither change nor keep its operands. Raises GraphError if another function has the name, unless `replace`.
    """
    if _CALLS.get(name, function) is not function and not replace:
        raise GraphError(f"custom_call target {name!r:.80} is already registered; use another name or replace=True")
    _CALLS[name] = function


def call_target(name: str) -> Callable[..., Any]:
    """The function registered as `name`, or the library function it spells. Raises GraphError for any other name."""
    if name in _CALLS:
        return library_calls.guarded(_CALLS[name], name, copies=True)
    if name.startswith(UPDATES):
        return library_calls.guarded(_updates(name), name, copies=True)
    if library_calls.is_library_call(name):
        return library_calls.resolve(name)
    known = ", ".join(sorted(_CALLS)) or "none"
    raise GraphError(
        f"custom_call target {name!r:.200} is not registered; call register_call({name!r:.200}, function); "
        f"known: {known:.1000}"
    )


def update_target(ufunc: np.ufunc) -> str:
    """The target that is `ufunc.at`: of a 1-D array, positions in it, and as many operands; it returns a new array."""
    return UPDATES + ufunc.__name__


def _updates(name: str) -> Callable[..., Array]:
    """What `update_target` names. Raises GraphError where NumPy and SciPy have no such ufunc."""
    word = name.removeprefix(UPDATES)
    ufunc = getattr(np, word, None) or getattr(import_module("scipy.special"), word, None)
    if not isinstance(ufunc, np.ufunc):
        raise GraphError(f"custom_call target {name!r:.200}: NumPy and SciPy have no ufunc {word!r:.100}")

    def update(x: Array, *rest: Array) -> Array:
        ufunc.at(x, *rest)
        return x

    return update


def require_anywhere(name: str) -> None:
    """Raise GraphError unless another process can call `name` too, and may: what a file can hold.

    That is a function that somebody registered by a name of its own, or a call of a listed function.
    """
    if name.startswith(library_calls.LOCAL):
        raise GraphError(
            f"{name.removeprefix(library_calls.LOCAL)!r:.200} can be called in the process that traced it only: the "
            "function or one of its parameters is not among those that a plan file may hold (docs/ops.md)"
        )
    call_target(name)


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    name, results = attrs["call_target_name"], attrs["results"]
    if not results:
        raise GraphError("custom_call: attribute results must hold at least one type, got none")
    given, made = seen_as(operands, attrs.get(_OPERANDS, ())), seen_as(results, attrs.get(_RESULTS, ()))
    if name not in _CALLS and library_calls.is_library_call(name):
        check_sizes(library_calls.read(name), given, made)
    return results


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    name, required = attrs["call_target_name"], attrs["results"]
    whole, parts = attrs.get(_OPERANDS, ()), attrs.get(_RESULTS, ())
    given = [as_complex(operand) if number in whole else operand for number, operand in enumerate(operands)]
    returned: Any = call_target(name)(*given)
    items: Sequence[Any] = returned if isinstance(returned, tuple | list) else (returned,)
    try:
        results = tuple(map(np.asarray, items))
        if len(results) == len(required) and all(results[number].dtype.kind == "c" for number in parts):
            stored = tuple(as_parts(result) if number in parts else result for number, result in enumerate(results))
            if all(map(_is_of, stored, required)):
                return stored
        came = tuple(map(types.of_array, results))
    except (AutofuseError, ValueError) as bad:
        raise CallError(f"{_wanted(name, required, parts)}: {bad}") from bad
    raise CallError(f"{_wanted(name, required, parts)}, got {_joined(came) or 'nothing'}")


def _wanted(name: str, results: Sequence[TensorType], parts: Sequence[int]) -> str:
    return f"custom_call target {name!r:.200} must return {_joined(seen_as(results, parts))}"


def _is_of(result: Array, type_: TensorType) -> bool:
    return result.shape == type_.shape and result.dtype == type_.dtype.numpy


def _evaluate_into(operands: Sequence[Array], attrs: Attrs, targets: Sequence[Array | None]) -> None:
    name, first = attrs["call_target_name"], targets[0]
    plain = not (attrs.get(_OPERANDS) or attrs.get(_RESULTS))
    alone = len(targets) == 1 and first is not None and name not in _CALLS
    if not (plain and alone) or first is None or not library_calls.write_into(name, first, operands):
        _copy_results(_evaluate(operands, attrs, ()), targets)


def _copy_results(results: Sequence[Array], targets: Sequence[Array | None]) -> None:
    for result, target in zip(results, targets, strict=True):
        if target is not None:
            target[...] = result


def _joined(types_: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types_))


OPS = (
    OpDef(
        name="custom_call",
        doc="Calls the registered function, or the listed one of NumPy or SciPy that the name spells. An unknown name, "
        "and results of other types than declared, are errors when evaluated.",
        role=Role.CALL,
        infer=_infer,
        evaluate=_evaluate,
        code=1,
        attrs={
            "call_target_name": AttrSpec("str", "the registered name"),
            "results": AttrSpec("types", "the result types"),
            _OPERANDS: AttrSpec("ints", "operands that are parts of complex numbers, which it is given", optional=True),
            _RESULTS: AttrSpec("ints", "results that are parts of complex numbers, which it returns", optional=True),
        },
        evaluate_into=_evaluate_into,
    ),
)
