"""Lists and deques as state: `prev = cur`, `window.append(x)` of a deque that is full, `xs.pop(0); xs.append(x)`.

While a body is traced a list or deque of the iteration's own stands in place of the one from before. It may do whatever
it likes with that, as long as what it leaves has as many elements. A few of them are a variable each; more of them,
numbers all, are an array. Behind the loop the same object has the elements that the last iteration left, or, if
iterations bind the variable anew, a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autofuse.frontend.forks import CannotRollError, Fork, HeldError
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.carried import CarriedTuple, Carry, Name, stays_small
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.growing import references, usual_references
from autofuse.frontend.rolling.tables import DTYPES, Kind, array_of, common_kind, listed
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_FEW = 16
"""Numbers that are a variable each; more are an array."""
_MOST = 1 << 12
_MOST_FILLED = 64
"""Iterations that are traced alone while they fill a deque."""


class KindsError(BaseException):
    """A list or deque gets numbers of a wider kind: the loop is to be traced again, with all of that kind before it."""

    def __init__(self, name: Name, kind: Kind) -> None:
        super().__init__()
        self.name = name
        self.kind: Kind = kind


def is_sequence(content: Any) -> bool:
    """Whether it is a list or deque of Python's own."""
    return type(content) in (list, deque)


class Sequences:
    """What lists and deques of a loop's variables are, and who else holds them."""

    def __init__(self, frame: Frame) -> None:
        around = innermost_fork()
        contents = {name: frame.get([name])[name] for name in frame.names()}
        found = {name: id(content) for name, content in contents.items() if is_sequence(content)}
        del contents
        noted = {one: int(around is not None and one in around.objects) for one in found.values()}
        self._names = {one: name for name, one in found.items()}
        self._alone = {
            name
            for name, one in found.items()
            if (around is None or noted[one]) and _holders(frame, name) == usual_references() + noted[one]
        }

    def name_of(self, held: HeldError) -> str | None:
        """The variable that alone holds what cannot be changed; None if there is none."""
        name = self._names.get(held.held)
        return name if name in self._alone else None

    def is_alone(self, name: Name) -> bool:
        """Whether nothing but the variable holds its list."""
        return name in self._alone


def _holders(frame: Frame, name: str) -> int:
    cell = frame.cell(name)
    return 0 if cell is None else references(cell)


class Held:
    """A list or deque while a loop is traced: the one from before, and the one that an iteration begins with."""

    def __init__(self, name: Name, before: Any, stand_in: Any, fork: Fork, *, is_alone: bool) -> None:
        """`before`: what the variable is bound to before the loop."""
        self._name, self._before, self._fork, self._is_alone = name, before, fork, is_alone
        self._key = id(stand_in)
        for one in (stand_in, *_rows(stand_in)):
            fork.objects[id(one)] = one  # and nothing else holds it
        self._items = [*map(id, stand_in)], [[*map(id, row)] for row in _rows(stand_in)]
        self._is_same = False

    @property
    def stand_in(self) -> Any:
        """What an iteration begins with."""
        return self._fork.objects[self._key]

    @property
    def is_changed(self) -> bool:
        """Whether the body changed the object that it began with."""
        mine = self.stand_in
        return self._items != ([*map(id, mine)], [[*map(id, row)] for row in _rows(mine)])

    def require_like(self, end: Any) -> None:
        """Raise CannotRollError for what is no such list behind the body."""
        self._is_same = end is self.stand_in
        if type(end) is not type(self._before) or (not self._is_same and id(end) not in self._fork.objects):
            raise CannotRollError(f"{self._name} is bound to something else in the next iteration", first=True)
        if len(end) != len(self._before):
            raise CannotRollError(f"{self._name} has another length in the next iteration", first=self._missing())
        if isinstance(end, deque) and end.maxlen != self._before.maxlen:
            raise CannotRollError(f"{self._name} is another deque in the next iteration", first=True)
        if self.is_changed and not self._is_alone:
            raise CannotRollError(f"{self._name} is changed in place, and something else holds it")

    def _missing(self) -> int:
        """How many iterations may fill a deque before it has the same length all the time."""
        most = self._before.maxlen if isinstance(self._before, deque) else None
        return 1 if most is None or most > _MOST_FILLED else max(most - len(self._before), 1)

    def left(self, items: Iterable[Any]) -> Any:
        """What the variable is bound to behind the loop, of which the last iteration left `items`."""
        if self._is_same and not self.is_changed:
            return self._before
        if not self._is_same:
            return _noted(_like(self._before, items))
        refill(self._before, items)
        return self._before


