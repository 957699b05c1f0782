"""What stands for an object of which an element or attribute is about to be set: `values[i] = x`, `body.mass += x`."""

from __future__ import annotations

import types
from collections import deque
from typing import Any

from autofuse.frontend.forks import CannotRollError, HeldError
from autofuse.frontend.rolling.listplaces import element_at, moves, set_at
from autofuse.frontend.rolling.places import Place
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import TracerArray


class Target:
    """Stands for an object of which an element or attribute is about to be set, perhaps after it was read."""

    __slots__ = ("_af_owner", "_af_sets")

    def __init__(self, owner: Any, sets: bool) -> None:
        object.__setattr__(self, "_af_owner", owner)
        object.__setattr__(self, "_af_sets", sets)

    def __getitem__(self, key: Any) -> Any:
        owner: Any = self._af_owner
        return require_unchanged(element_at(owner, key) if type(owner) is list else owner[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        owner: Any = self._af_owner
        if self._af_sets:
            owner[key] = value
            return
        if type(owner) not in (list, dict):
            raise CannotRollError(f"it sets elements of a {type(owner).__name__}")
        if type(owner) is list:
            fork = innermost_fork()
            if moves(key) and fork is not None and not fork.is_loop:
                set_at(owner, key, value, lambda number, item: Place(owner, number).set(item))
                return
            if type(key) is not int or not -len(owner) <= key < len(owner):
                raise CannotRollError("it changes elements of a list that Python alone knows")
            key %= len(owner)
        Place(owner, key).set(value)

    def __delitem__(self, key: Any) -> None:
        raise CannotRollError(f"it takes elements from a {type(self._af_owner).__name__}")

    def __getattr__(self, name: str) -> Any:
        return require_unchanged(getattr(self._af_owner, name))

    def __setattr__(self, name: str, value: Any) -> None:
        owner: Any = self._af_owner
        described = next((vars(cls)[name] for cls in type(owner).__mro__ if name in vars(cls)), None)
        if hasattr(type(described), "__set__") or isinstance(described, types.MemberDescriptorType):
            raise CannotRollError(f"it sets {name} of a {type(owner).__name__}, which is no plain attribute")
        Place(owner, name).set(value)

    def __delattr__(self, name: str) -> None:
        raise CannotRollError(f"it takes attributes from a {type(self._af_owner).__name__}")


def require_unchanged(held: Any) -> Any:
    """What `held += value` begins with. Raises CannotRollError where that changes an object of the region's outside."""
    fork = innermost_fork()
    followed = isinstance(held, TracerArray) or hasattr(type(held), "is_selection")
    changes = not followed and any(hasattr(type(held), name) for name in ("__iadd__", "__ior__"))
    if changes and fork is not None and id(held) not in fork.objects:
        raise HeldError(f"it changes a {type(held).__name__} in place", held)
    return held


def target_of(owner: Any, sets: bool) -> Any:
    """What to set an element or attribute of, in place of an object from outside of the region under way.

    `sets`: whether its class has code of its own for elements, which is traced.
    Raises CannotRollError for objects whose own code would run.
    """
    if type(owner) in (list, dict):
        return Target(owner, sets=False)
    cls: type = type(owner)
    if cls is deque:
        raise HeldError("it changes a deque, not only arrays", owner)
    is_plain = cls is types.SimpleNamespace or cls.__setattr__ is object.__setattr__
    if is_plain and hasattr(owner, "__dict__") and not isinstance(owner, type):
        return Target(owner, sets)
    raise CannotRollError(f"it changes a {cls.__name__}, not only arrays")


class Listed:
    """Stands for a list of which an element is about to be set, perhaps after it was read."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __getitem__(self, index: Any) -> Any:
        return element_at(self._items, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if moves(index):
            set_at(self._items, index, value, self._items.__setitem__)
        else:
            self._items[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._items[index]
