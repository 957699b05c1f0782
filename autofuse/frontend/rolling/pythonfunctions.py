"""What Python's own functions do with numbers of the graph: `range`, `len`, `int`, `min`, `math.sqrt` and so on."""

from __future__ import annotations

import functools
import math
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from typing import Any, cast

import numpy as np

from autofuse.frontend.caughterrors import require_uncaught
from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.instances import class_in_numpy
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, convert, value_of
from autofuse.frontend.rolling.arithmetic import greatest, least, truth
from autofuse.frontend.rolling.comprehensions import CONSUMERS, Generated
from autofuse.frontend.rolling.growing import Growing
from autofuse.frontend.rolling.items import Walk, ranged
from autofuse.frontend.rolling.numbers import NUMBER_MARK, Number, floating, plain, python_class, truth_of, whole_number
from autofuse.frontend.rolling.ragged import Ragged
from autofuse.frontend.rolling.tables import Table, array_of, common_kind, listed
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.tree import stands_for

_F64 = np.dtype(np.float64)


def python_function(function: Any) -> Callable[..., Any] | None:
    """What to call in place of a function of Python's; None if there is nothing to be done about it."""
    if isinstance(function, types.MethodType) and _is_numpys(function.__self__):
        method = _METHODS.get(function.__name__)
        return None if method is None else functools.partial(method, function.__self__)
    if not isinstance(function, type | types.BuiltinFunctionType):
        return None
    found = _INSTEAD.get(function)
    if function in CONSUMERS:
        return functools.partial(_consumed, function, found or function)
    if found is None and function in _MATH:
        return functools.partial(_math, function, _MATH[function])
    return found


