"""What lies between a view and its parent: the aliasing operations of NumPy, each with its inverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autofuse.frontend.tracecontext import current
from autofuse.ir.dtypes import DType, complex_of
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass


class Step(ABC):
    """One aliasing operation. `numpy` is what it does; it must return a view."""

    @abstractmethod
    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        """NumPy's own result."""

    def layout(self, array: NDArray[Any]) -> NDArray[Any]:
        """What it does to an array without data: shape and strides of the view."""
        return self.numpy(array)

    def element(self, dtype: DType) -> DType:
        """The dtype of a view of elements of `dtype`."""
        return dtype

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
class DynamicSliceStep(Step):
    """`x[i : i + n, ...]` where traced integer scalars, already wrapped, decide where; dimensions are kept."""

    starts: tuple[int | Value, ...]
    sizes: tuple[int, ...]
    fixed = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[tuple(map(slice, self.sizes))]

    def read(self, parent: Value) -> Value:
        return current().emit("dynamic_slice", (parent, *self._starts()), slice_sizes=self.sizes)

    def write(self, parent: Value, new: Value) -> Value:
        return current().emit("dynamic_update_slice", (parent, new, *self._starts()))

    def _starts(self) -> list[Value]:
        dtype = next(start.type.dtype.numpy for start in self.starts if not isinstance(start, int))
        return [current().scalar(at, dtype) if isinstance(at, int) else at for at in self.starts]


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
class SameStep(Step):
    """The same elements, as another array object."""

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def read(self, parent: Value) -> Value:
        return parent

    def write(self, parent: Value, new: Value) -> Value:
        del parent
        return new


@dataclass(frozen=True)
class ReadOnlyStep(SameStep):
    """The same elements, not to be written through."""

    writeable = False


@dataclass(frozen=True)
class BitcastStep(Step):
    """`x.view(dtype)` of an equally wide dtype: the same bits, read as another type."""

    dtype: DType

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.view(self.dtype.numpy)

    def layout(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def element(self, dtype: DType) -> DType:
        del dtype
        return self.dtype

    def read(self, parent: Value) -> Value:
        return current().emit("bitcast_convert", (parent,), dtype=self.dtype)

    def write(self, parent: Value, new: Value) -> Value:
        return current().emit("bitcast_convert", (new,), dtype=parent.type.dtype)


@dataclass(frozen=True)
class PartStep(Step):
    """`x.real` or `x.imag` of complex numbers."""

    name: str
    """`real` or `imag`."""

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return getattr(array, self.name)

    def element(self, dtype: DType) -> DType:
        return dtype.part

    def read(self, parent: Value) -> Value:
        return current().emit(self.name, (parent,))

    def write(self, parent: Value, new: Value) -> Value:
        if self.name == "real":
            return current().emit("complex", (new, current().emit("imag", (parent,))))
        return current().emit("complex", (current().emit("real", (parent,)), new))


@dataclass(frozen=True)
class PartsStep(Step):
    """`x.view(dtype)` from complex numbers to the dtype of their parts, which lie along the last axis in turn."""

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.view(np.real(array).dtype)

    def element(self, dtype: DType) -> DType:
        return dtype.part

    def read(self, parent: Value) -> Value:
        apart = [current().emit(name, (parent,)) for name in ("real", "imag")]
        columns = [current().emit("reshape", (part,), shape=(*part.type.shape, 1)) for part in apart]
        joined = current().emit("concatenate", columns, dimension=parent.type.rank)
        return current().emit("reshape", (joined,), shape=(*parent.type.shape[:-1], 2 * parent.type.shape[-1]))

    def write(self, parent: Value, new: Value) -> Value:
        del parent
        return WholeStep().read(new)


@dataclass(frozen=True)
class WholeStep(Step):
    """`x.view(dtype)` the other way: each two neighbours along the last axis are a complex number."""

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.view(np.result_type(array.dtype, np.complex64))

    def element(self, dtype: DType) -> DType:
        return complex_of(dtype)

    def read(self, parent: Value) -> Value:
        shape = (*parent.type.shape[:-1], parent.type.shape[-1] // 2)
        pairs = current().emit("reshape", (parent,), shape=(*shape, 2))
        zeros, ones = (0,) * len(shape), (1,) * (len(shape) + 1)
        taken = [
            current().emit("slice", (pairs,), start_indices=(*zeros, n), limit_indices=(*shape, n + 1), strides=ones)
            for n in (0, 1)
        ]
        return current().emit("complex", [current().emit("reshape", (part,), shape=shape) for part in taken])

    def write(self, parent: Value, new: Value) -> Value:
        del parent
        return PartsStep().read(new)


@dataclass(frozen=True)
class DiagonalStep(Step):
    """`np.diagonal(x, offset)` of the last two dimensions: read-only, as in NumPy; or writeable, as einsum's."""

    offset: int
    writeable: bool = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.diagonal(array, self.offset, -2, -1)

    def read(self, parent: Value) -> Value:
        return self._among(parent).read(_flat_matrices(parent))

    def write(self, parent: Value, new: Value) -> Value:
        written = self._among(parent).write(_flat_matrices(parent), new)
        return current().emit("reshape", (written,), shape=parent.type.shape)

    def _among(self, parent: Value) -> SliceStep:
        """The diagonal among the elements of its matrix in a row."""
        *lead, rows, columns = parent.type.shape
        row, column = max(-self.offset, 0), max(self.offset, 0)
        count = max(min(rows - row, columns - column), 0)
        start = row * columns + column if count else 0
        return SliceStep(
            (0,) * len(lead) + (start,),
            (*lead, start + (count - 1) * (columns + 1) + 1 if count else 0),
            (1,) * len(lead) + (columns + 1 if count > 1 else 1,),
        )


def _flat_matrices(parent: Value) -> Value:
    *lead, rows, columns = parent.type.shape
    return current().emit("reshape", (parent,), shape=(*lead, rows * columns))


@dataclass(frozen=True)
class FlatStep(Step):
    """All elements in C order, whatever the memory order: what `x.flat` walks over."""

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(-1)

    def layout(self, array: NDArray[Any]) -> NDArray[Any]:
        return as_strided(np.empty(1, array.dtype), (array.size,), (array.itemsize,))

    def read(self, parent: Value) -> Value:
        return current().emit("reshape", (parent,), shape=(parent.type.size,))

    def write(self, parent: Value, new: Value) -> Value:
        return current().emit("reshape", (new,), shape=parent.type.shape)
