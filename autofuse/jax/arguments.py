"""Which arguments of a function the options of `jax.jit` name: by number, by name, or by both as its signature says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Chosen:
    """Arguments of one function, however a call writes them."""

    numbers: frozenset[int]
    names: frozenset[str]

    def leaves(self, paths: Sequence[Any]) -> list[bool]:
        """Whether each leaf of `(args, kwargs)` is part of one of the arguments, by its path."""
        return [path[1].key in self.names if path[0].idx == 1 else path[1].idx in self.numbers for path in paths]

    def without(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of the other arguments of a call."""
        others = [arg for number, arg in enumerate(args) if number not in self.numbers]
        return jax.tree.leaves((others, {name: arg for name, arg in kwargs.items() if name not in self.names}))


def chosen(
    function: Callable[..., Any], numbers: int | Sequence[int] | None, names: str | Iterable[str] | None
) -> Chosen:
    """The arguments that two options name; where one is not given, it follows from the other one."""
    given = () if numbers is None else (numbers,) if isinstance(numbers, int) else tuple(numbers)
    called = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    places = _places(function)
    if names is None:
        called = tuple(places[number] for number in given if -len(places) <= number < len(places))
    elif numbers is None:
        given = tuple(places.index(name) for name in called if name in places)
    return Chosen(frozenset(n + len(places) if n < 0 else n for n in given), frozenset(called))


def leaf_names(function: Callable[..., Any], paths: Sequence[Any]) -> list[str]:
    """What to call each leaf of `(args, kwargs)`, by its path: `params['w'][0]` is `params_w_0`."""
    places = _places(function)
    return ["_".join([_argument(places, path), *filter(None, map(_step, path[2:]))]) for path in paths]


def _argument(places: Sequence[str], path: Sequence[Any]) -> str:
    if path[0].idx == 1:
        return path[1].key
    number: int = path[1].idx
    return places[number] if number < len(places) else f"arg{number}"


def _step(key: Any) -> str:
    """A key of a path as a part of a name."""
    return re.sub(r"\W+", "_", jax.tree_util.keystr((key,), simple=True), flags=re.ASCII).strip("_")


def _places(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that go by position; none for a function that does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]
