"""NumPy's functions of slices whose length changes with a loop's counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.frontend.dispatch import call
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.ragged import FUNCTIONS, Ragged, as_ragged, elementwise, moved, outer, refused
from autofuse.frontend.rolling.windows import Span, is_zero
from autofuse.frontend.tracer import TracerArray
from autofuse.ir.combiners import combiner_identity


def _for(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, implementation))
        return implementation

    return register


# element by element


def _install_elementwise() -> None:
    for function in (np.where, np.clip, np.round, np.around, np.nan_to_num, np.real, np.imag, np.isclose):

        def applied(*args: Any, function: Any = function, **kwargs: Any) -> Any:
            return elementwise(lambda *arrays: call(function, *arrays, **kwargs), args)

        FUNCTIONS[function] = applied
    for like in (np.zeros_like, np.ones_like, np.empty_like, np.full_like):

        def made(part: Ragged, *args: Any, like: Any = like, **kwargs: Any) -> Any:
            return Ragged(call(like, part.array, *args, **kwargs), part.spans)

        FUNCTIONS[like] = made


@_for(np.copy)
def _copy(part: Ragged, order: str = "K") -> Any:
    del order
    return part.copy()


@_for(np.flip)
def _flip(part: Ragged, axis: Any = None) -> Any:
    if part.ndim != 1 or axis not in (None, 0, -1):
        raise refused("np.flip of more than a vector")
    return part[::-1]


@_for(np.transpose)
def _transpose(part: Ragged, axes: Any = None) -> Any:
    if axes is not None:
        raise refused("np.transpose with axes")
    return part.T


# along axes


def _reduction(function: Callable[..., Any], combiner: str | None = None) -> Callable[..., Any]:
    """`combiner`: of one that has no value of no elements."""

    def reduced(part: Ragged, axis: Any = None, **kwargs: Any) -> Any:
        taken = _axes(part, function, axis)
        own = [one for one in taken if one in part.spans]
        if set(kwargs) - {"ddof", "dtype"}:
            raise refused(f"np.{function.__name__} with such arguments")
        if own:
            kwargs["where"] = part.mask(own)
        if own and combiner is not None:
            _require_elements(part, own)
            kwargs["initial"] = combiner_identity(combiner, part.array.cell.type.dtype)
        return _without(part, taken, call(function, part.array, axis=axis, **kwargs))

    return reduced


def _axes(part: Ragged, function: Callable[..., Any], axis: Any) -> list[int]:
    """The axes that a function takes away, counted from the end."""
    if axis is not None and type(axis) is not int:
        raise refused(f"np.{function.__name__} along several axes")
    return list(range(-part.ndim, 0)) if axis is None else [axis if axis < 0 else axis - part.ndim]


def _without(part: Ragged, taken: list[int], result: Any) -> Any:
    """A result that has the other axes of a slice."""
    kept = [one for one in range(-part.ndim, 0) if one not in taken]
    spans = {place - len(kept): part.spans[one] for place, one in enumerate(kept) if one in part.spans}
    return Ragged(result, spans) if spans else result


def _require_elements(part: Ragged, axes: list[int]) -> None:
    for axis in axes:
        length = part.spans[axis].length
        low = length.low if isinstance(length, Number) else length
        if low is None or low < 1:
            raise refused("the extreme of what may have no elements")


for _name in ("sum", "prod", "mean", "any", "all", "std", "var"):
    FUNCTIONS[getattr(np, _name)] = _reduction(getattr(np, _name))
for _name, _combiner in (("max", "maximum"), ("min", "minimum")):
    FUNCTIONS[getattr(np, _name)] = _reduction(getattr(np, _name), _combiner)


@_for(np.count_nonzero)
def _count_nonzero(part: Ragged, axis: Any = None) -> Any:
    return FUNCTIONS[np.sum](part != 0, axis)


@_for(np.ptp)
def _ptp(part: Ragged, axis: Any = None) -> Any:
    return FUNCTIONS[np.max](part, axis) - FUNCTIONS[np.min](part, axis)


@_for(np.average)
def _average(part: Ragged, axis: Any = None) -> Any:
    return FUNCTIONS[np.mean](part, axis)


def _position(function: Callable[..., Any], combiner: str) -> Callable[..., Any]:
    """`np.argmax`, `np.argmin`."""

    def found(part: Ragged, axis: Any = None) -> Any:
        taken = _axes(part, function, axis)
        if axis is None and part.ndim != 1:
            raise refused(f"np.{function.__name__} of more than a vector")
        _require_elements(part, [one for one in taken if one in part.spans])
        (over,) = taken
        least = combiner_identity(combiner, part.array.cell.type.dtype)
        places = call(function, part.with_others(least, [over]), axis=over)
        if over in part.spans:
            # where nothing is beyond the identity, one of the others may be found first
            places = np.maximum(places - part.spans[over].first, 0)
        return _without(part, taken, places)

    return found


FUNCTIONS[np.argmax] = _position(np.argmax, "maximum")
FUNCTIONS[np.argmin] = _position(np.argmin, "minimum")


def _running(function: Callable[..., Any], identity: int) -> Callable[..., Any]:
    def running(part: Ragged, axis: Any = None) -> Any:
        if axis is None and part.ndim != 1:
            raise refused(f"np.{function.__name__} of more than a vector")
        (over,) = _axes(part, function, -1 if axis is None else axis)
        return Ragged(call(function, part.with_others(identity, [over]), axis=over), part.spans)

    return running


FUNCTIONS[np.cumsum] = _running(np.cumsum, 0)
FUNCTIONS[np.cumprod] = _running(np.cumprod, 1)


@_for(np.diff)
def _diff(part: Ragged, n: int = 1, axis: int = -1) -> Any:
    if n != 1 or part.ndim != 1 or axis not in (0, -1):
        raise refused("np.diff of more than neighbours in a vector")
    return part[1:] - part[:-1]


@_for(np.linalg.norm)
def _norm(part: Ragged, ord: Any = None, axis: Any = None) -> Any:  # noqa: A002 - NumPy's name
    """Norms that zeros do not change."""
    if ord not in (None, 1, 2, np.inf, "fro"):
        raise refused("such a norm of it")
    taken = list(range(-part.ndim, 0)) if axis is None else _axes(part, np.linalg.norm, axis)
    return _without(part, taken, call(np.linalg.norm, part.with_others(0, taken), ord, axis))


# products


@_for(np.matmul, np.dot)
def _product(a: Any, b: Any) -> Any:
    """`a @ b` of vectors and matrices."""
    sides = [as_ragged(side) for side in (a, b)]
    first, second = sides
    if not (1 <= first.ndim <= 2 and 1 <= second.ndim <= 2):
        raise refused("such a product")
    over = -1 if second.ndim == 1 else -2
    spans = first.spans.get(-1), second.spans.get(over)
    left, right = first.array, second.array
    if spans[0] is not None and spans[1] is not None:
        left, right = _together(first, second, over)
    elif spans != (None, None):
        raise refused("a product with an array of fixed length")
    result = np.matmul(left, right)  # pyright: ignore[reportCallIssue, reportArgumentType]
    kept: dict[int, Span] = {}
    if first.ndim == 2 and -2 in first.spans:
        kept[-2 if second.ndim == 2 else -1] = first.spans[-2]
    if second.ndim == 2 and -1 in second.spans:
        kept[-1] = second.spans[-1]
    if not kept:
        return result
    product = Ragged(result, kept)
    return Ragged(product.with_others(0, list(kept)), kept)  # so that the others need not be computed


def _together(first: Ragged, second: Ragged, over: int) -> tuple[TracerArray, TracerArray]:
    """Operands whose axes of the product lie in one window, with one mask for both."""
    span, other = first.spans[-1], second.spans[over]
    if not span.is_long_as(other):
        raise refused("a product of slices of other lengths")
    window, right = first.array.shape[-1], second.array
    if not is_zero(other.first - span.first) or right.shape[over] != window:
        right = moved(right, over, other.first - span.first, window)
    return first.with_others(0, [-1]), Ragged(right, {over: span}).with_others(0, [over])


@_for(np.inner, np.vdot)
def _inner(a: Any, b: Any) -> Any:
    sides = [as_ragged(side) for side in (a, b)]
    if any(side.ndim != 1 or side.dtype.kind == "c" for side in sides):
        raise refused("such an inner product")
    return _product(*sides)


@_for(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return outer(np.multiply, a, b)


_install_elementwise()
