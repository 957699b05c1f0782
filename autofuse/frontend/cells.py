"""Where traced arrays keep their elements: storage, and views that know how to write back to it.

NumPy arrays are mutable and basic indexing aliases; graphs are not mutable and nothing aliases. A `Storage` therefore
holds the *current* SSA value of one array, and a `View` is a step (slice, reverse, transpose, reshape, ...) away from
its parent: reading emits the step, writing emits the step's inverse into the parent, up to the storage, whose value is
replaced. Every view sees a write through any other, as in NumPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.forks import CannotRollError, Contents
from autofuse.frontend.layouts import layout_of, without_data
from autofuse.frontend.location import location_under_way, trace_error
from autofuse.frontend.steps import Step
from autofuse.frontend.tracecontext import Tracing, current
from autofuse.ir import types
from autofuse.ir.graph import Location, Value
from autofuse.ir.types import TensorType

_CHOSEN = (
    "an array is written into that is the same as another one or not, as a condition or the length of a loop decides",
    "give each its own memory: x = x.copy() before the condition or the loop",
)


_MOST_WAITING = 40
"""Computations of known arrays that wait for one another: each takes a few calls of Python's stack."""


class Known:
    """An array that does not depend on the traced inputs, computed when Python needs it (`int(n)`, `for i in idx`)."""

    def __init__(self, compute: Callable[[], NDArray[Any]], made_of: Iterable[Known] = ()) -> None:
        """`made_of`: what `compute` asks for. What has been waiting for too many others is computed at once."""
        self._compute: Callable[[], NDArray[Any]] | None = compute
        self._array: NDArray[Any] | None = None
        self._waiting = 1 + max((known._waiting for known in made_of), default=0)
        if self._waiting > _MOST_WAITING:
            with suppress(Exception):  # whoever asks for it gets the error
                self()

    def __call__(self) -> NDArray[Any]:
        if self._compute is not None:
            array = np.asarray(self._compute()).view()
            array.flags.writeable = False
            self._array, self._compute, self._waiting = array, None, 0
        assert self._array is not None
        return self._array


class Cell(ABC):
    """What a traced array refers to."""

    layout: NDArray[Any]
    """An array without data whose strides are those NumPy would have: decides whether a reshape is a view."""

    @property
    @abstractmethod
    def type(self) -> TensorType: ...

    @property
    @abstractmethod
    def storage(self) -> Storage: ...

    @abstractmethod
    def read(self) -> Value:
        """The value now."""

    @abstractmethod
    def write(self, new: Value) -> None:
        """Set all elements. `new` has exactly this cell's type."""

    @property
    @abstractmethod
    def known(self) -> Known | None:
        """The elements now, where they do not depend on traced inputs."""

    @property
    @abstractmethod
    def read_only(self) -> str:
        """Why it must not be written; empty when it may."""


