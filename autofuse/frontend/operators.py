"""Operators and methods of traced arrays that are a ufunc, or the NumPy function of the same name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.cells import of_array
from autofuse.frontend.dispatch import FUNCTIONS, call, run

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


def is_operand(value: Any) -> bool:
    """Whether a ufunc may take `value`; else the other operand's own operator gets its turn."""
    return getattr(type(value), "__array_ufunc__", True) is not None and not hasattr(type(value), "is_selection")


def _binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`__op__`, `__rop__` and `__iop__` of a ufunc."""

    def forward(self: Any, other: Any) -> Any:
        return call_ufunc(ufunc, "__call__", (self, other), {}) if is_operand(other) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return call_ufunc(ufunc, "__call__", (other, self), {}) if is_operand(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        if self.is_scalar:
            return call_ufunc(ufunc, "__call__", (self, other), {})
        call_ufunc(ufunc, "__call__", (self, other), {"out": (self,)})
        return self

    return forward, reflected, in_place


def _power_call(array: Any, exponent: Any) -> tuple[np.ufunc, tuple[Any, ...]]:
    """What NumPy's `**` calls: arrays have calls of their own for some Python numbers, scalars never a square root."""
    if array.is_scalar:
        if isinstance(exponent, float | np.floating) and exponent == 0.5:
            held = np.asarray(exponent, np.result_type(array.dtype, exponent))
            return np.power, (array, type(array)(of_array(held, "it is a constant of the traced function")))
        return np.power, (array, exponent)
    if type(exponent) is int and exponent == 2:
        return np.square, (array,)
    if type(exponent) is float and exponent == 0.5 and array.dtype.kind == "f":
        return np.sqrt, (array,)
    return np.power, (array, exponent)


def _powered(self: Any, exponent: Any) -> Any:
    """`self ** exponent`."""
    if not is_operand(exponent):
        return NotImplemented
    ufunc, operands = _power_call(self, exponent)
    return call_ufunc(ufunc, "__call__", operands, {})


def _powered_in_place(self: Any, exponent: Any) -> Any:
    """`self **= exponent`."""
    if not is_operand(exponent):
        return NotImplemented
    if self.is_scalar:
        return _powered(self, exponent)
    ufunc, operands = _power_call(self, exponent)
    call_ufunc(ufunc, "__call__", operands, {"out": (self,)})
    return self


def _compared(ufunc: np.ufunc, *, of_others: bool) -> Callable[[Any, Any], Any]:
    """`__eq__` or `__ne__`, which say something of None and text, too: `of_others`."""
    forward, _, _ = _binary(ufunc)

    def method(self: Any, other: Any) -> Any:
        if other is not None and not isinstance(other, str | bytes):
            return forward(self, other)
        if other is None and self.absent is not None:
            return np.logical_not(self.absent) if of_others else self.absent
        return of_others if self.is_scalar else call(np.full, self.shape, of_others)

    return method


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    return lambda self: call_ufunc(ufunc, "__call__", (self,), {})


def _method(function: Any) -> Callable[..., Any]:
    if isinstance(function, np.ufunc):
        return lambda self, *args, **kwargs: call_ufunc(function, "__call__", (self, *args), kwargs)
    return lambda self, *args, **kwargs: call(function, self, *args, **kwargs)


COMPARISONS: Mapping[str, np.ufunc] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
"""By the name of the operator's method, without underscores."""


class Operators:
    """The operators and those methods."""

    __slots__ = ()


def _install() -> None:
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
        setattr(Operators, f"__{name}__", forward)
        setattr(Operators, f"__r{name}__", reflected)
        setattr(Operators, f"__i{name}__", in_place)
    _, reflected, _ = _binary(np.power)
    Operators.__pow__ = _powered  # pyright: ignore[reportAttributeAccessIssue]
    Operators.__rpow__ = reflected  # pyright: ignore[reportAttributeAccessIssue]
    Operators.__ipow__ = _powered_in_place  # pyright: ignore[reportAttributeAccessIssue]
    forward, reflected, _ = _binary(np.divmod)
    Operators.__divmod__ = forward  # pyright: ignore[reportAttributeAccessIssue]
    Operators.__rdivmod__ = reflected  # pyright: ignore[reportAttributeAccessIssue]
    for name, ufunc in COMPARISONS.items():
        setattr(Operators, f"__{name}__", _binary(ufunc)[0])
    for name in ("eq", "ne"):
        setattr(Operators, f"__{name}__", _compared(COMPARISONS[name], of_others=name == "ne"))
    for name, ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
        setattr(Operators, f"__{name}__", _unary(ufunc))
    for name in _SAME_AS_FUNCTION:
        setattr(Operators, name, _method(getattr(np, name)))


_install()
