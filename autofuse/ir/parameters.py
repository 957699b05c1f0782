"""The parameters of a plan: their names in order, with Python's own `/` and `*` among them where they are needed.

`("x", "/", "w", "*", "eps")`: x goes by position only, w either way, eps by name only. Only what was given when the
function was traced is a parameter; a default that was left out is part of the plan. An argument behind such a gap was
given by name, and is a parameter by name only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.ir.tree import Branch, Tree, flatten_as, take_leaves

BY_POSITION, BY_NAME = "/", "*"
"""Parameters before the one go by position only, those behind the other by name only."""


def names_of(parameters: Sequence[str]) -> tuple[str, ...]:
    """The names alone, one per argument."""
    return tuple(name for name in parameters if name not in (BY_POSITION, BY_NAME))


def well_formed(parameters: Sequence[str]) -> bool:
    """Whether the marks stand as in a signature: at most once each, in their order, with something to say."""
    marks = [name for name in parameters if name in (BY_POSITION, BY_NAME)]
    idle = bool(parameters) and (parameters[0] == BY_POSITION or parameters[-1] == BY_NAME)
    return marks in ([], [BY_POSITION], [BY_NAME], [BY_POSITION, BY_NAME]) and not idle


def bound(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The parameters that a call of a function has, and the value of each; the n-th of `*args` is called `args_n`.

    However a call is written, equal arguments give equal parameters. Raises ArgumentError where Python has a TypeError.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        fixed = [f"arg{number}" for number in range(len(args))]
        return _marked(fixed, len(fixed), list(kwargs)), (*args, *kwargs.values())
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        name = getattr(function, "__name__", function)
        number = len(args) + len(kwargs)
        raise ArgumentError(f"{name}{signature} was given {number} arguments: {error}") from None
    return _parameters(signature, given)


def _parameters(signature: inspect.Signature, given: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    front: list[tuple[str, Any]] = []
    named: list[tuple[str, Any]] = []
    by_position, gap = 0, False
    for name, parameter in signature.parameters.items():
        if name not in given:
            gap = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            front += ((f"{name}_{number}", value) for number, value in enumerate(given[name]))
            by_position = len(front)
        elif parameter.kind is parameter.VAR_KEYWORD:
            named += given[name].items()
        elif parameter.kind is parameter.KEYWORD_ONLY or gap:
            named.append((name, given[name]))
        else:
            front.append((name, given[name]))
            by_position += parameter.kind is parameter.POSITIONAL_ONLY
    parameters = _marked([name for name, _ in front], by_position, [name for name, _ in named])
    return parameters, tuple(value for _, value in front + named)


def _marked(front: list[str], by_position: int, named: list[str]) -> tuple[str, ...]:
    fixed = [*front[:by_position], BY_POSITION] if by_position else []
    return (*fixed, *front[by_position:], *([BY_NAME, *named] if named else []))


def call_in_order(function: Callable[..., Any], parameters: Sequence[str], values: Sequence[Any]) -> Any:
    """Call a function with the values of its parameters: those behind `*` by name."""
    count = positions(parameters)
    return function(*values[:count], **dict(zip(names_of(parameters)[count:], values[count:], strict=True)))


def in_order(parameters: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> list[Any]:
    """The values of a call's arguments, in the order of the parameters. `what`: who is called, for messages.

    Raises ArgumentError for arguments that are missing, too many, unknown, or given as they cannot be.
    """
    names, most = names_of(parameters), positions(parameters)
    called = f"{what}({', '.join(parameters)})"
    if len(args) > most or (not kwargs and len(args) < len(names)):
        by_name = f", {len(names) - most} of them by name" if most < len(names) else ""
        raise ArgumentError(f"{called} takes {len(names)} arguments{by_name}, got {len(args)}")
    rest = dict(kwargs)
    values = [*args, *_named(parameters, names, len(args), rest, called)]
    for name in rest:
        if name in names[: len(args)]:
            raise ArgumentError(f"{called} was given {name!r:.80} twice, by position and by name")
        raise ArgumentError(f"{called} has no parameter {name!r:.80} that can be given by name")
    return values


def leaves_of_call(
    what: str, parameters: Sequence[str], in_tree: Tree, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """The arrays among a call's arguments. Raises ArgumentError naming the argument that is not as `in_tree` says."""
    values = in_order(parameters, args, kwargs, what)
    leaves: list[Any] = []
    if take_leaves(in_tree, tuple(values), leaves):
        return leaves
    leaves.clear()
    children = in_tree.children if isinstance(in_tree, Branch) else ()
    for name, child, value in zip(names_of(parameters), children, values, strict=True):
        leaves.extend(flatten_as(child, value, name))
    return leaves


def _named(
    parameters: Sequence[str], names: Sequence[str], first: int, rest: dict[str, Any], called: str
) -> Iterator[Any]:
    """The values of the parameters from number `first` on, which leave `rest`."""
    by_position = parameters.index(BY_POSITION) if BY_POSITION in parameters else 0
    for number, name in enumerate(names[first:], first):
        if number < by_position:
            raise ArgumentError(f"{called} takes {name!r:.80} by position")
        if name not in rest:
            raise ArgumentError(f"{called} was not given {name!r:.80}")
        yield rest.pop(name)


def positions(parameters: Sequence[str]) -> int:
    """How many arguments may go by position."""
    front = parameters[: parameters.index(BY_NAME)] if BY_NAME in parameters else parameters
    return len(names_of(front))
