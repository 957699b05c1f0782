"""The traced array: looks like a NumPy array to the user's function, and records what is done to it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import NumpyOnlyError, TraceError
from autofuse.frontend.cells import Cell, Known, Storage, View, of_array
from autofuse.frontend.dispatch import FUNCTIONS, call, run
from autofuse.frontend.location import trace_error
from autofuse.frontend.steps import ReadOnlyStep, Step
from autofuse.ir.graph import Value

_STATIC_SHAPE = "shapes must not depend on array values; use np.where, or arithmetic on the mask"


class TracerArray:
    """Stands for an array while a function is traced. Behaves as `numpy.ndarray`, or as a NumPy scalar."""

    __slots__ = ("cell", "is_scalar")
    __array_priority__ = 1000.0
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as ndarray

    def __init__(self, cell: Cell, *, is_scalar: bool = False) -> None:
        self.cell = cell
        self.is_scalar = is_scalar
        """Whether NumPy would have a scalar here: immutable, so `+=` makes a new one."""

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
    def known(self) -> Known | None:
        """The elements, where they do not depend on traced inputs."""
        return self.cell.known

    @property
    def value(self) -> Value:
        """The SSA value now."""
        return self.cell.read()

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not all(map(_operand, inputs)):
            return NotImplemented
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del types
        return call(function, *args, **kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy
        known = self.known
        if known is None:
            raise trace_error(
                "a traced array is needed as a real array here",
                "use a NumPy function that can be traced, and x.astype(np.float32) for np.float32(x); to write traced"
                " values into an array, make that array with np.zeros, np.empty or np.array inside the traced function",
            )
        return known().astype(dtype or self.dtype, copy=True)

    # Python's own protocols: static, or an error that says what to write

    def _concrete(self, what: str, instead: str, kind: type[TraceError] = TraceError) -> Any:
        known = self.known
        if known is None:
            raise trace_error(f"{what} needs the value of a traced array ({self.cell.type})", instead, kind)
        array = known()
        return array[()] if array.ndim == 0 else array

    def __bool__(self) -> bool:
        return bool(
            self._concrete(
                "Python's truth test (if, while, and, or, not, min, max, in)",
                "np.where(condition, a, b), np.minimum/np.maximum, & | ~ on masks, a comparison of shapes,"
                " or autofuse.cond and autofuse.while_loop for whole arrays of work",
            )
        )

    def __int__(self) -> int:
        return int(self._concrete("int()", "x.astype(np.int64), or pass the number as a Python int"))

    def __float__(self) -> float:
        return float(
            self._concrete(
                "float() (math functions call it)", "the np function of the same name, or x.astype(np.float64)"
            )
        )

    def __complex__(self) -> complex:
        return complex(self._concrete("complex()", "complex numbers are left to NumPy", NumpyOnlyError))

    def __index__(self) -> int:
        return operator.index(
            self._concrete(
                "range(), a slice bound or a shape", "pass the number as a Python int; or np.take(x, i + np.arange(n))"
            )
        )

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

    def __format__(self, text: str) -> str:
        if self.known is None and not text:
            return repr(self)
        return format(self._concrete("formatting", "print after the call; the traced function runs once"), text)

    def __round__(self, digits: int | None = None) -> Any:
        if not self.is_scalar:
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        if digits is None:
            return round(self._concrete("round() to a Python int", "np.rint(x), or round(x, 0)"))
        return call(np.round, self, digits)

    def __getstate__(self) -> Any:
        raise trace_error("a traced array cannot be pickled", "keep it inside the traced function")

    def item(self, *args: Any) -> Any:
        return self._concrete("item()", "keep the 0-d array; it works wherever a number does").item(*args)

    def tolist(self) -> Any:
        return self._concrete("tolist()", "keep the array").tolist()

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
        return self

    @real.setter
    def real(self, value: Any) -> None:
        self[...] = value

    @property
    def imag(self) -> Any:
        zeros = call(np.zeros_like, self)
        return element(zeros.cell) if self.is_scalar else view(zeros, ReadOnlyStep())

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
            raise AttributeError(f"a traced array has no attribute {name!r}, nor has numpy.ndarray")
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
        return self

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


_SAME_AS_FUNCTION = (
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "choose",
    "clip",
    "cumprod",
    "cumsum",
    "diagonal",
    "max",
    "mean",
    "min",
    "prod",
    "ravel",
    "repeat",
    "round",
    "searchsorted",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "trace",
    "var",
)
"""Methods that are the NumPy function of the same name, with its signature."""


def _numpy_astype(array: NDArray[Any], dtype: Any, casting: Any, copy: bool, order: Any = "K") -> NDArray[Any]:
    return np.asarray(array).astype(dtype, order=order, casting=casting, copy=copy)


def _numpy_view(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.asarray(array).view(dtype)


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc, or one of its methods, on arguments of which one is traced."""
    reference = getattr(ufunc, method)
    label = "" if method == "__call__" else f"np.{ufunc.__name__}.{method}"
    return run(
        FUNCTIONS["ufunc"],
        lambda *a, **k: reference(*a[2:], **k),
        (ufunc, method, *inputs),
        kwargs,
        label or f"np.{ufunc.__name__}",
    )


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


