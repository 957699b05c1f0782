"""One trace of a loop's body: what it gets and leaves, as the state of a loop of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import CannotRollError, Fork
from autofuse.frontend.promotion import as_tracer, convert, value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.appending import Appended, Living, private_lists
from autofuse.frontend.rolling.carried import (
    CarriedArray,
    CarriedMaybe,
    CarriedNumber,
    CarriedTuple,
    Carry,
    Counted,
    KeepError,
    Kept,
    ListError,
    Name,
    Single,
    Variable,
    content_value,
    is_equal,
    is_tuple_of_state,
    kind_of,
    last_value,
    left_by,
    nothing,
    zeros,
)
from autofuse.frontend.rolling.contents import as_scalar, is_array, is_constant, is_number, is_object
from autofuse.frontend.rolling.emission import emit, emit_while
from autofuse.frontend.rolling.frames import UNBOUND, Frame
from autofuse.frontend.rolling.growing import Growing, growing_of
from autofuse.frontend.rolling.items import Items
from autofuse.frontend.rolling.knowledge import AgainError, Knowledge
from autofuse.frontend.rolling.nothing import absent_of, flag, maybe, parts_of
from autofuse.frontend.rolling.numbers import Atom, Number
from autofuse.frontend.rolling.places import Place
from autofuse.frontend.rolling.returns import is_returned
from autofuse.frontend.rolling.sequences import CarriedItems, CarriedList, Held, is_long, is_sequence
from autofuse.frontend.rolling.tables import common_kind, with_kind
from autofuse.frontend.rolling.variables import Variables
from autofuse.frontend.tracer import TracerArray
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

State = Variable | CarriedList
"""A variable that lives from one iteration to the next."""
_BOOL = np.dtype(np.bool_)
_COUNTER = TensorType((), dtypes.I64)
_PERIODS = 4
"""Most iterations that are taken together, where arrays change their names."""


class Attempt:
    """One trace of a body."""

    def __init__(self, body: Callable[..., None], found: Variables, frame: Frame, known: Knowledge) -> None:
        self._body = body
        self._found = found
        self._frame = frame
        self._known = known
        self.fork = Fork(lambda storage: self._region.input(storage.type), known.written)
        self._region = Region("body", (), repeats=True, fork=self.fork)

        held = sorted(name for name in known.held if isinstance(name, str))
        unbound = [name for name in held if name not in found.assigned]
        """Variables of lists that the body changes, and does not bind."""
        self._variables = (*found.assigned, *unbound)
        self._names: tuple[Name, ...] = (*self._variables, *known.places)
        self._live = {*found.after, *unbound, *known.places}
        self._state = set(known.read)
        """The variables that an iteration gets from the one before."""
        self._state.update(unbound)
        self._entry: dict[Name, Any] = {**frame.get(self._variables), **{place: place.get() for place in known.places}}
        self.fork.places.update({place: self._entry[place] for place in known.places})
        frame.tell(self.fork, found.assigned)
        self._begun: dict[Name, State] = {}
        self._ends: dict[Name, Any] = {}
        self._carries: list[Carry] = []
        self._to: dict[Value, Value] = {}
        self._after: dict[Name, Callable[[], Any]] = {}
        self._bound: dict[int, Any] = {}
        self._shared: dict[Any, Any] = {}
        self._may_be_empty = True

    def run(self, items: Items, first: int, count: Any, ends: tuple[bool, bool]) -> int:
        """As `roll`."""
        period = self._known.period
        if period > 1 and not isinstance(count, int):
            raise CannotRollError("arrays change their names in a loop of unknown length")
        trips = count // period if isinstance(count, int) else count
        self.fork.must_roll = not isinstance(count, int)
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
            self._state |= set(self._found.after)  # it may run no iteration: then they are what they were
        growing = self._growing(counter, trips)
        try:
            self._trace(iterations, (Number({counter: 1}), trips))
        finally:
            self._frame.set({name: one.items for name, one in growing.items()})
        self._settle(counter, trips)
        grown = [(one, *one.settled([*self._ends.values()])) for one in growing.values()]
        self._carries += [carry for _, carry, _ in grown]
        inside = self.fork.objects
        appended = Appended(self.fork.appended, self._living(), self._region, counter, trips, inside)
        emit(self._region, [*self._carries, *appended.carries], self._to, counter, trips)
        self._bind()
        appended.append(self._bound)
        for one, _, rows in grown:
            one.extend(rows)
        return trips * period if isinstance(trips, int) else 0

    def _growing(self, counter: Atom, trips: Any) -> dict[str, Growing]:
        """The lists that the body reads as they grow; they stand in place of Python's."""
        if not isinstance(trips, int):
            return {}
        counts = self._known.counts
        found = growing_of(self._frame, self._found.grown, counts, self._region, counter, trips)
        self._frame.set(found)
        return found

    def run_while(self, test: Callable[[], Any], holds: TracerArray) -> None:
        """As `roll_while`. The condition is a part of the state: the body ends with it."""
        again: list[Value] = []
        self.fork.must_roll = True

        def iteration() -> None:
            self._body()
            again.append(value_of(test(), _BOOL))

        self._state |= set(self._found.after)  # it may run no iteration: then they are what they were
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
            state = self._state - self._known.kept
            entry = {
                name: as_scalar(value) if name in state or isinstance(name, Place) else value
                for name, value in entry.items()
            }
        entry = {name: self._of_the_run(name, value) for name, value in entry.items()}
        with self._region.entered():
            begun = self._begin(entry, counted)
        if any(entry[place] is UNBOUND for place in self._known.places):
            raise CannotRollError("it adds elements or attributes to objects", first=True)
        try:
            self._bind_stand_ins(begun, entry)
            self._guarded(run)
            self._ends = {name: name.get() if isinstance(name, Place) else UNBOUND for name in self._names}
            self._ends |= self._frame.get(self._variables)
        finally:
            for place in self._known.places:
                place.put(entry[place])
            self.fork.leave()
        for name, before in entry.items():
            is_new = before is UNBOUND and self._ends[name] is not UNBOUND
            if is_new and name in self._known.read and not is_returned(name):
                raise CannotRollError(f"{name} is unbound in the first iteration only", first=True)
        self._begun = begun
        for name, variable in begun.items():
            if isinstance(variable, Kept) and is_sequence(variable.content) and self._moves(name, variable.content):
                raise ListError(name)
        for name, variable in list(begun.items()):
            self._take_apart(name, variable)

    def forget(self) -> None:
        """Let go of all that variables were, and are, bound to."""
        self.fork.appended.clear()
        self.fork.objects.clear()
        for held in (self._entry, self._begun, self._ends, self._after, self._bound, self._shared):
            held.clear()
        self._carries.clear()

    def _bind_stand_ins(self, begun: Mapping[Name, State], entry: Mapping[Name, Any]) -> None:
        """Bind variables to what an iteration begins with."""
        stand_ins = {name: begun[name].stand_in if name in begun else UNBOUND for name in entry}
        self._frame.set({name: value for name, value in stand_ins.items() if isinstance(name, str)})
        for place in self._known.places:
            place.put(stand_ins[place])

    def _moves(self, name: Name, content: Any) -> bool:
        """Whether the list that a variable is bound to is another one's behind the body."""
        ends = self._ends
        return ends[name] is not content and any(end is content for other, end in ends.items() if other != name)

    def _of_the_run(self, name: Name, content: Any) -> Any:
        """What a variable is bound to before the loop; what Python knows as the run's, where it has to be."""
        if name in self._known.kinds:
            return with_kind(content, self._known.kinds[name])
        if name not in self._known.nothing:
            return content
        if type(content) is bool:
            return flag(content)
        number = self._known.nothing[name]
        held = number if type(number) in (int, float) else as_tracer(number)
        return maybe(held, flag(True)) if content is None else content

    def _take_apart(self, name: Name, variable: State) -> None:
        """Have the elements of a tuple be variables."""
        if not isinstance(variable, CarriedTuple):
            return
        for part, end in zip(variable.parts, variable.items_of(self._ends[name]), strict=True):
            self._begun[part.name], self._ends[part.name] = part, end
            self._take_apart(part.name, part)

    def _settle(self, counter: Atom | None, trips: Any) -> None:
        """Find what is state, and what variables are bound to behind the loop."""
        self._keep_cycles()
        self._same_names(self._begun, self._ends)
        self._require_own_lists()
        self._arrays()
        for name, end in list(self._ends.items()):
            variable = self._begun.get(name)
            if variable is None:
                self._bind_last(name, end, self._entry[name], counter, trips)
            elif isinstance(variable, CarriedTuple):
                self._after[name] = self._tuple_of(variable)
            elif isinstance(variable, CarriedList):
                self._carries.append(variable.carry(end))
                self._after[name] = variable.after
            else:
                self._settle_variable(name, variable, end)

    def _require_own_lists(self) -> None:
        """Raise CannotRollError where two variables may be one list that an iteration changes."""
        live = {name: end for name, end in self._ends.items() if name in self._live and is_sequence(end)}
        seen: dict[int, Name] = {}
        for name, end in live.items():
            if seen.setdefault(id(end), name) != name and id(end) in self.fork.objects:
                raise CannotRollError(f"{name} is the same list as {seen[id(end)]}", last=True)
        held = [one for one in self._begun.values() if isinstance(one, CarriedItems | CarriedList)]
        if any(one.is_changed for one in held) and any(id(value) in seen for _, value in self.fork.appended):
            raise CannotRollError("it appends a list that the next iteration changes")

    def _tuple_of(self, variable: CarriedTuple) -> Callable[[], Any]:
        return lambda: variable.of([self._after[part.name]() for part in variable.parts])

    def _living(self) -> Living:
        begun = {name: v for name, v in self._begun.items() if isinstance(v, CarriedArray)}
        return Living(
            {id(variable.stand_in): name for name, variable in begun.items()},
            {name: variable.content for name, variable in begun.items()},
            {name: end for name, end in self._ends.items() if name in self._begun or name in self._live},
        )

    def _bind(self) -> None:
        found = {name: self._after[name]() for name in self._names if name in self._after}
        self._frame.set({name: value for name, value in found.items() if isinstance(name, str)})
        for place in self._known.places:
            place.set(found[place])

    def _begin(self, entry: Mapping[Name, Any], counting: tuple[Number, Any] | None) -> dict[Name, State]:
        """Stand-ins for the variables that the body reads first."""
        begun: dict[Name, State] = {}
        for name, content in entry.items():
            is_read = name in self._state or isinstance(name, Place)
            if content is not UNBOUND and is_read and not is_returned(name):
                is_list = is_sequence(content) and name in self._known.held
                begin = self._begun_as_sequence if is_list else self._begun_as
                begun[name] = begin(name, content, counting)
        return begun

    def _begun_as(self, name: Name, content: Any, counting: tuple[Number, Any] | None) -> Variable:
        counted = self._known.steps
        if counting is not None and name in counted and is_number(content, int):
            return Counted(name, content, counted[name], *counting)
        if absent_of(content) is not None:
            parts = [self._begun_as(f"{name}[{k}]", part, counting) for k, part in enumerate(parts_of(content))]
            return CarriedMaybe(name, content, parts, self._region)
        if is_number(content, int) or is_number(content, float):
            return CarriedNumber(name, content, self._region, is_counted=counting is not None)
        if isinstance(content, TracerArray) and (content.is_scalar or name not in self._known.kept):
            return CarriedArray(name, content, self._region, is_loose=name in self._known.loose)
        if isinstance(content, tuple) and is_tuple_of_state(content):
            parts = [self._begun_as(f"{name}[{k}]", part, counting) for k, part in enumerate(content)]
            return CarriedTuple(name, content, parts)
        return Kept(name, content)

    def _begun_as_sequence(self, name: Name, content: Any, counting: tuple[Number, Any] | None) -> State:
        """As state, a list or deque."""
        is_alone = self._known.sequences.is_alone(name)

        def held(stand_in: Any) -> Held:
            return Held(name, self._entry[name], stand_in, self.fork, is_alone=is_alone)

        kind = common_kind(content)
        if kind is not None and is_long(content, kind):
            return CarriedList(name, content, kind, self._region, held)
        parts = [self._begun_as(f"{name}[{k}]", part, counting) for k, part in enumerate(content)]
        return CarriedItems(name, content, parts, held)

    def _guarded(self, run: Callable[[], None]) -> None:
        """Trace something in the region."""
        try:
            with self._region.entered():
                run()
        except NameError as error:
            if error.name not in self._found.assigned or error.name in self._known.read:
                raise CannotRollError(f"{error}") from error
            self._known.read.add(error.name)
            raise AgainError from error
        except Exception as error:
            raise CannotRollError(f"{error}".partition("\n")[0]) from error

    def _same_names(self, begun: Mapping[Name, State], ends: Mapping[Name, Any]) -> None:
        """Where arrays that keep their identity have changed their names, more iterations may bring the names back."""
        kept = [name for name, variable in begun.items() if isinstance(variable, Kept)]
        moved = [name for name in kept if ends[name] is not begun[name].stand_in]
        arrays = {id(begun[name].stand_in) for name in kept if isinstance(begun[name].stand_in, TracerArray)}
        if moved and self._known.period < _PERIODS and all(id(ends[name]) in arrays for name in moved):
            self._known.period += 1
            self._known.steps.clear()
            raise AgainError

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

    def _settle_variable(self, name: Name, variable: Single, end: Any) -> None:
        outcome = variable.settle(end, self.fork, self._region)
        self._to |= outcome.to or {}
        if outcome.carry is None:
            self._bound[id(end)] = outcome.after
            self._after[name] = lambda: outcome.after
        else:
            self._carry(name, outcome.carry, end)

    def _carry(self, name: Name, carry: Carry, end: Any) -> None:
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
        doubtful = self._maybe_written(name, end)

        def bound() -> Any:
            if id(end) not in self._bound:
                self._bound[id(end)] = left = left_by(end, results[0])
                left.cell.storage.may_be(others)
                if doubtful is not None:
                    left.cell.storage.may_have_written([doubtful])
            return self._bound[id(end)]

        self._after[name] = bound

    def _maybe_written(self, name: Name, end: Any) -> Storage | None:
        """The array from before the loop that iterations may write into, as data decide, without saying so.

        Raises CannotRollError where anything else may see that array, or the one that an iteration begins with.
        """
        variable = self._begun.get(name)
        if not isinstance(variable, CarriedArray) or not variable.stand_in.cell.storage.is_maybe_written:
            return None
        before, left = variable.content.cell.storage, end.cell.storage
        others = [other for other in self._begun.values() if other is not variable and isinstance(other, CarriedArray)]
        seen = [other.content.cell.storage for other in others]
        ends = [other.cell.storage for key, other in self._ends.items() if key != name and is_array(other)]
        ends += [value.cell.storage for _, value in self.fork.appended if is_array(value)]
        is_seen = any(before in (one, *one.possible) for one in seen) or any(
            left in (one, *one.possible) for one in ends
        )
        if is_seen or before.is_input or before.possible or self.fork.repeats_reading(before):
            raise CannotRollError(f"{name} may be an array that something else sees, as data decide", first=True)
        return before

    def _others(self, name: Name) -> list[Storage]:
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

    def _bind_last(self, name: Name, end: Any, before: Any, counter: Atom | None, trips: Any) -> None:
        """A variable that iterations bind before they read it; what the last one left may be read behind the loop."""
        if end is UNBOUND or name not in self._live:
            self._after[name] = lambda: before if end is UNBOUND else UNBOUND
            return
        if is_returned(name):
            self._bind_returned(name, end, before)
            return
        if self._frame.shares_all(end):
            self._after[name] = lambda: end
            return
        last = None if counter is None else last_value(end, counter, trips - 1, self._region)
        if last is not None or is_constant(end):
            self._after[name] = lambda: end if last is None else last
            return
        if is_object(end) and id(end) not in self.fork.objects:
            self._after[name] = lambda: end
            return
        if absent_of(end) is not None or (isinstance(end, tuple) and is_tuple_of_state(end)):
            self._bind_last_parts(name, end, counter, trips)
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

    def _bind_last_parts(self, name: Name, end: Any, counter: Atom | None, trips: Any) -> None:
        items: tuple[Any, ...] = end if isinstance(end, tuple) else parts_of(end)
        held = [Kept(f"{name}[{k}]", part) for k, part in enumerate(items)]
        is_tuple = isinstance(end, tuple)
        parts = CarriedTuple(name, end, held) if is_tuple else CarriedMaybe(name, end, held, self._region)
        for part in parts.parts:
            assert isinstance(part, Kept)
            self._live.add(part.name)
            self._ends[part.name] = part.content
            self._bind_last(part.name, part.content, UNBOUND, counter, trips)
        self._after[name] = self._tuple_of(parts)

    def _bind_returned(self, name: Name, end: Any, before: Any) -> None:
        """What iterations may return: it is read only if the last one did, or something before the loop."""
        if before is UNBOUND or is_equal(end, before):
            before = end
            if is_constant(end):
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
