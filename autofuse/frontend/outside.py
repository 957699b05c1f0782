"""What a traced function changes outside of itself: containers, attributes, variables and iterators.

A function is traced once, and its plan is called often: what Python does on the way is done while tracing, and never
again. Arrays are followed; the rest is looked at here, before the function runs and after it.

What is part of an argument must not change, as no call of a plan would change it. What is reached from globals,
closures and defaults may (tables that are filled when they are needed, counters): an OutsideStateWarning names it.
Traced arrays never stay there: those whose elements are known become NumPy's, others end the trace. Where a trace
fails, all is as it was before.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from operator import is_
from types import CellType, CodeType, FunctionType
from typing import Any, cast

import numpy as np

from autofuse.errors import OutsideStateWarning
from autofuse.frontend.dispatch import tracers_in
from autofuse.frontend.location import trace_error
from autofuse.frontend.tracer import TracerArray
from autofuse.ir.graph import Location
from autofuse.lazydataclass import dataclass, fields, is_dataclass

_CONTAINERS = (list, dict, set, deque)
_MISSING = object()


@dataclass(slots=True, eq=False)
class _Held:
    """A container, an object or a class, and what it held before."""

    owner: Any
    copy: Any
    """A list or dict of what it held."""
    own: bool
    """Whether it is the user's own, not a copy that the traced function sees in its place."""

    @property
    def before(self) -> dict[Any, Any]:
        """What it held, by key."""
        return self.copy if isinstance(self.copy, dict) else dict(enumerate(self.copy))

    @property
    def changes(self) -> dict[Any, Any]:
        """What is other than before, by key; `_MISSING` for what is gone."""
        if _same(self.copy, _contents(self.owner)):
            return {}  # which it nearly always is
        before, now = self.before, _Held(None, _contents(self.owner), own=False).before
        new = {key: value for key, value in now.items() if before.get(key, _MISSING) is not value}
        return new | {key: _MISSING for key in before if key not in now}


class Outside:
    """What one trace reaches of the world outside, as it was when it was reached."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._arguments: list[tuple[str, _Held]] = []
        self._cells: list[tuple[str, CellType, Any]] = []
        self._names: dict[int, tuple[str, Any]] = {}
        """By identity: what a function calls a value, and the value."""

    def hold(self, owner: Any, *, own: bool = True) -> None:
        """Note what a container, an object or a class holds. `own`: it is the user's, not a copy for the trace."""
        if id(owner) not in self._held:
            self._held[id(owner)] = _Held(owner, _contents(owner), own)

    def hold_all(self, owner: Any) -> None:
        """The same for all containers in it, too."""
        if id(owner) not in self._held:
            self.hold(owner)
            for item in self._held[id(owner)].before.values():
                if isinstance(item, _CONTAINERS):
                    self.hold_all(item)

    def hold_arguments(self, values: Mapping[str, Any]) -> None:
        """The same for all containers among arguments, by path."""
        for path, value in values.items():
            self._hold_argument(path, value)

    def hold_variable(self, name: str, cell: CellType, value: Any) -> None:
        """Note what a variable of an enclosing function holds."""
        self._cells.append((name, cell, value))

    def named(self, value: Any, name: str) -> None:
        """Note what functions call a value, for messages."""
        if not isinstance(value, bool | int | float | str | None):
            self._names.setdefault(id(value), (name, value))

    @contextmanager
    def watched(self, function: Callable[..., Any], name: str, new_globals: Callable[[], list[str]]) -> Generator[None]:
        """Around the run of the traced function: what it may change, it may; what it may not is a TraceError.

        `new_globals`: names of the globals that it has assigned.
        """
        try:
            yield
            place = place_of(function)
            for path, held in self._arguments:
                if held.changes:
                    raise _lost(path, held, place)
            changed = [held for held in self._held.values() if held.changes]
            for held in changed:
                self._without_tracers(held, place)
        except BaseException:
            for held in self._held.values():
                if held.own and held.changes:
                    _put_back(held)
            raise
        names = [*new_globals(), *(name for name, cell, value in self._cells if _content(cell) is not value)]
        names += [self._title(held) for held in changed if not _is_cache(held)]
        if names:
            _warn(name, sorted(set(names)), place)

    def _hold_argument(self, path: str, value: Any) -> None:
        if isinstance(value, TracerArray):
            return
        if isinstance(value, list | dict) or (is_dataclass(value) and not isinstance(value, type)):
            self._arguments.append((path, _Held(value, _contents(value), own=False)))
        elif not isinstance(value, tuple):
            return
        for key, item in _Held(value, _contents(value), own=False).before.items():
            self._hold_argument(_below(path, value, key), item)

    def _without_tracers(self, held: _Held, place: Location | None) -> None:
        for key, value in held.changes.items():
            tracers = list(tracers_in(value))
            if not tracers:
                continue
            if isinstance(value, TracerArray) and value.known is not None and isinstance(held.owner, dict | list):
                held.owner[key] = np.array(value.known())[()] if value.is_scalar else np.array(value.known())
            elif isinstance(value, TracerArray) and value.known is not None and not isinstance(held.owner, _CONTAINERS):
                setattr(held.owner, key, np.array(value.known()))
            else:
                raise trace_error(
                    f"{self._title(held)}, outside of the function, was given a traced array", "return it", at=place
                )

    def _title(self, held: _Held) -> str:
        known = self._names.get(id(held.owner))
        if isinstance(held.owner, _CONTAINERS):
            return known[0] if known else f"a {type(held.owner).__name__}"
        name = known[0] if known else _class_name(held.owner)
        return ", ".join(f"{name}.{key}" for key in held.changes)


