"""Where traced arrays keep their elements: storage, and views that know how to write back to it.

NumPy arrays are mutable and basic indexing aliases; graphs are not mutable and nothing aliases. A `Storage` therefore
holds the *current* SSA value of one array, and a `View` is a step (slice, reverse, transpose, reshape, ...) away from
its parent: reading emits the step, writing emits the step's inverse into the parent, up to the storage, whose value is
replaced. Every view sees a write through any other, as in NumPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autofuse.frontend.context import Tracing, current, encloses
from autofuse.frontend.location import trace_error
from autofuse.ir import types
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType


class Known:
    """An array that does not depend on the traced inputs, computed when Python needs it (`int(n)`, `for i in idx`)."""

    def __init__(self, compute: Callable[[], NDArray[Any]]) -> None:
        self._compute: Callable[[], NDArray[Any]] | None = compute
        self._array: NDArray[Any] | None = None

    def __call__(self) -> NDArray[Any]:
        if self._compute is not None:
            array = np.asarray(self._compute()).view()
            array.flags.writeable = False
            self._array, self._compute = array, None
        assert self._array is not None
        return self._array


class Step(ABC):
    """One aliasing operation. `numpy` is what it does; it must return a view."""

    @abstractmethod
    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        """NumPy's own result."""

    @abstractmethod
    def read(self, parent: Value) -> Value:
        """Emit the view's value."""

    @abstractmethod
    def write(self, parent: Value, new: Value) -> Value:
        """Emit the parent's value after the view has been set to `new`."""

    writeable: bool = True
    """False where NumPy returns a read-only view."""
    fixed: bool = True
    """False when the place depends on traced values; `numpy` is then right for shape and strides only."""


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
        self._value = value
        self._known = known
        self._read_only = read_only
        self._name = name
        self.is_input = False
        """Whether it is an argument of the traced function."""
        self.owner: Tracing = current()
        self.version = 0
        """Counts writes."""
        self.layout = without_data(type_)
        self.order_is_guess = False
        """Whether NumPy's memory order of this array is not known: then neither is what its reshapes alias."""
        self.twins: list[Storage] = []
        """Copies that NumPy may hold as views of this array, or the other way round."""
        self._doubtful = False

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def storage(self) -> Storage:
        return self

    @property
    def known(self) -> Known | None:
        return self._known

    @known.setter
    def known(self, known: Known | None) -> None:
        self._known = known

    @property
    def read_only(self) -> str:
        return self._read_only

    @property
    def has_value(self) -> bool:
        """False for a constant that nothing has read yet."""
        return self._value is not None

    def read(self) -> Value:
        if not encloses(self.owner, current()):
            raise trace_error(
                "a traced array was used outside the function body that made it",
                "return it from that function instead of keeping it in a global, an attribute or a closure",
            )
        if self._doubtful:
            raise trace_error(
                "an array was reshaped and one of the two then written into; whether NumPy shares their memory depends"
                " on the memory order of a temporary",
                "x = x.copy() before the reshape",
            )
        if self._value is None:
            assert self._known is not None
            self._value = self.owner.builder.constant(self._known().copy(), self._name)
        return self._value

    def write(self, new: Value) -> None:
        if self.owner is not current():
            raise trace_error(
                "a loop or branch body writes into an array of the enclosing function",
                "pass the array through the loop's state and return the changed one",
            )
        for twin in self.twins:
            twin._doubtful = True
        if self._value is not None:
            self.owner.rename(self._value, new)
        self._value = new
        self._known = None
        self.version += 1


class View(Cell):
    """One step away from another cell."""

    def __init__(self, parent: Cell, step: Step) -> None:
        self.parent = parent
        self.step = step
        self.layout = step.numpy(parent.layout)
        self._type = TensorType(tuple(self.layout.shape), parent.type.dtype)
        self._seen: tuple[Tracing, int, Value] | None = None

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def storage(self) -> Storage:
        return self.parent.storage

    @property
    def known(self) -> Known | None:
        known = self.parent.known
        return None if known is None or not self.step.fixed else Known(lambda: self.step.numpy(known()))

    @property
    def read_only(self) -> str:
        return self.parent.read_only or (
            "" if self.step.writeable else "NumPy makes this view read-only; copy it first"
        )

    def read(self) -> Value:
        tracing, version = current(), self.storage.version
        if self._seen is None or self._seen[:2] != (tracing, version):
            self._seen = (tracing, version, self.step.read(self.parent.read()))
        return self._seen[2]

    def write(self, new: Value) -> None:
        self.parent.write(self.step.write(self.parent.read(), new))
        self._seen = (current(), self.storage.version, new)


def same_place(a: Cell, b: Cell) -> bool:
    """Whether two cells are the same elements in the same order (compares steps; may miss equal places)."""
    if a is b:
        return True
    return isinstance(a, View) and isinstance(b, View) and a.step == b.step and same_place(a.parent, b.parent)


def without_data(type_: TensorType) -> NDArray[Any]:
    """A C-contiguous array of this type over one element of memory. Its elements must not be touched."""
    strides: list[int] = []
    stride = type_.dtype.itemsize
    for extent in reversed(type_.shape):
        strides.append(stride)
        stride *= max(extent, 1)
    return as_strided(np.empty(1, type_.dtype.numpy), type_.shape, tuple(reversed(strides)))


