"""A Python `for` as a `scan`: its body is traced once, for an iteration that a number stands for.

What iterations write into arrays, and the variables that live from one to the next, are the loop's state. Where the
body does what differs from one iteration to another, or changes Python's own objects, the loop is unrolled: every
iteration is traced. The first ones, and the last ones, may be traced alone, where the others are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import CannotRollError, Fork, WrittenLateError
from autofuse.frontend.promotion import as_tracer, convert, value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.appending import Appended, Living, private_lists
from autofuse.frontend.rolling.carried import (
    CarriedArray,
    CarriedNumber,
    Carry,
    Counted,
    KeepError,
    Kept,
    StepError,
    Variable,
    content_value,
    kind_of,
    last_value,
    left_by,
    nothing,
    zeros,
)
from autofuse.frontend.rolling.emission import emit, emit_while
from autofuse.frontend.rolling.frames import UNBOUND, Frame
from autofuse.frontend.rolling.items import Items
from autofuse.frontend.rolling.numbers import Atom, Number
from autofuse.frontend.rolling.returns import is_returned
from autofuse.frontend.rolling.variables import Variables
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_BOOL = np.dtype(np.bool_)
_R = TypeVar("_R")
_STATE = frozenset(np.dtype(kind) for kind in ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d"])
"""dtypes of NumPy's scalars that arrays of a graph have."""
_COUNTER = TensorType((), dtypes.I64)
_AGAIN = 12
"""How often a body is traced at most, each time with one thing more known of it."""
_PERIODS = 4
"""Most iterations that are taken together, where arrays change their names."""


@dataclass(slots=True, eq=False)
class Knowledge:
    """What is known of a loop's body from having traced it."""

    written: set[Any]
    """Arrays that it writes into: their storages."""
    kept: set[str]
    """Variables whose arrays keep their identity."""
    read: set[str]
    """Variables that it reads before it binds them."""
    steps: dict[str, int]
    """Integer variables, and what is added to each every time."""
    period: int = 1
    """Iterations that are taken together."""


def roll(
    body: Callable[[Any], None], items: Items, found: Variables, first: int, count: Any, ends: tuple[bool, bool]
) -> int:
    """Trace iterations `first`, ... as a loop of the graph; `count` of them, an `int` or a Number.

    `ends`: whether the first, and the last, may be traced alone. Returns how many are done: some at the end may be
    left, where several are taken together. Raises CannotRollError, and then nothing has happened.
    """
    frame = Frame(body)
    return _settled(
        frame, found, lambda known: _Attempt(body, found, frame, known), lambda one: one.run(items, first, count, ends)
    )


def roll_while(test: Callable[[], Any], body: Callable[[], None], holds: TracerArray, found: Variables) -> None:
    """Trace `while test(): body()`, whose condition is `holds` the first time. Raises as `roll` does."""
    frame = Frame(test, body)
    _settled(frame, found, lambda known: _Attempt(body, found, frame, known), lambda one: one.run_while(test, holds))


def _settled(
    frame: Frame, found: Variables, begin: Callable[[Knowledge], _Attempt], run: Callable[[_Attempt], _R]
) -> _R:
    """What an attempt gives, once enough is known of the body."""
    entry = frame.get(found.assigned)
    arrays = [value for value in frame.get(found.written).values() if isinstance(value, TracerArray)]
    written = {array.cell.storage for array in arrays}
    known = Knowledge(written, set(found.in_place), set(found.first_read), dict(found.counted))
    for _ in range(_AGAIN):
        attempt = begin(known)
        try:
            return run(attempt)
        except WrittenLateError as late:
            if late.fork is not attempt.fork:
                frame.set(entry)
                raise
            known.written.add(late.storage)
        except KeepError as keep:
            known.kept.update(keep.names)
        except StepError as found_step:
            known.steps[found_step.name] = found_step.step
        except _AgainError:
            pass
        except BaseException:
            frame.set(entry)
            raise
        finally:
            attempt.fork.appended.clear()  # so that nothing but the function holds those lists
        frame.set(entry)
    raise CannotRollError("what it writes does not settle")