class Storage(Cell):
    """The elements of one array: an input, a temporary, or a constant that is emitted when first read."""

    def __init__(
        self,
        type_: TensorType,
        value: Value | None,
        *,
        known: Known | None = None,
        read_only: str = "",
        name: str = "constant",
    ) -> None:
        self._type = type_
        self._own = Contents(value, known)
        self._read_only = read_only
        self._name = name
        self.is_input = False
        """Whether it is an argument of the traced function."""
        self.owner: Tracing = current()
        self.layout = without_data(type_)
        self.order_is_guess = False
        """Whether NumPy's memory order of this array is not known: then neither is what its reshapes alias."""
        self.twins: list[Storage] = []
        """Copies that NumPy may hold as views of this array, or the other way round."""
        self.order_from: frozenset[Storage] = frozenset()
        """Arguments whose memory order decides this array's. They are taken to be in C order."""
        self.order_matters = False
        """Of an argument: whether the function does something else, in NumPy, when it is not in C order."""
        self.possible: tuple[Storage, ...] = ()
        """Arrays that NumPy may have in place of this copy, as data decide."""
        self.is_maybe_written = False
        """Whether something is written that may be this array, as data decide."""
        self._bonds: list[ref[Cell]] = []
        self._doubtful = False
        self._others: list[tuple[Storage, int]] = []
        """Arrays that may be this one, as data decide, and their versions while they had its elements."""
        self._written_at: Location | None = None

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def storage(self) -> Storage:
        return self

    def contents(self) -> Contents:
        """What the region under way sees of it. Raises TraceError in one that is not inside the one that made it."""
        found = self._seen_from(current())
        if found is None:
            raise trace_error(
                "a traced array was used outside the function body that made it",
                "return it from that function instead of keeping it in a global, an attribute or a closure",
            )
        for other, version in self._others:
            if other._version_now() != version:
                raise trace_error(*_CHOSEN, at=other._written_at)
        return found

    def _version_now(self) -> int:
        """What `version` is; other than that, no region takes it for a read."""
        tracing: Tracing | None = current()
        while tracing is not None and tracing is not self.owner:
            if tracing.fork is not None and self in tracing.fork.local:
                return tracing.fork.local[self].version
            tracing = tracing.parent
        return self._own.version

    def _seen_from(self, tracing: Tracing | None) -> Contents | None:
        if tracing is self.owner:
            return self._own
        if tracing is None:
            return None
        outside = tracing.parent
        if tracing.fork is None:
            return self._seen_from(outside)
        return tracing.fork.contents(self, lambda: self._seen_from(outside))

    @property
    def version(self) -> int:
        """Counts writes."""
        return (self._seen_from(current()) or self._own).version

    @property
    def known(self) -> Known | None:
        return (self._seen_from(current()) or self._own).known

    @known.setter
    def known(self, known: Known | None) -> None:
        self.contents().known = known

    @property
    def read_only(self) -> str:
        return self._read_only

    def make_read_only(self, reason: str) -> None:
        """Writing into it is an error from now on."""
        self._read_only = reason

    @property
    def has_value(self) -> bool:
        """False for a constant that nothing has read yet."""
        return self._own.value is not None

    def read(self) -> Value:
        held = self.contents()
        if self._doubtful:
            raise trace_error(
                "an array was reshaped and one of the two then written into; whether NumPy shares their memory depends"
                " on the memory order of a temporary",
                "x = x.copy() before the reshape",
            )
        if held.value is None:
            assert held.known is not None
            held.value = self.owner.builder.constant(held.known().copy(), self._name)
        return held.value

    def write(self, new: Value) -> None:
        self._note_possible()
        held = self._to_write()
        for twin in self.twins:
            twin._doubtful = True
        if self._others:
            self._written_at = location_under_way()
        if any(bond() is not None for bond in self._bonds):
            self.need_order()
        if held.value is not None:
            current().rename(held.value, new)
        held.value = new
        held.known = None
        held.version += 1

    def _to_write(self) -> Contents:
        """What the region under way is about to write. Raises TraceError in one that may not."""
        tracing = current()
        if self.owner is tracing:
            return self._own
        if tracing.fork is None:
            raise trace_error(
                "a loop or branch body writes into an array of the enclosing function",
                "pass the array through the loop's state and return the changed one",
            )
        if self.twins:
            raise CannotRollError("it writes into an array that may share its memory with a reshaped one")
        if self._bonds:
            self.need_order()
        if self._others:
            self._require_unread(tracing)
        return tracing.fork.to_write(self, lambda: self._seen_from(tracing.parent))

    def _note_possible(self) -> None:
        """Before a write: what this array may be is written. Raises where a caller or an iteration would see it."""
        for other in self.possible:
            if other.is_input:
                raise trace_error(*_CHOSEN)
            around: Tracing | None = self.owner
            while around is not None and around is not other.owner:
                if around.repeats:
                    raise CannotRollError("it writes into an array that may be another one, as data decide")
                around = around.parent
            other.is_maybe_written = True

    def may_be(self, others: Iterable[Storage]) -> None:
        """Note that NumPy may have one of these arrays in place of this one, as data decide.

        Once one of the two is written into, the other one must not be read.
        """
        found = tuple(dict.fromkeys(each for other in others for each in (other, *other.possible)))
        self.possible += found
        for other in found:
            self._others.append((other, other._version_now()))
            other._others.append((self, self._version_now()))

    def may_have_written(self, others: Iterable[Storage]) -> None:
        """As `may_be`, of an array that was written since: reading one of the others is an error."""
        self.may_be(others)
        self._note_possible()
        self.contents().version += 1
        self._written_at = location_under_way()

    def _require_unread(self, tracing: Tracing | None) -> None:
        """Raise CannotRollError in a loop's body that has read what this array may be: the next iteration differs."""
        while tracing is not None and tracing is not self.owner:
            if tracing.fork is not None and any(tracing.fork.repeats_reading(other) for other, _ in self._others):
                raise CannotRollError("it writes into an array that may be another one, as data decide")
            tracing = tracing.parent

    def bind(self, other: Cell) -> None:
        """Note a view that NumPy makes a copy, or a copy that it makes a view, if arguments are not in C order.

        It makes a difference once this array is written into while `other` can be seen.
        """
        if self.order_from:
            self._bonds.append(ref(other))

    def need_order(self) -> None:
        """The memory order of arguments decides what the traced function computes."""
        for argument in self.order_from:
            argument.order_matters = True


class View(Cell):
    """One step away from another cell."""

    def __init__(self, parent: Cell, step: Step) -> None:
        self.parent = parent
        self.step = step
        self.layout = step.layout(parent.layout)
        self._type = TensorType(tuple(self.layout.shape), step.element(parent.type.dtype))
        self._seen: tuple[Tracing, Contents, int, Value] | None = None

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def storage(self) -> Storage:
        return self.parent.storage

    @property
    def known(self) -> Known | None:
        known = self.parent.known
        return None if known is None or not self.step.fixed else Known(lambda: self.step.numpy(known()), (known,))

    @property
    def read_only(self) -> str:
        return self.parent.read_only or (
            "" if self.step.writeable else "NumPy makes this view read-only; copy it first"
        )

    def read(self) -> Value:
        tracing, held = current(), self.storage.contents()
        seen = self._seen
        if seen is None or seen[0] is not tracing or seen[1] is not held or seen[2] != held.version:
            self._seen = seen = (tracing, held, held.version, self.step.read(self.parent.read()))
        return seen[3]

    def write(self, new: Value) -> None:
        self.parent.write(self.step.write(self.parent.read(), new))
        held = self.storage.contents()
        self._seen = (current(), held, held.version, new)


def order_of(storages: Iterable[Storage]) -> frozenset[Storage]:
    """The arguments that decide the memory order of something computed from these arrays."""
    return frozenset[Storage]().union(*(storage.order_from for storage in storages))


def same_place(a: Cell, b: Cell) -> bool:
    """Whether two cells are the same elements in the same order (compares steps; may miss equal places)."""
    if a is b:
        return True
    return isinstance(a, View) and isinstance(b, View) and a.step == b.step and same_place(a.parent, b.parent)


def of_array(array: NDArray[Any], reason: str) -> Storage:
    """A read-only constant. `reason` tells the user why it cannot be written."""
    storage = Storage(types.of_array(array), None, known=Known(lambda: array), read_only=reason, name="constant")
    storage.layout = layout_of(array)
    return storage
