"""The traced array: looks like a NumPy array to the user's function, and records what is done to it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.cells import Cell, Storage, View
from autofuse.frontend.concrete import Concrete
from autofuse.frontend.dispatch import FUNCTIONS, call, run
from autofuse.frontend.location import trace_error
from autofuse.frontend.operators import Operators, call_ufunc, is_operand
from autofuse.frontend.steps import PartStep, ReadOnlyStep, Step
from autofuse.ir.graph import Value

_STATIC_SHAPE = "shapes must not depend on array values; use np.where, or arithmetic on the mask"


_NOTHING = (frozenset[Cell](), frozenset[Cell]())


class TracerArray(Operators, Concrete):
    """Stands for an array while a function is traced. Behaves as `numpy.ndarray`, or as a NumPy scalar."""

    __slots__ = ("absent", "cell", "is_scalar", "settles")
    __array_priority__ = 1000.0

    def __init__(self, cell: Cell, *, is_scalar: bool = False) -> None:
        self.cell = cell
        self.is_scalar = is_scalar
        """Whether NumPy would have a scalar here: immutable, so `+=` makes a new one."""
        self.absent: Any = None
        """Of a number: where Python has None in its place (`rolling.nothing`); None if it never has."""
        self.settles: tuple[frozenset[Cell], frozenset[Cell]] = _NOTHING
        """Of a condition: what never is absent where it holds, and where it does not."""

    # what is static

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cell.type.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        raise trace_error(f"assigning x.shape = {shape} cannot be traced", "x = x.reshape(shape)")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.cell.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return self.cell.type.rank

    @property
    def size(self) -> int:
        return self.cell.type.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.cell.type.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        return self.cell.layout.strides

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"TracerArray({self.cell.type})"

    @property
    def value(self) -> Value:
        """The SSA value now."""
        return self.cell.read()

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not all(map(is_operand, inputs)):
            return NotImplemented
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del types
        return call(function, *args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, item: Any) -> bool:
        return bool(call(np.any, self == item))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        del memo
        return self.copy()

    def __hash__(self) -> int:
        if not self.is_scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self._concrete("a key of a dict, or an element of a set,", "keep the values in an array"))

    def __getstate__(self) -> Any:
        raise trace_error("a traced array cannot be pickled", "keep it inside the traced function")

    # indexing

    def __getitem__(self, index: Any) -> Any:
        return run(FUNCTIONS["getitem"], operator.getitem, (self, index), {}, "indexing")

    def __setitem__(self, index: Any, value: Any) -> None:
        run(FUNCTIONS["setitem"], operator.setitem, (self, index, value), {}, "assignment to an index")

    # properties that are views or conversions

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        return call(np.transpose, self)

    @property
    def mT(self) -> Any:  # noqa: N802 - NumPy's name
        return call(np.matrix_transpose, self)

    @property
    def real(self) -> Any:
        return self._part("real") if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        if self.dtype.kind == "c":
            return self._part("imag")
        zeros = call(np.zeros_like, self)
        return element(zeros.cell) if self.is_scalar else view(zeros, ReadOnlyStep())

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("cannot set imaginary part of non-complex array")
        self.imag[...] = value

    def _part(self, name: str) -> Any:
        return run(_part, operator.attrgetter(name), (self,), {"name": name}, name)

    @property
    def flat(self) -> Any:
        return FUNCTIONS["flat"](self)

    @flat.setter
    def flat(self, value: Any) -> None:
        FUNCTIONS["flat"](self)[...] = value

    @property
    def base(self) -> Any:
        return TracerArray(self.cell.storage) if isinstance(self.cell, View) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        reason = _STATIC_SHAPE if name in ("nonzero", "compress") else "a NumPy function that can be traced"
        if not hasattr(np.ndarray, name):
            raise AttributeError(f"a traced array has no attribute {name!r:.80}, nor has numpy.ndarray")
        raise trace_error(f"ndarray.{name} cannot be traced", reason)

    # methods with a signature of their own

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        wanted = shape[0] if len(shape) == 1 else shape
        return call(np.reshape, self, wanted, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        wanted = axes[0] if len(axes) == 1 else (axes or None)
        return call(np.transpose, self, wanted)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        del subok
        return run(FUNCTIONS["astype"], _numpy_astype, (self, dtype, casting, copy), {"order": order}, "astype")

    def copy(self, order: str = "C") -> Any:
        return self if self.is_scalar else call(np.copy, self, order)

    def conj(self) -> Any:
        return call_ufunc(np.conjugate, "__call__", (self,), {}) if self.dtype.kind == "c" else self

    conjugate = conj

    def flatten(self, order: str = "C") -> Any:
        return call(np.copy, call(np.ravel, self, order))

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> None:
        del order
        self[...] = call(np.sort, self, axis, kind, stable=stable)

    def view(self, dtype: Any = None) -> Any:
        return self if dtype is None else run(FUNCTIONS["bitcast"], _numpy_view, (self, dtype), {}, "view")

    def dot(self, other: Any, out: Any = None) -> Any:
        return call(np.dot, self, other, out=out)


class WeakScalar(TracerArray):
    """Stands for a number of Python's that is known only at run time: it takes the dtype of the arrays it meets."""

    __slots__ = ()
    python: type
    """`int`, `float` or `complex`."""

    def as_dtype(self, dtype: np.dtype[Any]) -> Value:
        """Its value as a number of that dtype."""
        raise NotImplementedError


def _numpy_astype(array: NDArray[Any], dtype: Any, casting: Any, copy: bool, order: Any = "K") -> NDArray[Any]:
    return np.asarray(array).astype(dtype, order=order, casting=casting, copy=copy)


def _part(array: TracerArray, name: str) -> TracerArray:
    """The real or imaginary part of complex numbers: a view."""
    seen = view(array, PartStep(name))
    return fresh(seen.value) if array.is_scalar else seen


def _numpy_view(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.asarray(array).view(dtype)


def fresh(value: Value, *, is_scalar: bool | None = None) -> TracerArray:
    """A new array with this value; of rank 0 it is a NumPy scalar unless told otherwise."""
    scalar = value.type.rank == 0 if is_scalar is None else is_scalar
    return TracerArray(Storage(value.type, value), is_scalar=scalar)


def element(cell: Cell) -> TracerArray:
    """The NumPy scalar that a cell of rank 0 holds now: a value, not a view."""
    known = cell.known
    storage = Storage(cell.type, cell.read()) if known is None else Storage(cell.type, None, known=known)
    return TracerArray(storage, is_scalar=True)


def view(array: TracerArray, *steps: Step) -> TracerArray:
    """A view of `array`, some steps away; of a NumPy scalar, which has no memory to share, of a copy."""
    cell = element(array.cell).cell if array.is_scalar else array.cell
    for step in steps:
        cell = View(cell, step)
    return TracerArray(cell)


def write(array: TracerArray, value: Value, what: str) -> None:
    """Replace all elements of `array`. Raises TraceError where NumPy has a read-only array or a scalar."""
    if array.is_scalar:
        raise TypeError("a NumPy scalar cannot be written in place")
    reason = array.cell.read_only
    if reason:
        raise trace_error(f"{what}: the array is read-only: {reason}", "write into a copy: x = x.copy()")
    array.cell.write(value)
