"""Elements of lists and dicts, attributes of objects and variables of functions around, that loops and branches set.

What is set is set, so that what follows in the region reads it. The region's owner knows what was there before, puts
that back when the region ends, and sets what the run gives.
"""

from __future__ import annotations

from types import CellType
from typing import Any

from autofuse.frontend.forks import Fork
from autofuse.frontend.rolling.frames import UNBOUND, bind, content_of
from autofuse.frontend.tracecontext import innermost_fork


class Place:
    """An element or attribute of an object from outside of a region."""

    __slots__ = ("_key", "_owner")

    def __init__(self, owner: Any, key: Any) -> None:
        """`key`: an index of a list, a key of a dict, the name of a variable; of other objects that of an attribute."""
        self._owner, self._key = owner, key

    def __hash__(self) -> int:
        return hash((id(self._owner), self._key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and other._owner is self._owner and other._key == self._key

    def __str__(self) -> str:
        name = type(self._owner).__name__
        if isinstance(self._owner, CellType):
            return str(self._key)
        return f"an element of a {name}" if isinstance(self._owner, list | dict) else f"{name}.{self._key}"

    def get(self) -> Any:
        """What is there; UNBOUND if nothing is."""
        if isinstance(self._owner, list | dict):
            held: Any = self._owner
            return held[self._key] if isinstance(held, list) or self._key in held else UNBOUND
        if isinstance(self._owner, CellType):
            return content_of(self._owner)
        return vars(self._owner).get(self._key, UNBOUND)

    def put(self, value: Any) -> None:
        """Set it, or take it away, whoever is tracing."""
        if isinstance(self._owner, list | dict):
            held: Any = self._owner
            if value is not UNBOUND:
                held[self._key] = value
            elif self._key in held:
                del held[self._key]
        elif isinstance(self._owner, CellType):
            bind(self._owner, value)
        elif value is not UNBOUND:
            vars(self._owner)[self._key] = value
        else:
            vars(self._owner).pop(self._key, None)

    def set(self, value: Any) -> None:
        """Set it in the region under way, as its own statement does."""
        if value is not self.get():
            self.note()
        self.put(value)

    def note(self) -> None:
        """Tell the region under way that it is about to be set."""
        fork = innermost_fork()
        if fork is None or self in fork.places or self in fork.new_places:
            return
        if id(self._owner) not in fork.objects and id(self._owner) not in fork.variables:
            fork.begin(self, self.get())


def put_back(fork: Fork) -> dict[Place, Any]:
    """What a region left at the places that it set; what was there before is there again."""
    ends = {place: place.get() for place in fork.places}
    for place, before in fork.places.items():
        place.put(before)
    return ends
