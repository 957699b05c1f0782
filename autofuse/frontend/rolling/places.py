"""Elements of lists and dicts, and attributes of objects, that loops and branches set: they are variables, too.

What is set is set, so that what follows in the region reads it. The region's owner knows what was there before, puts
that back when the region ends, and sets what the run gives.
"""

from __future__ import annotations

import types
from typing import Any

from autofuse.frontend.forks import CannotRollError, Fork
from autofuse.frontend.rolling.frames import UNBOUND
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import TracerArray


class Place:
    """An element or attribute of an object from outside of a region."""

    __slots__ = ("_key", "_owner")

    def __init__(self, owner: Any, key: Any) -> None:
        """`key`: an index of a list, a key of a dict; of any other object the name of an attribute."""
        self._owner, self._key = owner, key

    def __hash__(self) -> int:
        return hash((id(self._owner), self._key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and other._owner is self._owner and other._key == self._key

    def __str__(self) -> str:
        name = type(self._owner).__name__
        return f"an element of a {name}" if isinstance(self._owner, list | dict) else f"{name}.{self._key}"

    def get(self) -> Any:
        """What is there; UNBOUND if nothing is."""
        if isinstance(self._owner, list | dict):
            held: Any = self._owner
            return held[self._key] if isinstance(held, list) or self._key in held else UNBOUND
        return vars(self._owner).get(self._key, UNBOUND)

    def put(self, value: Any) -> None:
        """Set it, or take it away, whoever is tracing."""
        if isinstance(self._owner, list | dict):
            held: Any = self._owner
            if value is not UNBOUND:
                held[self._key] = value
            elif self._key in held:
                del held[self._key]
        elif value is not UNBOUND:
            vars(self._owner)[self._key] = value
        else:
            vars(self._owner).pop(self._key, None)

    def set(self, value: Any) -> None:
        """Set it in the region under way, as its own statement does. Raises PlaceError in a loop that knows not."""
        fork = innermost_fork()
        if fork is not None and id(self._owner) not in fork.objects and self not in fork.places:
            before = self.get()
            if value is before:
                return
            fork.begin(self, before)
        self.put(value)


class Target:
    """Stands for an object of which an element or attribute is about to be set, perhaps after it was read."""

    __slots__ = ("_af_owner",)

    def __init__(self, owner: Any) -> None:
        object.__setattr__(self, "_af_owner", owner)

    def __getitem__(self, key: Any) -> Any:
        return require_unchanged(self._af_owner[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        owner: Any = self._af_owner
        if type(owner) is list:
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
        raise CannotRollError(f"it changes a {type(held).__name__} in place")
    return held


def target_of(owner: Any) -> Any:
    """What to set an element or attribute of, in place of an object from outside of the region under way.

    Raises CannotRollError for objects whose own code would run.
    """
    if type(owner) in (list, dict):
        return Target(owner)
    cls: type = type(owner)
    is_plain = cls is types.SimpleNamespace or cls.__setattr__ is object.__setattr__
    if is_plain and hasattr(owner, "__dict__") and not isinstance(owner, type):
        return Target(owner)
    raise CannotRollError(f"it changes a {cls.__name__}, not only arrays")


def put_back(fork: Fork) -> dict[Place, Any]:
    """What a region left at the places that it set; what was there before is there again."""
    ends = {place: place.get() for place in fork.places}
    for place, before in fork.places.items():
        place.put(before)
    return ends
