"""Regions that may write into arrays of the enclosing function: what they write is theirs until they end.

The body of a rolled Python loop, or a branch of an `if`, is ordinary code that writes into arrays and variables around
it. A fork holds those arrays as the region sees them. When the region ends, its owner makes results of what was
written, and writes these into the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.ir.graph import Value


class CannotRollError(BaseException):
    """A loop or branch cannot be traced once for all iterations. No `Exception`: code under trace must not catch it."""

    def __init__(self, reason: str, *, first: int = False, last: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.first = first
        """Whether it may help to take the first iteration out of the loop; or how many."""
        self.last = last
        """Whether it may help to take the last one out."""


class HeldError(CannotRollError):
    """A region changes a list or deque from outside: a loop may hold it, and is to be traced again so."""

    def __init__(self, reason: str, held: Any) -> None:
        super().__init__(reason)
        self.held = id(held)
        """Which one."""


class WrittenLateError(BaseException):
    """A loop's body writes into an array after it read it as if nobody did: it must be traced again, knowing that."""

    def __init__(self, fork: Fork, storage: Any) -> None:
        super().__init__()
        self.fork = fork
        self.storage = storage


class PlaceError(BaseException):
    """A loop's body sets elements or attributes of objects from outside: it must be traced again, knowing that."""

    def __init__(self, fork: Fork, places: list[Any]) -> None:
        super().__init__()
        self.fork = fork
        self.places = places


class Contents:
    """What an array holds, as one region sees it."""

    __slots__ = ("known", "value", "version")

    def __init__(self, value: Value | None, known: Any, version: int = 0) -> None:
        self.value = value
        self.known = known
        """The elements, where they do not depend on traced inputs (`cells.Known`)."""
        self.version = version
        """Counts writes."""


class Fork:
    """The arrays of enclosing functions as a region sees them. Keys are their storages."""

    def __init__(self, carried: Callable[[Any], Value] | None = None, written: set[Any] | None = None) -> None:
        """Of a branch; or of a loop's body, with `carried` and `written`.

        `carried` makes the input of the body that stands for an array which iterations write. `written`: arrays that
        are known to be written.
        """
        self._carried = carried
        self.written = set[Any]() if written is None else written
        self.given: dict[Any, Value] = {}
        """Of a loop: what an iteration gets of each array that iterations may write."""
        self.local: dict[Any, Contents] = {}
        self.objects: dict[int, Any] = {}
        """Python's containers that were made in the region, by identity: it may change them."""
        self.lists: dict[int, int] = {}
        """Of a counted loop, lists from outside that its body only appends to: by identity, what else holds each."""
        self.appended: list[tuple[list[Any], Any]] = []
        """What an iteration appends to those, in turn."""
        self.places: dict[Any, Any] = {}
        """Elements and attributes of objects from outside that it sets (`rolling.places`), and what they were."""
        self.present: frozenset[Any] = frozenset()
        """Of a side of a branch: what is not absent on it (`rolling.nothing`)."""
        self.must_roll = False
        """Of a loop: whether only the run knows how long it is, so that it cannot be unrolled."""
        self.new_places: dict[Any, Any] = {}
        """Of a loop, those that it was not known to set."""
        self.variables: set[int] = set()
        """The variables that its statements bind: the identities of their cells."""
        self.around: set[int] = set()
        """The cells of all variables of the function around that it knows."""
        self._begun: dict[Any, int] = {}
        self._seen: set[Any] = set()

    @property
    def is_loop(self) -> bool:
        """Whether it is of a loop's body."""
        return self._carried is not None

    def contents(self, storage: Any, outside: Callable[[], Contents | None]) -> Contents | None:
        """An array as the region sees it. `outside`: as the enclosing one does."""
        found = self.local.get(storage)
        if found is None and self._carried is not None and storage in self.written:
            found = self._begin(storage, outside)
        if found is None:
            self._seen.add(storage)
            return outside()
        return found

    def to_write(self, storage: Any, outside: Callable[[], Contents | None]) -> Contents:
        """An array that the region is about to write."""
        found = self.local.get(storage)
        if found is None and self._carried is not None and storage in self._seen:
            raise WrittenLateError(self, storage)
        return self._begin(storage, outside) if found is None else found

    def changed(self) -> list[Any]:
        """The arrays that the region wrote."""
        return [storage for storage, held in self.local.items() if held.version > self._begun[storage]]

    def repeats_reading(self, storage: Any) -> bool:
        """Whether it is of a loop's body that has read an array, so that each iteration does."""
        return self._carried is not None and (storage in self._seen or storage in self.local)

    def begin(self, place: Any, before: Any) -> None:
        """Note an element or attribute that is set. Of a loop it was not known: the rest of this trace is in vain."""
        (self.places if self._carried is None else self.new_places).setdefault(place, before)

    def leave(self) -> None:
        """The trace of a loop's body ends, or fails. Raises PlaceError where it set what was not known to be set."""
        found, self.new_places = self.new_places, {}
        for place, before in found.items():
            place.put(before)
        if found:
            raise PlaceError(self, list(found))

    def _begin(self, storage: Any, outside: Callable[[], Contents | None]) -> Contents:
        before = outside()
        version = 0 if before is None else before.version
        value = None
        if self._carried is not None:
            self.written.add(storage)
            value = self.given[storage] = self._carried(storage)
        self._begun[storage] = version
        self.local[storage] = held = Contents(value, None, version)
        return held
