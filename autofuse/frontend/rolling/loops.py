"""A Python `for` as a `scan`: its body is traced once, for an iteration that a number stands for.

What iterations write into arrays, and the variables that live from one to the next, are the loop's state. Where the
body does what differs from one iteration to another, or changes Python's own objects, the loop is unrolled: every
iteration is traced. The first ones, and the last ones, may be traced alone, where the others are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autofuse.frontend.forks import CannotRollError, HeldError, PlaceError, WrittenLateError
from autofuse.frontend.rolling.attempts import Attempt
from autofuse.frontend.rolling.carried import KeepError, ListError, LooseError, Name, NothingError, StepError
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.growing import WrongCountError
from autofuse.frontend.rolling.items import Items
from autofuse.frontend.rolling.knowledge import AgainError, Knowledge
from autofuse.frontend.rolling.sequences import KindsError, Sequences
from autofuse.frontend.rolling.tables import Kind, KindError, tabled
from autofuse.frontend.rolling.variables import Variables
from autofuse.frontend.tracer import TracerArray

_R = TypeVar("_R")
_AGAIN = 12
"""How often a body is traced at most, each time with one thing more known of it."""


def roll(
    body: Callable[[Any], None], items: Items, found: Variables, first: int, count: Any, ends: tuple[bool, bool]
) -> int:
    """Trace iterations `first`, ... as a loop of the graph; `count` of them, an `int` or a Number.

    `ends`: whether the first, and the last, may be traced alone. Returns how many are done: some at the end may be
    left, where several are taken together. Raises CannotRollError, and then nothing has happened.
    """
    frame = Frame(body)

    def settled() -> int:
        return _settled(
            frame,
            found,
            lambda known: Attempt(body, found, frame, known),
            lambda one: one.run(items, first, count, ends),
        )

    return _with_tables(frame, found, settled)


def roll_while(test: Callable[[], Any], body: Callable[[], None], holds: TracerArray, found: Variables) -> None:
    """Trace `while test(): body()`, whose condition is `holds` the first time. Raises as `roll` does."""
    frame = Frame(test, body)

    def settled() -> None:
        _settled(frame, found, lambda known: Attempt(body, found, frame, known), lambda one: one.run_while(test, holds))

    _with_tables(frame, found, settled)


def _with_tables(frame: Frame, found: Variables, settled: Callable[[], _R]) -> _R:
    """Trace a loop with arrays in place of the lists whose elements it sets at places that move."""
    kinds: dict[str, Kind] = {}
    while True:
        try:
            with tabled(frame, found.tabled, kinds):
                return settled()
        except KindError as wider:
            if kinds.get(wider.name) == wider.kind:
                raise CannotRollError(f"{wider.name} is a list of several kinds of numbers") from None
            kinds[wider.name] = wider.kind


def _settled(  # noqa: C901  # a case for each thing that may be learnt
    frame: Frame, found: Variables, begin: Callable[[Knowledge], Attempt], run: Callable[[Attempt], _R]
) -> _R:
    """What an attempt gives, once enough is known of the body."""
    sequences = Sequences(frame)
    entry = frame.get(found.assigned)
    arrays = [value for value in frame.get(found.written).values() if isinstance(value, TracerArray)]
    written = {array.cell.storage for array in arrays}
    kept, read = set[Name](found.in_place), set[Name](found.first_read)
    known = Knowledge(written, kept, read, dict[Name, int](found.counted), sequences)
    for _ in range(_AGAIN):
        attempt = begin(known)
        try:
            return run(attempt)
        except WrittenLateError as late:
            if late.fork is not attempt.fork:
                frame.set(entry)
                raise
            known.written.add(late.storage)
        except PlaceError as found_place:
            if found_place.fork is not attempt.fork:
                frame.set(entry)
                raise
            known.places += found_place.places
            known.steps = dict[Name, int](found.counted)  # those of a body that did something else
        except WrongCountError as wrong:
            known.counts[wrong.name] = wrong.count
        except KeepError as keep:
            known.kept.update(keep.names)
        except LooseError as loose:
            if loose.name not in found.alone:
                frame.set(entry)
                reason = f"{loose.name} is bound to something else in the next iteration"
                raise CannotRollError(reason, first=True) from None
            known.loose.add(loose.name)
            known.kept.discard(loose.name)
        except HeldError as held:
            name = sequences.name_of(held)
            if name is None or name in known.held:
                frame.set(entry)
                raise
            entry = {**frame.get([name]), **entry}  # what the body binds was noted before it did
            known.held.add(name)
        except ListError as list_:
            known.held.add(list_.name)
        except KindsError as kinds:
            known.kinds[kinds.name] = kinds.kind
        except NothingError as nothing:
            known.nothing[nothing.name] = nothing.number
            known.steps = dict[Name, int](found.counted)
        except StepError as found_step:
            known.steps[found_step.name] = found_step.step
        except AgainError:
            pass
        except BaseException:
            frame.set(entry)
            raise
        finally:
            attempt.forget()  # so that nothing but the function holds its lists
        frame.set(entry)
    raise CannotRollError("what it writes does not settle")