def _operand(value: Any) -> bool:
    """Whether a ufunc may take `value`; else the other operand's own operator gets its turn."""
    return getattr(type(value), "__array_ufunc__", True) is not None and not hasattr(type(value), "is_selection")


def _binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`__op__`, `__rop__` and `__iop__` of a ufunc."""

    def forward(self: TracerArray, other: Any) -> Any:
        return call_ufunc(ufunc, "__call__", (self, other), {}) if _operand(other) else NotImplemented

    def reflected(self: TracerArray, other: Any) -> Any:
        return call_ufunc(ufunc, "__call__", (other, self), {}) if _operand(other) else NotImplemented

    def in_place(self: TracerArray, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        if self.is_scalar:
            return call_ufunc(ufunc, "__call__", (self, other), {})
        call_ufunc(ufunc, "__call__", (self, other), {"out": (self,)})
        return self

    return forward, reflected, in_place


def _power_call(array: TracerArray, exponent: Any) -> tuple[np.ufunc, tuple[Any, ...]]:
    """What NumPy's `**` calls: arrays have calls of their own for some Python numbers, scalars never a square root."""
    if array.is_scalar:
        if isinstance(exponent, float | np.floating) and exponent == 0.5:
            held = np.asarray(exponent, np.result_type(array.dtype, exponent))
            return np.power, (array, TracerArray(of_array(held, "it is a constant of the traced function")))
        return np.power, (array, exponent)
    if type(exponent) is int and exponent == 2:
        return np.square, (array,)
    if type(exponent) is float and exponent == 0.5 and array.dtype.kind == "f":
        return np.sqrt, (array,)
    return np.power, (array, exponent)


def _powered(self: TracerArray, exponent: Any) -> Any:
    """`self ** exponent`."""
    if not _operand(exponent):
        return NotImplemented
    ufunc, operands = _power_call(self, exponent)
    return call_ufunc(ufunc, "__call__", operands, {})


def _powered_in_place(self: TracerArray, exponent: Any) -> Any:
    """`self **= exponent`."""
    if not _operand(exponent):
        return NotImplemented
    if self.is_scalar:
        return _powered(self, exponent)
    ufunc, operands = _power_call(self, exponent)
    call_ufunc(ufunc, "__call__", operands, {"out": (self,)})
    return self


def _unary(ufunc: np.ufunc) -> Callable[[TracerArray], Any]:
    return lambda self: call_ufunc(ufunc, "__call__", (self,), {})


def _method(function: Any) -> Callable[..., Any]:
    if isinstance(function, np.ufunc):
        return lambda self, *args, **kwargs: call_ufunc(function, "__call__", (self, *args), kwargs)
    return lambda self, *args, **kwargs: call(function, self, *args, **kwargs)


def _install_operators() -> None:
    arithmetic = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "truediv": np.true_divide,
        "floordiv": np.floor_divide,
        "mod": np.remainder,
        "matmul": np.matmul,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "lshift": np.left_shift,
        "rshift": np.right_shift,
    }
    for name, ufunc in arithmetic.items():
        forward, reflected, in_place = _binary(ufunc)
        setattr(TracerArray, f"__{name}__", forward)
        setattr(TracerArray, f"__r{name}__", reflected)
        setattr(TracerArray, f"__i{name}__", in_place)
    _, reflected, _ = _binary(np.power)
    TracerArray.__pow__ = _powered  # pyright: ignore[reportAttributeAccessIssue]
    TracerArray.__rpow__ = reflected  # pyright: ignore[reportAttributeAccessIssue]
    TracerArray.__ipow__ = _powered_in_place  # pyright: ignore[reportAttributeAccessIssue]
    forward, reflected, _ = _binary(np.divmod)
    TracerArray.__divmod__ = forward  # pyright: ignore[reportAttributeAccessIssue]
    TracerArray.__rdivmod__ = reflected  # pyright: ignore[reportAttributeAccessIssue]
    comparisons = {
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
    }
    for name, ufunc in comparisons.items():
        setattr(TracerArray, f"__{name}__", _binary(ufunc)[0])
    for name, ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
        setattr(TracerArray, f"__{name}__", _unary(ufunc))
    for name in _SAME_AS_FUNCTION:
        setattr(TracerArray, name, _method(getattr(np, name)))


_install_operators()
