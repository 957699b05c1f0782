"""What rewritten functions call for `for`, `while`, `if` and conditions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from autofuse.frontend.caughterrors import catching
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.location import trace_error, withdrawn
from autofuse.frontend.madeobjects import MadeObjects
from autofuse.frontend.rolling.branches import branch
from autofuse.frontend.rolling.comprehensions import Generated, Run
from autofuse.frontend.rolling.conditions import Conditions, is_constant, opposite, undecided
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.guards import Guards
from autofuse.frontend.rolling.items import Items, Places, items_of
from autofuse.frontend.rolling.listplaces import element_at
from autofuse.frontend.rolling.loops import roll, roll_while
from autofuse.frontend.rolling.pythonfunctions import class_of, text_made
from autofuse.frontend.rolling.source import codes_in, rewritten_code
from autofuse.frontend.rolling.variables import Variables
from autofuse.frontend.tracecontext import CallScope, current, innermost_fork
from autofuse.frontend.tracer import TracerArray
from autofuse.ir.graph import Location
from autofuse.lazydataclass import dataclass

LEAST, LEAST_OF_LOOPS = 16, 4
"""Iterations from which on a loop is rolled; one with loops inside, which would all be there as often."""
_LOOPS = frozenset(("_af_for", "_af_while", "_af_list", "_af_generator"))
"""What stands for loops in rewritten functions."""
_PEELED = 3
"""Most iterations at either end that are traced alone."""


class Roller:
    """Control flow of the functions of one trace."""

    def __init__(self, classes: MadeObjects) -> None:
        self._guards = Guards(classes)
        self._conditions = Conditions(lambda test, sides: self._branch(test, Frame(), None, sides))
        self._generators = Run(self._loop_of, self.choose, self._conditions, self._guards.call, self._guards.new)

    def code(self, function: FunctionType) -> CodeType | None:
        """The code of a function as it is to be traced; None where it stays as it is."""
        made = rewritten_code(function)
        if made is not None:
            self._guards.codes.update(codes_in(made))
        return made

    def names(self) -> dict[str, Any]:
        """The globals of rewritten functions."""
        return {
            "_af_for": self.run_for,
            "_af_while": self.run_while,
            "_af_begin": self.begin,
            "_af_list": lambda *parts: self._generated(*parts).used_up(list),
            "_af_generator": lambda *parts: self._guards.new(self._generated(*parts)),
            "_af_if": self.run_if,
            "_af_choose": self.choose,
            "_af_all": self._conditions.all_of,
            "_af_any": self._conditions.any_of,
            "_af_not": opposite,
            "_af_and": lambda *values: self._conditions.value_of(values, stops=False),
            "_af_or": lambda *values: self._conditions.value_of(values, stops=True),
            "_af_compare": self._conditions.compared,
            "_af_is": is_constant,
            "_af_catching": catching,
            "_af_call": self._guards.call,
            "_af_target": self._guards.target,
            "_af_at": _element,
            "_af_beside": self._guards.beside,
            "_af_new": self._guards.new,
            "_af_made": self._guards.made,
            "_af_text": text_made,
            "_af_class": class_of,
            "_af_outer": self._guards.outer,
            "_af_global": self._guards.outer_global,
        }

    def run_for(self, given: Any, body: Callable[[Any], None], found: tuple[Any, ...], line: int) -> None:
        """A `for` over `given`."""
        self._walk(given, body, Variables(*found), _Told(body, line))

    def _generated(
        self, given: Any, element: Callable[[Any], Any], test: Callable[[Any], Any] | None = None
    ) -> Generated:
        """A generator expression."""
        return Generated(given, element, test, self._generators)

    def _loop_of(self, given: Any, body: Callable[[Any], None], found: Variables, element: Callable[..., Any]) -> None:
        self._walk(given, body, found, _Told(element, element.__code__.co_firstlineno))

    def _walk(self, given: Any, body: Callable[[Any], None], found: Variables, told: _Told) -> None:
        items = items_of(given)
        if items is None:
            self._one_by_one(given, body)
        elif not isinstance(items.count, int):
            try:
                self._of_unknown_length(items, body, found)
            except CannotRollError as error:
                if innermost_fork() is not None:
                    raise
                raise _refused("for", error) from error
            self._note(told, "became a loop whose length those around it decide")
        elif items.count < told.least:
            _run_from(0, given, items, body)
        else:
            done = self._counted(items, body, found, told)
            _run_from(done, given, items, body)

    def _of_unknown_length(self, items: Items, body: Callable[[Any], None], found: Variables) -> None:
        """A loop whose length only the run knows; its first iteration alone, if there is one, where that differs."""
        try:
            with CallScope(), attempt():
                roll(body, items, found, 0, items.count, (False, False))
                return
        except CannotRollError as error:
            if not error.first:
                raise
        begins = items.count > 0
        traced = undecided(begins)
        if traced is not None:
            live = found.assigned  # the others read them
            sides = (lambda: body(items.item(0)), lambda: None)
            with CallScope():
                branch(traced, Frame(body), found.assigned, live, sides)
        elif begins:
            body(items.item(0))
        with CallScope():
            roll(body, items, found, 1, items.count - 1, (False, False))

    def begin(self, given: Any) -> Places:
        """What a `for` with a `break` walks over."""
        _require_own(given)
        return Places(given)

    def run_while(self, test: Callable[[], Any], body: Callable[[], None], found: tuple[Any, ...], line: int) -> None:
        """A `while`: of Python's until its condition is one that only the run knows."""
        while True:
            holds = test()
            traced = undecided(holds)
            if traced is None:
                if not holds:
                    return
                body()
                continue
            try:
                with CallScope():
                    roll_while(test, body, traced, Variables(*found))
            except CannotRollError as error:
                if innermost_fork() is not None:
                    raise
                raise _refused("while", error) from error
            self._note(_Told(body, line), "became a loop that its condition ends")
            return

    def run_if(
        self, test: Any, then: Callable[[], None], other: Callable[[], None], found: tuple[Any, ...], line: int
    ) -> None:
        """An `if`."""
        traced = undecided(test)
        if traced is None:
            (then if test else other)()
            return
        self._branch(traced, Frame(then, other), Variables(*found), (then, other))
        self._note(_Told(then, line), "became a branch")

    def choose(
        self, test: Any, then: Callable[[], Any], other: Callable[[], Any], found: tuple[Any, ...] | None = None
    ) -> Any:
        """`then() if test else other()`. `found`: what they do with variables."""
        traced = undecided(test)
        if traced is None:
            return then() if test else other()
        variables = None if found is None else Variables(*found)
        return self._branch(traced, Frame(then, other), variables, (then, other))

    def _branch(
        self, test: TracerArray, frame: Frame, found: Variables | None, sides: Sequence[Callable[[], Any]]
    ) -> Any:
        names, live, appended = ((), (), ()) if found is None else (found.assigned, found.after, found.appended)
        try:
            with CallScope():
                return branch(test, frame, names, live, sides, appended)
        except CannotRollError as error:
            if innermost_fork() is not None:
                raise
            raise _refused("if", error) from error

    def _one_by_one(self, given: Any, body: Callable[[Any], None]) -> None:
        _require_own(given)
        for item in given:
            body(item)

    def _counted(self, items: Items, body: Callable[[Any], None], found: Variables, told: _Told) -> int:
        """Run what becomes a loop, and the iterations before it. Returns how many these are."""
        first, last = 0, items.count
        rolled, reason = 0, ""
        while last - first >= max(told.least - 2 * _PEELED, 2) and items.is_as_long:
            try:
                with CallScope(), attempt():
                    ends = (first < _PEELED, items.count - last < _PEELED)
                    rolled = roll(body, items, found, first, last - first, ends)
                break
            except CannotRollError as error:
                reason, alone, ends = error.reason, error.first, error.last
            # what the error knows of holds the lists of variables, which is why nothing is traced before it is gone
            if alone and (first < _PEELED or alone > 1):
                for _ in range(alone if items.length is None else 1):
                    body(items.item(first))
                    first += 1
            elif ends and items.count - last < _PEELED:
                last -= 1
            else:
                break
        if rolled:
            alone = items.count - rolled
            self._note(told, f"{rolled} iterations became a loop" + (f", {alone} stand alone" if alone else ""))
        else:
            self._note(told, f"{items.count} iterations were traced one by one: {reason}")
        return first + rolled

    def _note(self, told: _Told, what: str) -> None:
        code = told.function.__code__
        current().loop_notes[Location(code.co_filename, told.line, code.co_name)] = what