@dataclass(frozen=True)
class SliceStep(Step):
    """`x[start:limit:stride, ...]` in every dimension; strides are positive."""

    start: tuple[int, ...]
    limit: tuple[int, ...]
    stride: tuple[int, ...]

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[tuple(map(slice, self.start, self.limit, self.stride))]

    def read(self, parent: Value) -> Value:
        return current().emit(
            "slice", (parent,), start_indices=self.start, limit_indices=self.limit, strides=self.stride
        )

    def write(self, parent: Value, new: Value) -> Value:
        if all(step == 1 for step in self.stride):
            starts = [current().scalar(start, np.dtype(np.int64)) for start in self.start]
            return current().emit("dynamic_update_slice", (parent, new, *starts))
        if not new.type.size:
            return parent
        # a strided place has no update op: spread the new elements out and select them
        hole = current().splat(True, np.dtype(np.bool_), new.type.shape)
        return current().emit("select", (self._spread(hole, parent), self._spread(new, parent), parent))

    def _spread(self, new: Value, parent: Value) -> Value:
        interior = tuple(step - 1 for step in self.stride)
        high = tuple(
            extent - start - ((size - 1) * step + 1)
            for extent, start, size, step in zip(
                parent.type.shape, self.start, new.type.shape, self.stride, strict=True
            )
        )
        zero = current().scalar(0, new.type.dtype.numpy)
        return current().emit(
            "pad", (new, zero), edge_padding_low=self.start, edge_padding_high=high, interior_padding=interior
        )


@dataclass(frozen=True)
class DynamicIndexStep(Step):
    """`x[i]` along one dimension for a traced integer scalar `i`, already wrapped; keeps the dimension, extent 1."""

    index: Value
    dimension: int
    fixed = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[(*(slice(None),) * self.dimension, slice(0, 1))]

    def read(self, parent: Value) -> Value:
        sizes = tuple(1 if d == self.dimension else extent for d, extent in enumerate(parent.type.shape))
        return current().emit("dynamic_slice", (parent, *self._starts(parent)), slice_sizes=sizes)

    def write(self, parent: Value, new: Value) -> Value:
        return current().emit("dynamic_update_slice", (parent, new, *self._starts(parent)))

    def _starts(self, parent: Value) -> list[Value]:
        zero = current().scalar(0, self.index.type.dtype.numpy)
        return [self.index if d == self.dimension else zero for d in range(parent.type.rank)]


@dataclass(frozen=True)
class ReverseStep(Step):
    """`x[::-1]` along some dimensions."""

    dimensions: tuple[int, ...]

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.flip(array, self.dimensions)

    def read(self, parent: Value) -> Value:
        return current().emit("reverse", (parent,), dimensions=self.dimensions)

    def write(self, parent: Value, new: Value) -> Value:
        del parent
        return self.read(new)


@dataclass(frozen=True)
class TransposeStep(Step):
    """`x.transpose(permutation)`."""

    permutation: tuple[int, ...]

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.transpose(self.permutation)

    def read(self, parent: Value) -> Value:
        return current().emit("transpose", (parent,), permutation=self.permutation)

    def write(self, parent: Value, new: Value) -> Value:
        del parent
        back = tuple(int(p) for p in np.argsort(self.permutation))
        return current().emit("transpose", (new,), permutation=back)


@dataclass(frozen=True)
class ReshapeStep(Step):
    """A reshape that NumPy can do without copying."""

    shape: tuple[int, ...]

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.reshape(array, self.shape, copy=False)

    def read(self, parent: Value) -> Value:
        return current().emit("reshape", (parent,), shape=self.shape)

    def write(self, parent: Value, new: Value) -> Value:
        return current().emit("reshape", (new,), shape=parent.type.shape)


@dataclass(frozen=True)
class BroadcastStep(Step):
    """`np.broadcast_to(x, shape)`: read-only, as in NumPy."""

    shape: tuple[int, ...]
    writeable = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(array, self.shape)

    def read(self, parent: Value) -> Value:
        offset = len(self.shape) - parent.type.rank
        return current().emit(
            "broadcast_in_dim",
            (parent,),
            shape=self.shape,
            broadcast_dimensions=tuple(range(offset, len(self.shape))),
        )

    def write(self, parent: Value, new: Value) -> Value:
        raise AssertionError(f"a broadcast view is read-only ({parent}, {new})")


@dataclass(frozen=True)
class ReadOnlyStep(Step):
    """The same elements, not to be written through (`np.diagonal`)."""

    writeable = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def read(self, parent: Value) -> Value:
        return parent

    def write(self, parent: Value, new: Value) -> Value:
        raise AssertionError(f"this view is read-only ({parent}, {new})")


def layout_like(layouts: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The layout NumPy gives to a new array computed elementwise from these; None for C-contiguous."""
    if len(shape) < 2 or all(layout.flags.c_contiguous or layout.ndim < 2 for layout in layouts) or 0 in shape:
        return None
    flags: Any = [["readonly"]] * len(layouts) + [["writeonly", "allocate"]]
    iterator: Any = np.nditer([*layouts, None], flags=["refs_ok"], op_flags=flags, op_dtypes=None, order="K")
    made: NDArray[Any] = iterator.operands[-1]
    return as_strided(np.empty(1, made.dtype), made.shape, made.strides)


def of_array(array: NDArray[Any], reason: str, name: str = "constant") -> Storage:
    """A read-only constant. `reason` tells the user why it cannot be written."""
    return Storage(types.of_array(array), None, known=Known(lambda: array), read_only=reason, name=name)
