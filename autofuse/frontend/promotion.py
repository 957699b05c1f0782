"""Dtypes exactly as NumPy 2 resolves them (NEP 50), and operands brought to one dtype and shape.

Python `int`, `float` and `complex` are weak: they take the dtype of the arrays they meet. `bool`, NumPy scalars and
arrays are strong. The rules are not rewritten here: NumPy itself is asked (`ufunc.resolve_dtypes`, `np.result_type`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.exceptions import ComplexWarning

from autofuse.frontend.cells import of_array
from autofuse.frontend.dispatch import call, tracers_in
from autofuse.frontend.tracecontext import current, supported
from autofuse.frontend.tracer import TracerArray, WeakScalar
from autofuse.ir import dtypes, types
from autofuse.ir.graph import Value

_THROUGH = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in (("i1", "i4"), ("i2", "i4"), ("u1", "i4"), ("u2", "i4"), ("u4", "i8"), ("u8", "i8"))
}
"""Integer dtypes that floats reach through another one."""


def is_weak(value: Any) -> bool:
    """Whether `value` is a Python number that takes the dtype of the arrays it meets."""
    return type(value) in (int, float, complex) or isinstance(value, WeakScalar)


def known_weak(value: Any) -> Any:
    """A Python number that NumPy treats as it does a weak operand."""
    return value.python(0) if isinstance(value, WeakScalar) else value


def dtype_of(value: Any) -> Any:
    """What NumPy's resolvers want to know of an operand: a dtype, or the class of a weak Python number."""
    if isinstance(value, WeakScalar):
        return value.python
    return type(value) if is_weak(value) else as_tracer(value).dtype


def as_tracer(value: Any) -> TracerArray:
    """`value` as a traced array: traced arrays as they are, everything else by `np.asarray`'s rules, as a constant."""
    if isinstance(value, TracerArray):
        return value
    if isinstance(value, list | tuple) and any(True for _ in tracers_in(value)):
        return call(np.stack, [as_tracer(item) for item in cast("Sequence[Any]", value)])
    types.require_plain(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"a {type(value).__name__} cannot be an array operand")
    supported(array.dtype)
    cell = of_array(array, "it is a constant of the traced function")
    return TracerArray(cell, is_scalar=array.ndim == 0)


def static_number(value: Any) -> Any:
    """The number an operand is known to be at tracing (Python or NumPy scalar), as a Python number; else None."""
    if isinstance(value, bool | int | float | complex):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return None


def result_dtype(*values: Any) -> np.dtype[Any]:
    """`np.result_type` of operands, Python numbers being weak."""
    if all(isinstance(value, WeakScalar) for value in values):
        return np.result_type(*(as_tracer(value).dtype for value in values))
    return np.result_type(*(known_weak(value) if is_weak(value) else as_tracer(value).dtype for value in values))


def value_of(operand: Any, dtype: np.dtype[Any]) -> Value:
    """The operand's SSA value, converted to `dtype`. Raises OverflowError for a Python int that does not fit."""
    if isinstance(operand, WeakScalar):
        return operand.as_dtype(dtype)
    number = static_number(operand)
    if number is not None:
        return current().scalar(operand if is_weak(operand) else np.asarray(operand).astype(dtype), dtype)
    return convert(as_tracer(operand).value, dtype)


def spread(operand: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Value:
    """The operand's SSA value, converted to `dtype` and broadcast to `shape`."""
    value = value_of(operand, dtype)
    return current().splat_of(value, shape) if static_number(operand) is not None else broadcast(value, shape)


def convert(value: Value, dtype: np.dtype[Any]) -> Value:
    """`value` in another dtype, as NumPy's `astype`; to bool is `!= 0`; complex to real drops the imaginary part.

    Floats become integers of 8, 16, 32 bits through a wider signed one, whose low bits are kept, and negative ones
    become uint64 through int64: C leaves this open, NumPy on x86-64 does so without a warning (`-1.0` is 255 as uint8).
    What the wider one cannot hold saturates there, NaN is 0; NumPy warns of an invalid value and gives what the
    processor makes of it.
    """
    source = value.type.dtype
    if source.numpy == dtype:
        return value
    if dtype == np.bool_:
        zero = current().splat(0, source.numpy, value.type.shape)
        return current().emit("compare", (value, zero), direction="NE")
    if source.is_complex and dtype.kind != "c":
        _warn_of_loss()
        return convert(current().emit("real", (value,)), dtype)
    if source.is_float and dtype in _THROUGH:
        wide = convert(value, _THROUGH[dtype])
        wrapped = convert(wide, dtype)
        if dtype != np.uint64:
            return wrapped
        zero = current().splat(0, source.numpy, value.type.shape)
        negative = current().emit("compare", (value, zero), direction="LT")
        direct = current().emit("convert", (value,), dtype=dtypes.from_numpy(dtype))
        return current().emit("select", (negative, wrapped, direct))
    return current().emit("convert", (value,), dtype=dtypes.from_numpy(dtype))


def _warn_of_loss() -> None:
    """NumPy's warning, at the user's line."""
    location = current().builder.location
    where = ("<traced>", 1) if location is None else (location.file, location.line)
    warnings.warn_explicit("Casting complex values to real discards the imaginary part", ComplexWarning, *where)


def broadcast(value: Value, shape: tuple[int, ...]) -> Value:
    """`value` broadcast by NumPy's rules. Raises ValueError where NumPy does."""
    if value.type.shape == shape:
        return value
    offset = len(shape) - value.type.rank
    if offset < 0 or any(e not in (1, f) for e, f in zip(value.type.shape, shape[offset:], strict=True)):
        raise ValueError(f"could not broadcast from shape {value.type.shape} into shape {shape}")
    return current().emit(
        "broadcast_in_dim", (value,), shape=shape, broadcast_dimensions=tuple(range(offset, len(shape)))
    )


def reshape(value: Value, shape: tuple[int, ...]) -> Value:
    """`value` in another shape of the same size."""
    if value.type.shape == shape:
        return value
    return current().emit("reshape", (value,), shape=shape)


def transpose(value: Value, permutation: tuple[int, ...]) -> Value:
    """`value` with its dimensions permuted."""
    if permutation == tuple(range(value.type.rank)):
        return value
    return current().emit("transpose", (value,), permutation=permutation)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an operand."""
    return value.shape if isinstance(value, TracerArray | np.ndarray | np.generic) else np.shape(value)