class _AgainError(BaseException):
    """Something more is known of a body, with which it is to be traced again."""


class _Attempt:
    """One trace of a body."""

    def __init__(self, body: Callable[..., None], found: Variables, frame: Frame, known: Knowledge) -> None:
        self._body = body
        self._found = found
        self._frame = frame
        self._known = known
        self.fork = Fork(lambda storage: self._region.input(storage.type), known.written)
        self._region = Region("body", (), repeats=True, fork=self.fork)

        self._entry = frame.get(found.assigned)
        self._begun: Mapping[str, Variable] = {}
        self._ends: Mapping[str, Any] = {}
        self._carries: list[Carry] = []
        self._to: dict[Value, Value] = {}
        self._after: dict[str, Callable[[], Any]] = {}
        self._bound: dict[int, Any] = {}
        self._shared: dict[Any, Any] = {}
        self._may_be_empty = True

    def run(self, items: Items, first: int, count: Any, ends: tuple[bool, bool]) -> int:
        """As `roll`."""
        period = self._known.period
        if period > 1 and not isinstance(count, int):
            raise CannotRollError("arrays change their names in a loop of unknown length")
        trips = count // period if isinstance(count, int) else count
        self._may_be_empty = not isinstance(count, int)
        if isinstance(count, int):
            self.fork.lists = private_lists(self._frame, self._found.appended)
        high = trips.high if isinstance(trips, Number) else trips
        most = None if high is None else max(high - 1, 0)
        is_loose = isinstance(trips, Number) and trips.is_loose
        ends = ends if period == 1 else (False, False)
        counter = Atom(self._region.input(_COUNTER), 0, most, ends, is_loose=is_loose)

        def iterations() -> None:
            for number in range(period):
                self._body(items.item(Number({counter: period}, first + number)))

        if not isinstance(count, int):
            self._known.read |= set(self._found.after)  # it may run no iteration: then they are what they were
        self._trace(iterations, (Number({counter: 1}), trips))
        self._settle(counter, trips)
        appended = Appended(self.fork.appended, self._living(), self._region, counter, trips)
        emit(self._region, [*self._carries, *appended.carries], self._to, counter, trips)
        self._bind()
        appended.append(self._bound)
        return trips * period if isinstance(trips, int) else 0

    def run_while(self, test: Callable[[], Any], holds: TracerArray) -> None:
        """As `roll_while`. The condition is a part of the state: the body ends with it."""
        again: list[Value] = []

        def iteration() -> None:
            self._body()
            again.append(value_of(test(), _BOOL))

        self._known.read |= set(self._found.after)  # it may run no iteration: then they are what they were
        self._trace(iteration, None)
        self._settle(None, None)
        given = self._region.input(TensorType((), dtypes.BOOL))
        first = Carry(lambda: convert(holds.value, _BOOL), given, again[0], nothing)
        emit_while(self._region, [*self._carries, first], self._to)
        self._bind()

    def _trace(self, run: Callable[[], None], counted: tuple[Number, Any] | None) -> None:
        """Trace the body. `counted`: the number of the iteration and how many there are, of a counted loop."""
        entry = self._entry
        if counted is None or not isinstance(counted[1], int):
            state = self._known.read - self._known.kept
            entry = {name: _as_scalar(value) if name in state else value for name, value in entry.items()}
        with self._region.entered():
            begun = self._begin(entry, counted)
        self._frame.set({name: begun[name].stand_in if name in begun else UNBOUND for name in entry})
        self._guarded(run)
        self._begun, self._ends = begun, self._frame.get(self._found.assigned)

    def _settle(self, counter: Atom | None, trips: Any) -> None:
        """Find what is state, and what variables are bound to behind the loop."""
        self._keep_cycles()
        self._same_names(self._begun, self._ends)
        self._arrays()
        for name, end in self._ends.items():
            if name in self._begun:
                self._settle_variable(name, self._begun[name], end)
            else:
                self._bind_last(name, end, self._entry[name], counter, trips)

    def _living(self) -> Living:
        begun = {name: v for name, v in self._begun.items() if isinstance(v, CarriedArray)}
        return Living(
            {id(variable.stand_in): name for name, variable in begun.items()},
            {name: variable.content for name, variable in begun.items()},
            {name: end for name, end in self._ends.items() if name in self._begun or name in self._found.after},
        )

    def _bind(self) -> None:
        self._frame.set({name: bound() for name, bound in self._after.items()})

    def _begin(self, entry: Mapping[str, Any], counting: tuple[Number, Any] | None) -> dict[str, Variable]:
        """Stand-ins for the variables that the body reads first."""
        counted = self._known.steps
        begun: dict[str, Variable] = {}
        for name, content in entry.items():
            if content is UNBOUND or name not in self._known.read or is_returned(name):
                continue
            if counting is not None and name in counted and _is_number(content, int):
                begun[name] = Counted(name, content, counted[name], *counting)
            elif _is_number(content, int) or _is_number(content, float):
                begun[name] = CarriedNumber(name, content, self._region, is_counted=counting is not None)
            elif isinstance(content, TracerArray) and (content.is_scalar or name not in self._known.kept):
                begun[name] = CarriedArray(name, content, self._region)
            else:
                begun[name] = Kept(name, content)
        return begun

    def _guarded(self, run: Callable[[], None]) -> None:
        """Trace something in the region."""
        try:
            with self._region.entered():
                run()
        except NameError as error:
            if error.name not in self._found.assigned or error.name in self._known.read:
                raise CannotRollError(f"{error}") from error
            self._known.read.add(error.name)
            raise _AgainError from error
        except Exception as error:
            raise CannotRollError(f"{error}".partition("\n")[0]) from error

    def _same_names(self, begun: Mapping[str, Variable], ends: Mapping[str, Any]) -> None:
        """Where arrays that keep their identity have changed their names, more iterations may bring the names back."""
        kept = [name for name, variable in begun.items() if isinstance(variable, Kept)]
        moved = [name for name in kept if ends[name] is not begun[name].stand_in]
        arrays = {id(begun[name].stand_in) for name in kept if isinstance(begun[name].stand_in, TracerArray)}
        if moved and self._known.period < _PERIODS and all(id(ends[name]) in arrays for name in moved):
            self._known.period += 1
            self._known.steps.clear()
            raise _AgainError

    def _keep_cycles(self) -> None:
        """Arrays that only change their names are the same arrays behind the loop."""
        arrays = {id(v.stand_in): n for n, v in self._begun.items() if isinstance(v, Kept | CarriedArray)}
        to = {name: arrays.get(id(self._ends[name])) for name in self._begun}
        for name in arrays.values():
            way = [name]
            while (following := to[way[-1]]) is not None and following not in way:
                way.append(following)
            if following == name and len(way) > 1 and not self._known.kept.issuperset(way):
                raise KeepError(*way)

    def _arrays(self) -> None:
        """What iterations write into arrays is state; other arrays that they might have written are as before."""
        changed = self.fork.changed()
        for storage, given in self.fork.given.items():
            if storage not in changed:
                self._to[given] = storage.read()
                continue
            left = self.fork.local[storage].value
            assert left is not None
            self._carries.append(Carry(storage.read, given, left, storage.write))

    def _settle_variable(self, name: str, variable: Variable, end: Any) -> None:
        outcome = variable.settle(end, self.fork, self._region)
        self._to |= outcome.to or {}
        if outcome.carry is None:
            self._bound[id(end)] = outcome.after
            self._after[name] = lambda: outcome.after
        else:
            self._carry(name, outcome.carry, end)

    def _carry(self, name: str, carry: Carry, end: Any) -> None:
        """A part of the state that the variable is bound to behind the loop; variables of one object have one again."""
        if (
            isinstance(end, TracerArray)
            and not end.is_scalar
            and self._shared.setdefault(end.cell.storage, end) is not end
        ):
            raise CannotRollError(f"{name} shares memory with another variable", last=True)
        results: list[Value] = []
        carry.done = results.append
        self._carries.append(carry)

        others = self._others(name)

        def bound() -> Any:
            if id(end) not in self._bound:
                self._bound[id(end)] = left = left_by(end, results[0])
                left.cell.storage.may_be(others)
            return self._bound[id(end)]

        self._after[name] = bound

    def _others(self, name: str) -> list[Storage]:
        """The arrays from before the loop that a variable may be bound to behind it."""
        carried = {n: v for n, v in self._begun.items() if isinstance(v, CarriedArray) and not v.content.is_scalar}
        names = {variable.stand_in.cell.storage: n for n, variable in carried.items()}
        found: dict[Storage, None] = {}
        reached = [name]
        for one in reached:
            end = self._ends[one]
            if not isinstance(end, TracerArray) or end.is_scalar:
                continue
            if one in carried and (self._may_be_empty or end is carried[one].stand_in):
                found[carried[one].content.cell.storage] = None
            for storage in (end.cell.storage, *end.cell.storage.possible):
                if storage in names:
                    reached += [names[storage]] if names[storage] not in reached else []
                elif not self._region.has(storage):
                    found[storage] = None
        return list(found)

    def _bind_last(self, name: str, end: Any, before: Any, counter: Atom | None, trips: Any) -> None:
        """A variable that iterations bind before they read it; what the last one left may be read behind the loop."""
        if end is UNBOUND or name not in self._found.after:
            self._after[name] = lambda: before if end is UNBOUND else UNBOUND
            return
        if is_returned(name):
            self._bind_returned(name, end, before)
            return
        if counter is None or not isinstance(trips, int):
            raise NameError(f"{name} may be unbound behind the loop", name=name)
        last = last_value(end, counter, trips - 1)
        if last is not None or _is_constant(end):
            self._after[name] = lambda: end if last is None else last
            return
        if not isinstance(end, TracerArray):
            raise CannotRollError(f"{name}, a {type(end).__name__}, is read behind the loop", last=True)
        if not end.is_scalar and not self._region.owns(end):
            if end.cell is not end.cell.storage:
                raise CannotRollError(f"{name}, a view, is read behind the loop", last=True)
            self._after[name] = lambda: end
            return
        given = self._region.input(end.cell.type)
        with self._region.entered():
            left = end.value
        self._carry(name, Carry(lambda: zeros(end.cell.type), given, left, nothing), end)

    def _bind_returned(self, name: str, end: Any, before: Any) -> None:
        """What iterations may return: it is read only if the last one did, or something before the loop."""
        if before is UNBOUND or (_is_constant(end) and type(before) is type(end) and before == end):
            before = end
            if _is_constant(end):
                self._after[name] = lambda: end
                return
        parts = [end, before]
        if not all(isinstance(part, TracerArray) or type(part) in (bool, int, float) for part in parts):
            raise CannotRollError(f"it returns a {type(end).__name__} that may be another one before")
        kinds = {kind_of(part) for part in parts}
        if len(kinds) > 1:
            raise CannotRollError("it returns other kinds of numbers or arrays than before")
        with self._region.entered():
            left = content_value(end)
        given = self._region.input(left.type)
        first = (lambda: zeros(left.type)) if before is end else (lambda: content_value(before))
        self._carry(name, Carry(first, given, left, nothing), end)


def _is_number(value: Any, python: type) -> bool:
    return type(value) is python or (isinstance(value, Number) and value.python is python)


def _as_scalar(content: Any) -> Any:
    """What a variable is before a loop of which no iteration is traced alone: arithmetic makes scalars of these."""
    if type(content) is TracerArray:
        return content if content.shape or content.is_scalar else fresh(content.value)
    is_number = isinstance(content, np.bool_ | np.number) and content.dtype in _STATE
    return as_tracer(content) if is_number else content


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes | np.dtype | type)
