"""Python's `if` on a traced value as an `if` of the graph: both sides are traced, and what they leave is joined."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError, Fork, HeldError
from autofuse.frontend.promotion import convert, result_dtype, value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.appending import growing_lists
from autofuse.frontend.rolling.carried import Name, zeros
from autofuse.frontend.rolling.frames import UNBOUND, Frame
from autofuse.frontend.rolling.nothing import absent_of, is_part, like, maybe, parts_of, settled
from autofuse.frontend.rolling.numbers import Atom, Comparison, Number, Truth, floating, larger, truth_of
from autofuse.frontend.rolling.places import Place, put_back
from autofuse.frontend.rolling.returns import is_returned
from autofuse.frontend.rolling.sequences import Sequences, own_copies, refill
from autofuse.frontend.tracecontext import Checks, current, innermost_fork, innermost_loop
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, replace

_I64, _F64, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
_JOINED = "it is one of two arrays, as a condition decides"


@dataclass(slots=True, eq=False)
class _Side:
    """One side of a branch, traced."""

    region: Region
    fork: Fork
    ends: Mapping[Name, Any]
    """What variables are bound to behind it."""


@dataclass(slots=True, eq=False)
class _Joined:
    """A result of both sides."""

    values: tuple[Value, Value]
    done: Callable[[Value], None]
    """Gets the result."""


def branch(
    test: TracerArray,
    frame: Frame,
    names: Sequence[str],
    live: Container[Any],
    sides: Sequence[Callable[[], Any]],
    appended: Sequence[str] = (),
) -> Any:
    """Trace both sides: their variables `names` and the arrays that they write are joined; returns what they return.

    `live`: the variables that are read behind them before they are bound again; others are not joined. `appended`:
    those whose lists they only append to. Raises CannotRollError where they leave what no graph can choose from.
    """
    sequences = Sequences(frame)
    held: list[str] = []
    while True:
        try:
            return _branch(test, frame, names, live, sides, appended, held)
        except HeldError as error:
            name = sequences.name_of(error)
            if name is None or name in (*held, *names):
                raise
            held.append(name)


def _branch(
    test: TracerArray,
    frame: Frame,
    names: Sequence[str],
    live: Container[Any],
    sides: Sequence[Callable[[], Any]],
    appended: Sequence[str],
    held: Sequence[str],
) -> Any:
    """As `branch`. `held`: variables whose lists and deques a side changes: each side gets one of its own."""
    entry = frame.get((*names, *held))
    lists = {name: entry[name] for name in held}
    around, growing = innermost_fork(), growing_lists(frame, appended)
    traced: list[_Side] = []
    forks: list[Fork] = []
    try:
        for side in sides:
            frame.set(entry)
            fork = Fork()
            fork.lists = growing.held(forks)
            frame.tell(fork, names)
            fork.present = test.settles[len(traced)]
            frame.set(own_copies(lists, fork))
            forks.append(fork)
            region = Region("branch", (), fork=fork)
            try:
                with region.entered():
                    returned = side()
            finally:
                set_ = put_back(fork)
            new = {f"element {number}": value for number, (_, value) in enumerate(fork.appended)}
            with region.entered():
                held_ends = own_copies(frame.get(held), fork, list)
                found = {**frame.get(names), **held_ends, "": returned, **set_, **new}
                ends = {name: settled(end) for name, end in found.items()}
            traced.append(_Side(region, fork, ends))
        receivers = _receivers(*traced)
    finally:
        frame.set(entry)
        for fork in forks:
            fork.appended.clear()  # so that nothing but the function holds those lists
    first, second = traced
    places = dict.fromkeys(name for side in traced for name in side.ends if isinstance(name, Place))
    for side in traced:
        side.ends = {**{place: place.get() for place in places}, **side.ends}
    joined: list[_Joined] = []
    for storage in dict.fromkeys((*first.fork.changed(), *second.fork.changed())):
        values: list[Value] = []
        for side in traced:
            with side.region.entered():
                values.append(storage.read())
        joined.append(_Joined((values[0], values[1]), storage.write))
    after: dict[Name, Any] = {**entry}
    elements = [f"element {number}" for number in range(len(receivers))]
    _require_as_long(lists, traced)
    wanted = {*places, *elements, *held, ""}
    for name in (*names, *held, *places, *elements, ""):
        if name in wanted or name in live or first.ends[name] is second.ends[name]:
            _join(test, name, first, second, after, joined)
        else:
            after[name] = UNBOUND
    _emit(test, first, second, joined)
    whole = {name: _composed(value) for name, value in after.items()}
    returned = whole.pop("")
    for receiver, name in zip(receivers, elements, strict=True):
        growing.append(around, receiver, whole.pop(name))
    _set(frame, whole, lists)
    return returned


def _set(frame: Frame, whole: dict[Name, Any], lists: Mapping[str, Any]) -> None:
    """Have variables, lists and places be what the sides left."""
    for name, before in lists.items():
        refill(before, whole.pop(name))
    frame.set({name: value for name, value in whole.items() if isinstance(name, str)})
    for name, value in whole.items():
        if isinstance(name, Place):
            name.set(value)


def _require_as_long(lists: Mapping[str, Any], sides: Sequence[_Side]) -> None:
    """Raise CannotRollError where the sides leave lists of different lengths."""
    for name in lists:
        first, second = (side.ends[name] for side in sides)
        if len(first) != len(second):
            raise CannotRollError(f"{name} has {len(first)} elements on one side and {len(second)} on the other")


def _receivers(first: _Side, second: _Side) -> list[list[Any]]:
    """The lists that both sides append to, in turn. Raises CannotRollError where they differ."""
    sides = [[receiver for receiver, _ in side.fork.appended] for side in (first, second)]
    if len(sides[0]) != len(sides[1]) or any(a is not b for a, b in zip(*sides, strict=True)):
        raise CannotRollError("its sides append to lists, and not the same number of elements: no array is as long")
    return sides[0]


@dataclass(slots=True, eq=False)
class _Tuple:
    """A tuple or list of what is joined, or a number that may be None."""

    kind: Any
    after: dict[Name, Any]

    def made(self) -> Any:
        items = [_composed(item) for item in self.after.values()]
        if self.kind is list:
            around = innermost_fork()
            if around is not None:
                around.objects[id(items)] = items
            return items
        return self.kind(*items) if self.kind is maybe or hasattr(self.kind, "_fields") else tuple(items)


def _composed(value: Any) -> Any:
    return value.made() if isinstance(value, _Tuple) else value


def _join_tuples(
    test: TracerArray, name: Name, first: tuple[_Side, Any], second: tuple[_Side, Any], joined: list[_Joined]
) -> _Tuple:
    """Two tuples of one length, element by element."""
    made = _Tuple(type(first[1]), {})
    for number, (a, b) in enumerate(zip(first[1], second[1], strict=True)):
        part = f"{name}[{number}]"
        ends = [replace(side, ends={part: item}) for side, item in ((first[0], a), (second[0], b))]
        made.after[part] = UNBOUND
        _join(test, part, ends[0], ends[1], made.after, joined)
    return made


def _join(
    test: TracerArray, name: Name, first: _Side, second: _Side, after: dict[Name, Any], joined: list[_Joined]
) -> None:
    a, b = first.ends[name], second.ends[name]
    if a is b or (type(a) is type(b) and isinstance(a, bool | int | float | str) and a == b and repr(a) == repr(b)):
        after[name] = a
    elif isinstance(name, Place) and (a is UNBOUND or b is UNBOUND):
        raise CannotRollError(f"{name} is there on one side only")
    elif a is UNBOUND or b is UNBOUND:
        _join_bound(name, first, second, after, joined)
    elif _may_be_nothing(a, b):
        after[name] = _join_maybe(test, name, (first, a), (second, b), joined)
    elif _are_alike(first, second, a, b):
        after[name] = _join_tuples(test, name, (first, a), (second, b), joined)
    else:
        _join_values(test, name, (first, a), (second, b), after, joined)


def _may_be_nothing(a: Any, b: Any) -> bool:
    """Whether two values are numbers, of which one is None, or may be."""
    sides = [side for side in (a, b) if side is not None]
    is_one = len(sides) == 1 or any(absent_of(side) is not None for side in sides)
    return bool(sides) and is_one and all(map(is_part, sides))


def _join_maybe(
    test: TracerArray, name: Name, first: tuple[_Side, Any], second: tuple[_Side, Any], joined: list[_Joined]
) -> _Tuple:
    """Two numbers, of which one is None, or may be: a number and where it is None."""
    held = next(value for _, value in (first, second) if value is not None)
    made = _Tuple(maybe, {})
    parts = [(side, parts_of(value)) for side, value in (first, second)]
    values = [(side, like(held) if value is None else value) for side, (value, _) in parts]
    flags = [(side, absent) for side, (_, absent) in parts]
    for part, ((one, a), (other, b)) in ((f"{name}", values), (f"{name} is None", flags)):
        made.after[part] = UNBOUND
        ends = [replace(side, ends={part: value}) for side, value in ((one, a), (other, b))]
        _join(test, part, ends[0], ends[1], made.after, joined)
    return made


def _are_alike(first: _Side, second: _Side, a: Any, b: Any) -> bool:
    """Whether two values are tuples, or lists that the sides made, of as many elements."""
    if type(a) is not type(b) or not isinstance(a, tuple | list) or len(a) != len(b):
        return False
    return isinstance(a, tuple) or (type(a) is list and id(a) in first.fork.objects and id(b) in second.fork.objects)


def _join_bound(name: Name, first: _Side, second: _Side, after: dict[Name, Any], joined: list[_Joined]) -> None:
    """What one side returns or binds. If the other one is taken nothing asks for it, so it may be anything."""
    sides = [first, second]
    returning = 0 if second.ends[name] is UNBOUND else 1
    found = sides[returning].ends[name]
    if not isinstance(found, TracerArray):
        after[name] = found
        return
    values: list[Value] = []
    for side in sides:
        with side.region.entered():
            values.append(found.value if side is sides[returning] else zeros(found.cell.type))

    owner = sides[returning].region

    def done(value: Value) -> None:
        after[name] = _bound(value, found, found, _python(found), (owner, owner))

    joined.append(_Joined((values[0], values[1]), done))


def _join_values(
    test: TracerArray,
    name: Name,
    first: tuple[_Side, Any],
    second: tuple[_Side, Any],
    after: dict[Name, Any],
    joined: list[_Joined],
) -> None:
    a, b = first[1], second[1]
    if not (_is_part(a) and _is_part(b)):
        raise CannotRollError(
            f"{_called(name)} is a {type(a).__name__} on one side and a {type(b).__name__} on the other"
        )
    pythons = [_python(value) for value in (a, b)]
    if all(pythons) and pythons[0] is not pythons[1]:
        problem = "is a Python int on one side and a float on the other (write 0.0 for 0)"
        raise CannotRollError(f"{_called(name)} {problem}")
    if all(pythons) and isinstance(test, Comparison) and not is_returned(name) and not _must_roll():
        raise CannotRollError(f"{_called(name)}, a Python number, depends on the iteration", first=True)
    if all(pythons) and pythons[0] is int and type(a - b) is int:
        _join_integers(name, (first[0], a - b), (second[0], 0), b, after, joined)
        return
    dtype = {int: _I64, float: _F64}[pythons[0]] if all(pythons) and pythons[0] else result_dtype(a, b)
    values: list[Value] = []
    for side, value in (first, second):
        with side.region.entered():
            values.append(value_of(value, dtype))
    if values[0].type != values[1].type or (_is_array(a) != _is_array(b)):
        raise CannotRollError(f"{_called(name)} is {values[0].type} on one side and {values[1].type} on the other")

    def done(value: Value) -> None:
        after[name] = _bound(value, a, b, pythons[0] if all(pythons) else None, (first[0].region, second[0].region))

    joined.append(_Joined((values[0], values[1]), done))


def _must_roll() -> bool:
    """Whether no loop is around that could be unrolled."""
    fork = innermost_loop()
    return fork is None or fork.must_roll


def _called(name: Name) -> str:
    """A variable in a message."""
    return "what is returned" if is_returned(name) else str(name) or "it"


def _join_integers(
    name: Name,
    first: tuple[_Side, int],
    second: tuple[_Side, int],
    base: Any,
    after: dict[Name, Any],
    joined: list[_Joined],
) -> None:
    """Two integers that differ by a known number: what is added to `base` is chosen, so that its size stays known."""
    values: list[Value] = []
    for side, number in (first, second):
        with side.region.entered():
            values.append(value_of(number, _I64))

    def done(value: Value) -> None:
        low, high = sorted((first[1], second[1]))
        after[name] = base + Number({Atom(value, low, high, by_data=True): 1})

    joined.append(_Joined((values[0], values[1]), done))


def _bound(value: Value, a: Any, b: Any, python: type | None, regions: tuple[Region, Region]) -> Any:
    """What a variable is bound to behind the branch."""
    if python is float:
        return floating(value)
    if python is int:
        ends = [(n.low, n.high) if isinstance(n, Number) else (n, n) for n in (a, b)]
        lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
        known = len(lows) == len(highs) == 2
        ends = (min(lows), max(highs)) if known else (None, None)
        return Number({Atom(value, *ends, growth=larger(a, b), by_data=True): 1})
    if all(isinstance(side, bool | Truth) for side in (a, b)):
        return truth_of(fresh(value))
    result = fresh(value, is_scalar=not _is_array(a))
    for region, side in zip(regions, (a, b), strict=True) if _is_array(a) else ():
        others = side.cell.storage.possible if region.owns(side) else (side.cell.storage,)
        result.cell.storage.may_be(others)
        if any(other.read_only for other in others) or side.cell is not side.cell.storage:
            result.cell.storage.make_read_only(_JOINED)
    return result


def _is_part(value: Any) -> bool:
    return isinstance(value, TracerArray | np.generic | bool | int | float)


def _is_array(value: Any) -> bool:
    return isinstance(value, TracerArray) and not value.is_scalar


def _python(value: Any) -> type | None:
    if isinstance(value, Number):
        return value.python
    return type(value) if type(value) in (int, float) else None


def _emit(test: TracerArray, first: _Side, second: _Side, joined: Sequence[_Joined]) -> None:
    if not joined:
        return
    counts = len(first.region.checks), len(second.region.checks)
    seen = (first.region.numbers(0, counts[1]), second.region.numbers(counts[0], 0))
    regions = [
        side.region.finish([*(part.values[number] for part in joined), *seen[number]])
        for number, side in enumerate((first, second))
    ]
    condition = convert(test.value, _BOOL)
    results = current().builder.emit_many("if", (condition,), regions=regions)
    if any(counts):
        current().checks.append(Checks((*first.region.checks, *second.region.checks), results[-1]))
    for part, result in zip(joined, results, strict=False):
        part.done(result)
