"""Calls of NumPy and SciPy functions by name: `custom_call` targets that any process can find again.

A target's name says all that the call is: the function and its arguments as JSON, operands by number:
`numpy.linalg.solve[{"operand":0},{"operand":1}]{}`. Only listed functions are ever looked up, and only listed
parameters can be set (`library_signatures`), so a graph from a stranger's file calls nothing else; none of them reads
or writes anything but its arguments. Operands cannot be written to, and whatever goes wrong is a CallError.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, CallError, GraphError
from autofuse.ir import dtypes
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, is_listed
from autofuse.ir.ops.library_signatures import modules
from autofuse.ir.ops.library_targets import WRITERS
from autofuse.ir.tree import as_dtype

_MOST_CHARACTERS = 1 << 20
_MOST_BRACKETS_OPEN = 16
_MOST_KEPT_CHARACTERS = 1024
"""Of a name whose function is kept."""
LOCAL = "process."
"""How the names of functions begin that only this process knows."""


class LinearAlgebraCallError(CallError, np.linalg.LinAlgError):
    """A CallError that NumPy's callers catch as `numpy.linalg.LinAlgError`: a singular matrix, say."""


class UnnamableError(Exception):
    """An argument that cannot be written into a target's name."""


class Operand(int):
    """An argument that is the operand of this number."""


def target_name(module: str, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of a call; an argument that is an operand is given as `Operand`. Raises UnnamableError.

    A call that no file may hold (its function or a parameter is not listed) has a name that begins with `LOCAL`.
    """
    call = LibraryCall(
        module, function, [_encoded(item) for item in args], {key: _encoded(item) for key, item in kwargs.items()}
    )
    positional = json.dumps(call.args, separators=(",", ":"))
    named = json.dumps(call.kwargs, separators=(",", ":"), sort_keys=True)
    name = f"{call.label}{positional}{named}"
    try:
        check_parameters(call)
    except GraphError:
        return LOCAL + name
    return name


def is_library_call(name: str) -> bool:
    """Whether a target's name is of the form that only functions of NumPy and SciPy have."""
    return _kept_form(name) if len(name) <= _MOST_KEPT_CHARACTERS else _has_their_form(name)


def _has_their_form(name: str) -> bool:
    module, _, _ = name.partition("[")[0].rpartition(".")
    return "[" in name and module in modules()


_kept_form = lru_cache(maxsize=256)(_has_their_form)


def read(name: str) -> LibraryCall:
    """The call that a target's name spells. Raises GraphError for an ill-formed name, or a function not listed."""
    path, bracket, rest = name.partition("[")
    module, _, function = path.rpartition(".")
    if not bracket or module not in modules() or not is_listed(module, function):
        raise GraphError(f"custom_call target {name!r:.200} is neither registered nor a listed function")
    return LibraryCall(module, function, *_arguments(name, bracket + rest))


def resolve(name: str) -> Callable[..., Any]:
    """The function that a target's name stands for, taking the operands.

    Raises GraphError for a function or a parameter that is not listed, or an ill-formed name.
    """
    return _kept(name) if len(name) <= _MOST_KEPT_CHARACTERS else _resolved(name)


def write_into(name: str, target: NDArray[Any], operands: Sequence[Any]) -> bool:
    """Call the function that a target's name stands for, its result in `target`; False where it has no way to.

    Raises what the function that `resolve` returns does.
    """
    if name.partition("[")[0] not in WRITERS or len(name) > _MOST_KEPT_CHARACTERS:
        return False
    call = _kept_call(name)

    def write(*given: Any) -> bool:
        return WRITERS[call.label](target, *_filled(call.args, given), **_filled(call.kwargs, given))

    return bool(guarded(write, call.label, copies=False)(*operands))


def _checked_call(name: str) -> LibraryCall:
    call = read(name)
    check_parameters(call)
    return call


_kept_call = lru_cache(maxsize=256)(_checked_call)


def _resolved(name: str) -> Callable[..., Any]:
    call = _checked_call(name)
    target = getattr(import_module(call.module), call.function, None)
    if not callable(target) or isinstance(target, type):
        raise GraphError(f"custom_call target {name!r:.200}: {call.module} has no function {call.function!r:.80}")
    return guarded(of_operands(target, call.args, call.kwargs), call.label, copies=not call.module.startswith("numpy"))


_kept = lru_cache(maxsize=256)(_resolved)
"""A plan asks at every call: reading the name again would take longer than a small matrix."""


def bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """`function` of the operands alone; the other arguments are fixed. Arguments are as in a target's name."""
    return of_operands(
        function, [_encoded(item) for item in args], {key: _encoded(item) for key, item in kwargs.items()}
    )


def guarded(function: Callable[..., Any], label: str, *, copies: bool) -> Callable[..., Any]:
    """`function` with operands that it cannot write to, or copies of them, and errors that name the call."""

    def call(*operands: Any) -> Any:
        given = [np.array(operand, order="C") if copies else _read_only(operand) for operand in operands]
        try:
            return function(*given)
        except AutofuseError:
            raise
        except np.linalg.LinAlgError as error:
            raise LinearAlgebraCallError(f"{label}: {error}") from error
        except Exception as error:  # whatever a library raises for arguments that it does not take
            raise CallError(f"{label}: {type(error).__name__}: {error}") from error

    return call


def _read_only(operand: Any) -> NDArray[Any]:
    view = np.asarray(operand).view()
    view.flags.writeable = False
    return view


def of_operands(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """`function` of the operands alone; the other arguments are as a target's name has them."""
    try:
        named = _filled(kwargs, ())
    except IndexError:  # one of them is an operand
        named = None
    if named is not None and all(value == {"operand": number} for number, value in enumerate(args)):
        return lambda *operands: function(*operands[: len(args)], **named)

    def call(*operands: Any) -> Any:
        return function(*_filled(args, operands), **_filled(kwargs, operands))

    return call


def public_module(function: Any) -> str:
    """The module that users import `function` from: `numpy.linalg`, though NumPy keeps it in a private one."""
    module, name = str(getattr(function, "__module__", None) or ""), getattr(function, "__name__", "")
    for public in modules():
        loaded = sys.modules.get(public)
        if loaded is not None and getattr(loaded, name, None) is function:
            return public
    return module


def _arguments(name: str, text: str) -> tuple[list[Any], dict[str, Any]]:
    decoder = json.JSONDecoder()
    try:
        if len(text) > _MOST_CHARACTERS or _open_brackets(text) > _MOST_BRACKETS_OPEN:
            raise ValueError("too long, or nested too deep")
        args, end = decoder.raw_decode(text)
        kwargs = json.loads(text[end:])
    except ValueError as error:
        raise GraphError(f"custom_call target {name!r:.200} has ill-formed arguments: {error}") from None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise GraphError(f"custom_call target {name!r:.200} has ill-formed arguments")
    return cast("list[Any]", args), cast("dict[str, Any]", kwargs)


def _open_brackets(text: str) -> int:
    """How deep brackets are nested at most; those in strings count too."""
    depth = most = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        most = max(most, depth)
    return most


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