class CarriedItems(CarriedTuple):
    """A list or deque of a few things, each of them a variable."""

    def __init__(self, name: Name, content: Any, parts: Sequence[Any], held: Callable[[Any], Held]) -> None:
        """`content`: as what the variable is bound to before the loop. `held`: makes a stand-in what it is."""
        self.name, self.content, self.parts = name, content, parts
        self._kind: Kind | None = common_kind(content)
        self._held = held(_like(content, [part.stand_in for part in parts]))

    @property
    def stand_in(self) -> Any:
        """What an iteration begins with."""
        return self._held.stand_in

    @property
    def is_changed(self) -> bool:
        """Whether the body changed the object that it began with."""
        return self._held.is_changed

    def of(self, items: Sequence[Any]) -> Any:
        """What the variable is bound to behind the loop."""
        return self._held.left(items)

    def items_of(self, end: Any) -> tuple[Any, ...]:
        """As of a tuple. Raises KindsError."""
        self._held.require_like(end)
        kind = None if self._kind is None else common_kind(end, self._kind)
        if kind is not None and kind != self._kind:
            raise KindsError(self.name, kind)
        return tuple(end)


class CarriedList:
    """A list or deque of many numbers, or a list of such lists: an array."""

    def __init__(self, name: Name, content: Any, kind: Kind, region: Region, held: Callable[[Any], Held]) -> None:
        """As of CarriedItems. `kind`: what all elements are."""
        self.name, self.content, self._region = name, content, region
        self._kind: Kind = kind
        rows = _rows(content)
        shape = (len(content), len(rows[0])) if rows else (len(content),)
        self._given = region.input(TensorType(shape, dtypes.from_numpy(DTYPES[kind])))
        self._held = held(_like(content, listed(fresh(self._given, is_scalar=False), kind)))
        self._last: Value | None = None

    @property
    def stand_in(self) -> Any:
        """What an iteration begins with."""
        return self._held.stand_in

    @property
    def is_changed(self) -> bool:
        """Whether the body changed the object that it began with."""
        return self._held.is_changed

    def carry(self, end: Any) -> Carry:
        """Its part of the state. `end`: what it is bound to behind the body. Raises KindsError."""
        self._held.require_like(end)
        kind = common_kind(end, self._kind)
        if kind is None or _shape(end) != _shape(self.content):
            raise CannotRollError(f"{self.name} is a list of numbers that gets something else", first=True)
        if kind != self._kind:
            raise KindsError(self.name, kind)
        if kind == "int" and not all(map(stays_small, _leaves(end))):
            raise CannotRollError(f"{self.name} gets integers that each iteration computes anew")
        with self._region.entered():
            left = array_of(end, kind).value
        return Carry(lambda: array_of(self.content, kind).value, self._given, left, self._done)

    def _done(self, value: Value) -> None:
        self._last = value

    def after(self) -> Any:
        """What the variable is bound to behind the loop."""
        assert self._last is not None
        return self._held.left(listed(fresh(self._last, is_scalar=False), self._kind))


def refill(held: Any, items: Iterable[Any]) -> None:
    """Have a list or deque hold other elements, as many; of lists in it, those lists."""
    if isinstance(held, deque):
        held.clear()
        held.extend(items)
        return
    for place, item in enumerate(items):
        if type(item) is list and type(held[place]) is list:
            held[place][:] = item
        else:
            held[place] = item


def own_copies(held: Mapping[str, Any], fork: Fork, kind: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Lists and deques of a region's own with the elements of others. `kind`: makes them all lists, say."""
    found = {name: _like(one, one) if kind is None else kind(one) for name, one in held.items()}
    fork.objects.update({id(one): one for one in found.values()})
    return found


def is_long(content: Any, kind: Kind | None) -> bool:
    """Whether a list or deque of a kind is an array, and not a variable for each element."""
    return kind is not None and (bool(_rows(content)) or _FEW < len(content) <= _MOST)


def _like(content: Any, items: Iterable[Any]) -> Any:
    """Elements as another list or deque has them."""
    return deque(items, content.maxlen) if isinstance(content, deque) else list(items)


def _noted(made: Any) -> Any:
    """A list or deque that is the region's own, if there is one under way."""
    fork = innermost_fork()
    if fork is not None:
        fork.objects.update({id(one): one for one in (made, *_rows(made))})
    return made


def _rows(content: Any) -> list[list[Any]]:
    """The lists that a list holds."""
    return [row for row in content if type(row) is list]


def _leaves(content: Any) -> Iterator[Any]:
    for item in content:
        yield from item if type(item) is list else (item,)


def _shape(content: Any) -> list[int]:
    return [len(content), *map(len, _rows(content))]