def _consumed(function: Any, otherwise: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of Python's that may be given a generator."""
    if len(args) >= 1 and isinstance(args[0], Generated):
        return args[0].used_up(function, *args[1:], **kwargs)
    return otherwise(*args, **kwargs)


def _is_traced(value: Any) -> bool:
    """Whether it is a number that only the run knows."""
    return isinstance(value, TracerArray) and not value.shape and (isinstance(value, Number) or value.known is None)


def _float(*args: Any) -> Any:
    if len(args) != 1 or not _is_traced(args[0]) or args[0].dtype.kind == "c":
        return float(*args)
    number = args[0]
    if isinstance(number, Number):
        return number if number.python is float else floating(number.as_dtype(_F64), by_data=number.by_data)
    return floating(convert(number.value, _F64))


def _int(*args: Any) -> Any:
    if len(args) != 1 or not _is_traced(args[0]) or args[0].dtype.kind == "c":
        return int(*args)
    number = args[0]
    if isinstance(number, Number) and number.python is int:
        return number
    if number.dtype.kind in "biu":
        return whole_number(number)
    _require_finite("int()")
    whole: Any = np.trunc(number)
    return whole_number(whole)


def _bool(*args: Any) -> Any:
    if len(args) != 1 or not _is_traced(args[0]):
        return bool(*args)
    number = args[0]
    return truth(number) if isinstance(number, Number) else truth_of(np.not_equal(number, 0))


def _round(number: Any, digits: Any = None) -> Any:
    if not _is_traced(number):
        return round(number) if digits is None else round(number, digits)
    if isinstance(number, Number) and number.python is int and digits is None:
        return number
    if digits is not None:
        if isinstance(number, Number):  # Python's is exact in decimals
            raise CannotRollError("it rounds a number of Python's to digits")
        return call(np.round, number, digits)
    if number.dtype.kind in "biu":
        return whole_number(number)
    _require_finite("round()")
    wide: Any = fresh(number.as_dtype(_F64)) if isinstance(number, Number) else number
    whole: Any = np.rint(wide)
    return whole_number(whole)


def _require_finite(what: str) -> None:
    require_uncaught(f"{what} of NaN or infinity", "ask np.isfinite before", ValueError, OverflowError)


def _type(*args: Any, **kwargs: Any) -> Any:
    found = class_in_numpy(args[0]) if len(args) == 1 else None
    return found or stands_for(type(*args, **kwargs))


def class_of(value: Any) -> type:
    """`value.__class__`."""
    return class_in_numpy(value) or stands_for(value.__class__)


def text_made(text: Any) -> Any:
    """Text that a function makes. Raises TraceError where it is of something that only the run knows."""
    if isinstance(text, str) and any(mark in text for mark in _MARKS):
        raise trace_error("the text of a traced value is made here", "make it of what the plan returns, after the call")
    return text


_MARKS = (f"{TracerArray.__name__}(", NUMBER_MARK)
"""Of how traced values look."""


def _len(value: Any) -> Any:
    if isinstance(value, Growing | Table | MaskedSelection):
        return value.length
    return value.shape[0] if isinstance(value, Ragged) and value.ndim else len(value)


def _is_numpys(value: Any) -> bool:
    """Whether it is an array, or a scalar of one, of elements that only the run knows."""
    return isinstance(value, TracerArray) and not isinstance(value, Number) and value.known is None


def _item(array: TracerArray, *place: Any) -> Any:
    """An element as one of Python's numbers."""
    if len(place) == 1 and not isinstance(place[0], tuple):
        element: Any = call(np.ravel, array)[place[0]]
    elif place:
        element = array[place[0] if isinstance(place[0], tuple) else place]
    elif array.size == 1:
        element = array.reshape(())
    else:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    if element.dtype.kind == "c":
        raise trace_error("item() of complex numbers", "keep the 0-d array; it works wherever a number does")
    return {"b": _bool, "f": _float}.get(element.dtype.kind, _int)(element)


def _tolist(array: TracerArray) -> Any:
    """Its elements as Python's numbers, in lists."""
    if not array.ndim:
        return _item(array)
    kind = {"b": "bool", "f": "float", "i": "int", "u": "int"}.get(array.dtype.kind)
    if kind is None or array.size > _MOST_LISTED:
        raise trace_error(f"tolist() of {array.cell.type} makes a list of that many numbers", "keep the array")
    return listed(array, kind)  # pyright: ignore[reportArgumentType]  # one of its kinds


_MOST_LISTED = 1 << 16
_METHODS: dict[str, Callable[..., Any]] = {"item": _item, "tolist": _tolist}
"""Methods of arrays that give Python's own objects."""


def _extreme_of(array: TracerArray, python: Callable[..., Any]) -> Any:
    """`min(array)` or `max(array)`, in Python's way: the first of equal ones, and NaN only if the first one is."""
    if array.dtype.kind != "f":
        return getattr(array, python.__name__)()
    known = call(np.where, np.isnan(array), math.inf if python is min else -math.inf, array)
    position = call(np.argmin if python is min else np.argmax, known)
    return call(np.where, np.isnan(array[0]), array[0], array[position])[()]


def _at_hand(given: Any) -> Any:
    """The elements of one of Python's collections that has no order of its own, or of an iterator, as a list."""
    unordered = isinstance(given, deque | set | frozenset | KeysView | ValuesView | Iterator)
    return list(cast("Iterable[Any]", given)) if unordered else given


def _extreme(python: Callable[..., Any], numbers: Callable[[Any, Any], Any], ahead: Callable[[Any, Any], Any]) -> Any:
    """`min` or `max`, also of traced scalars: the first of equal ones, as Python has it."""

    def extreme(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs.keys() - {"default"}:
            args = tuple(map(_at_hand, args))
            given: Any = args[0]
            if _is_numpys(given) and given.ndim == 1 and given.size and given.dtype.kind != "c":
                return _extreme_of(given, python)
            if isinstance(given, list | tuple) and len(given) > 1:
                return extreme(*given)
        scalars = [arg for arg in args if isinstance(arg, TracerArray) and not arg.shape and arg.known is None]
        if not scalars or kwargs or len(args) < 2:
            return python(*args, **kwargs)
        best = args[0]
        for other in args[1:]:
            pythons = {python_class(side) for side in (best, other)}
            if pythons <= {int, bool}:
                best = numbers(best, other)
            elif pythons == {float}:
                first = ahead(other, best)
                sides = [fresh(value_of(side, _F64)) for side in (other, best)]
                by_data = any(plain(side).by_data for side in (best, other))
                best = floating(call(np.where, as_tracer(first), *sides).value, by_data=by_data)
            elif float in pythons and None not in pythons:
                raise CannotRollError("it chooses between a Python int and a float (write 0.0 for 0)")
            else:
                best = call(np.where, as_tracer(ahead(other, best)), other, best)[()]
        return best

    return extreme


def _sorted(given: Any, /, *, key: Any = None, reverse: bool = False) -> Any:
    """`sorted`, also of traced numbers. NaNs are last, where Python leaves them anywhere; of two numbers as Python."""
    items: list[Any] = list(given)
    if key is not None or _is_traced(reverse) or not any(map(_is_traced, items)):
        return sorted(items, key=key, reverse=reverse)
    if len(items) == 2:
        first, second = items
        ends = [_INSTEAD[min](first, second), _INSTEAD[max](second, first)]
        return ends if not reverse else [_INSTEAD[max](first, second), _INSTEAD[min](second, first)]
    kind = common_kind(items)
    if kind is None and len({value.dtype for value in map(as_tracer, items)}) > 1:
        raise CannotRollError("it sorts numbers of several kinds")
    array: Any = call(np.stack, list(map(as_tracer, items))) if kind is None else array_of(items, kind)
    ordered: Any = call(np.sort, array[::-1] if reverse else array, kind="stable")
    ordered = ordered[::-1] if reverse else ordered
    return list(ordered) if kind is None else listed(ordered, kind)


_INSTEAD: dict[Any, Callable[..., Any]] = {
    range: ranged,
    enumerate: functools.partial(Walk, enumerate),
    zip: functools.partial(Walk, zip),
    reversed: functools.partial(Walk, reversed),
    round: _round,
    float: _float,
    int: _int,
    bool: _bool,
    len: _len,
    type: _type,
    min: _extreme(min, least, lambda a, b: a < b),
    sorted: _sorted,
    max: _extreme(max, greatest, lambda a, b: a > b),
}


def _math(function: Callable[..., Any], ufunc: Callable[..., Any], *args: Any) -> Any:
    """A function of `math`; where Python raises for its argument, NumPy's has NaN or infinity."""
    if not any(map(_is_traced, args)):
        return function(*args)
    if function not in _TOTAL:
        what = f"math.{function.__name__}()"
        require_uncaught(what, "ask before whether it is defined there", ValueError, OverflowError)
    found = ufunc(*(fresh(value_of(arg, _F64)) for arg in args))
    if function in (math.floor, math.ceil, math.trunc):
        return whole_number(found)
    by_data = any(isinstance(arg, TracerArray) and not (isinstance(arg, Number) and not arg.by_data) for arg in args)
    return truth_of(found) if found.dtype == np.bool_ else floating(found.value, by_data=by_data)


_MATH: dict[Any, Callable[..., Any]] = {
    getattr(math, name): getattr(np, other)
    for name, other in (
        *((name, name) for name in ("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "cbrt", "exp2")),
        *((name, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot", "copysign", "fabs")),
        *((name, name) for name in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "degrees", "radians")),
        *(("a" + name, "arc" + name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")),
        ("atan2", "arctan2"),
        ("pow", "power"),
        ("fmod", "fmod"),
    )
    if hasattr(math, name)
}
"""Functions of floats alone, and NumPy's of the same meaning."""
_TOTAL = frozenset(
    getattr(math, name)
    for name in "fabs copysign isnan isinf isfinite atan atan2 tanh asinh cbrt degrees radians".split()  # noqa: SIM905
    if hasattr(math, name)
)
"""Those of them that raise nothing."""