class FrozenIterator:
    """An iterator that the traced function did not make: it can be passed around, not used up."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._autofuse_iterator = iterator

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]  # nobody assigns it
        """The iterator's own, so that isinstance says what the user expects."""
        return type(self._autofuse_iterator)

    def __iter__(self) -> Iterator[Any]:
        raise self._used_up()

    def __next__(self) -> Any:
        raise self._used_up()

    def _used_up(self) -> BaseException:
        return trace_error(
            f"a {type(self._autofuse_iterator).__name__} made outside the traced function would be used up by the"
            " trace, and every call would have what it gave then",
            "make it inside, or pass what it gives as an argument",
        )


def is_iterator(value: Any) -> bool:
    """Whether a value is one of Python's own iterators, such as a generator or `itertools.count()`."""
    return type(value).__module__ in ("builtins", "itertools") and isinstance(value, Iterator)


def _contents(owner: Any) -> Any:
    """What a container, an object or a class holds now: a dict by key, or a list."""
    match owner:
        case dict():
            return dict(cast("dict[Any, Any]", owner))
        case list() | tuple() | deque():
            return list(cast("Iterable[Any]", owner))
        case set():
            return {item: item for item in cast("set[Any]", owner)}
        case _ if is_dataclass(owner) and not hasattr(owner, "__dict__"):
            return {field.name: getattr(owner, field.name, _MISSING) for field in fields(owner)}
        case _:
            return {key: value for key, value in vars(owner).items() if not key.startswith("__")}


def _same(before: Any, now: Any) -> bool:
    """Whether two lists, or two dicts, hold the same objects in the same order."""
    if len(before) != len(now) or not all(map(is_, before, now)):
        return False
    return not isinstance(now, dict) or all(map(is_, before.values(), cast("dict[Any, Any]", now).values()))


def _put_back(held: _Held) -> None:
    owner = held.owner
    match owner:
        case dict() | set():
            owner.clear()
            owner.update(held.before)
        case list() | deque():
            owner.clear()
            owner.extend(held.before.values())
        case _:
            kind = type if isinstance(owner, type) else object
            for key in held.changes:
                if key in held.before:
                    kind.__setattr__(owner, key, held.before[key])
                else:
                    kind.__delattr__(owner, key)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _is_cache(held: _Held) -> bool:
    """Whether an object has no more than properties that are kept once they were computed."""
    if isinstance(held.owner, (*_CONTAINERS, type, FunctionType)):
        return False
    return all(isinstance(getattr(type(held.owner), key, None), cached_property) for key in held.changes)


def _below(path: str, value: Any, key: Any) -> str:
    names: tuple[str, ...] | None = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return f"{path}.{names[key]}"
    return f"{path}[{key!r}]" if isinstance(value, list | tuple | dict) else f"{path}.{key}"


def _class_name(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, type | FunctionType) else f"a {type(owner).__name__}"


def place_of(function: Callable[..., Any]) -> Location | None:
    """Where a function begins."""
    inner = getattr(function, "func", None) or getattr(function, "function", None) or function
    code: CodeType | None = getattr(inner, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno, code.co_name)


def _lost(path: str, held: _Held, place: Location | None) -> BaseException:
    key = next(iter(held.changes))
    where = f"{path}.{key}" if not isinstance(held.owner, list | dict) else f"{path}[{key!r}]"
    return trace_error(
        f"changing {path}, an argument, in a function that is compiled: a plan would not do so",
        f"return the new values, or write into the array: {where}[...] = value",
        at=place,
    )


def _warn(function: str, names: list[str], place: Location | None) -> None:
    message = (
        f"autofuse: {function} changes {', '.join(names)} outside of itself. That happens while it is traced, not in"
        " calls of its plan, whose results are those of this trace: pass such values as arguments, and return new ones"
    )
    file, line = ("<unknown>", 0) if place is None else (place.file, place.line)
    warnings.warn_explicit(message, OutsideStateWarning, file, line)
