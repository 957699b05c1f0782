"""Kinds of calls: what tells apart the calls of a function that need plans of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.frontend.spec import Spec
from autofuse.ir.devicearrays import is_device_array
from autofuse.ir.parameters import BY_NAME, bound, names_of
from autofuse.ir.tree import Branch, Tree, flatten, has_scalars
from autofuse.lazydataclass import dataclass

_MOST_FORMS = 256
"""Ways to write calls of one function that are remembered."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, however its arguments were written."""

    parameters: tuple[str, ...]
    """Those that were given (`autofuse.ir.parameters`)."""
    values: tuple[Any, ...]
    """Their values, in order."""
    structure: Tree
    types: tuple[Hashable, ...]
    """Shapes and dtypes of the arrays."""

    @property
    def key(self) -> Hashable:
        """Equal for calls that one plan serves."""
        by_name = self.parameters if BY_NAME in self.parameters else None
        return self.structure, self.types, by_name

    @property
    def structures(self) -> dict[str, Tree]:
        """The structure of each argument."""
        children = self.structure.children if isinstance(self.structure, Branch) else ()
        return dict(zip(names_of(self.parameters), children, strict=True))


_Key = tuple[Tree, tuple[Hashable, ...], None]


def key_of(args: tuple[Any, ...]) -> _Key | None:
    """The key of a call by position; None if an argument is neither an array nor part of a structure."""
    if {*map(type, args)} <= _ARRAYS:
        return _of_arrays(len(args)), tuple([(arg.shape, arg.dtype) for arg in args]), None
    try:
        leaves, structure = flatten(args, _is_array)
    except ArgumentError:
        return None
    return structure, tuple([(leaf.shape, leaf.dtype) for leaf in leaves]), None


@lru_cache(_MOST_FORMS)
def _of_arrays(count: int) -> Tree:
    """The structure of so many arrays by position."""
    return flatten((_AN_ARRAY,) * count, _is_array)[1]


_AN_ARRAY: NDArray[Any] = np.zeros(1)
_ARRAYS = frozenset((np.ndarray,))
"""No subclass of it."""


def tells_all(key: _Key | None) -> bool:
    """Whether a plan's native code takes no other calls than those of this key: one array is to it like one number."""
    return key is not None and not has_scalars(key[0])


class Calls:
    """Calls of one function. Which parameter an argument belongs to is found once for each way to write a call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._forms: dict[tuple[Any, ...], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        """By number of arguments by position, and names: the parameters, and which argument each one is."""

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, method: bool = False) -> Call:
        """A call; of a method without its object. Raises ArgumentError for arguments that the function cannot take."""
        form = (method, len(args), *kwargs)
        found = self._forms.get(form)
        if found is None:
            function = MethodType(self._function, self) if method else self._function
            numbers = {name: number for number, name in enumerate(kwargs, len(args))}
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            found = self._forms[form] = bound(function, range(len(args)), numbers)
        parameters, order = found
        given = (*args, *kwargs.values())
        values = tuple([given[number] for number in order])
        leaves, structure = flatten(values, _is_array_or_spec)
        return Call(parameters, values, structure, tuple([(leaf.shape, leaf.dtype) for leaf in leaves]))


def _is_array_or_spec(value: Any) -> bool:
    return _is_array(value) or isinstance(value, Spec)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or is_device_array(value)