@dataclass(frozen=True, slots=True)
class _Told:
    """A loop or branch in notes."""

    function: Callable[..., Any]
    """What is in it."""
    line: int

    @property
    def least(self) -> int:
        """Iterations from which on it is rolled."""
        has_loops = any(not _LOOPS.isdisjoint(code.co_names) for code in codes_in(self.function.__code__))
        return LEAST_OF_LOOPS if has_loops else LEAST


def _run_from(done: int, given: Any, items: Items, body: Callable[[Any], None]) -> None:
    """Run a loop's iterations behind the first ones, one by one. Lists are walked as Python does."""
    if items.length is not None:
        for item in itertools.islice(iter(given), done, None):
            body(item)
        return
    for number in range(done, items.count):
        body(items.item(number))


def _element(value: Any, index: Any) -> Any:
    """`value[index]`."""
    return element_at(value, index) if type(value) in (list, tuple) else value[index]


def _require_own(given: Any) -> None:
    """Raise CannotRollError for an iterator from outside of what is traced once."""
    fork = innermost_fork()
    if fork is not None and isinstance(given, Iterator) and id(given) not in fork.objects and items_of(given) is None:
        raise CannotRollError("it goes through an iterator")


def _refused(statement: str, error: CannotRollError) -> BaseException:
    """Where no loop is being traced around it, that something cannot be one of the graph's is the user's error."""
    return trace_error(
        f"Python's {statement} on a traced value cannot become one of the graph: {error.reason}",
        "np.where(condition, a, b), or autofuse.cond and autofuse.while_loop for whole arrays of work",
    )


@contextmanager
def attempt() -> Generator[None]:
    """Something that is traced, and left if that raises: then no error of it counts, and no call that it noted."""
    calls = current().left_to_numpy
    count = len(calls)
    with withdrawn():
        try:
            yield
        except BaseException:
            del calls[count:]
            raise
