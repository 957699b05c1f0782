"""Slices whose length changes with a loop's counter: `C[i, :i + 1]`, `A[k + 1 :, k]`.

Such a slice is the window that holds all of its elements in every iteration, and along each such axis where its own
elements begin and how many they are. Elementwise work is done on the whole windows, harmlessly; reductions and products
take only its own elements, others being replaced by what changes nothing; writes leave others as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from autofuse.frontend.cells import same_place
from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.operators import call_ufunc
from autofuse.frontend.promotion import as_tracer, broadcast, value_of
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.positions import ends, is_turned, not_below, window
from autofuse.frontend.tracer import TracerArray, fresh, write
from autofuse.ir.combiners import combiner_identity
from autofuse.lazydataclass import dataclass

_REDUCTIONS = {np.sum, np.prod, np.mean, np.max, np.min, np.any, np.all}
_EXTREMA = {np.max: "maximum", np.min: "minimum"}


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Where a slice lies in its window, along one axis."""

    first: Any
    """Position in the window: an `int` or a Number."""
    length: Any

    def is_long_as(self, other: Span) -> bool:
        """Whether two have the same length in all iterations."""
        return _is_zero(self.length - other.length)

    def turned(self, window: int) -> Span:
        """Of the window from its end."""
        return Span(window - self.first - self.length, self.length)


Spans = Mapping[int, Span]
"""By axis, counted from the end (-1 is the last): so they stay when shapes are broadcast."""


class Ragged(NDArrayOperatorsMixin):
    """The elements of `array` at `spans`; of an axis without one, all."""

    is_selection = True
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as ndarray

    def __init__(self, array: TracerArray, spans: Spans) -> None:
        self.array = array
        """The window; of a slice a view, so that it sees what is written into the array."""
        self.spans = dict(spans)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def shape(self) -> tuple[Any, ...]:
        whole = list(self.array.shape)
        for axis, span in self.spans.items():
            whole[axis] = span.length
        return tuple(whole)

    @property
    def T(self) -> Ragged:  # noqa: N802 - NumPy's name
        if self.ndim > 2:
            raise _refused("transposing it")
        return self if self.ndim == 1 else Ragged(self.array.T, {-3 - axis: span for axis, span in self.spans.items()})

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if method == "outer" and not kwargs and out is None:
            return _outer(ufunc, *inputs)
        if method != "__call__" or kwargs or (out is not None and out != (self,) and out[0] is not self):
            raise _refused(f"np.{ufunc.__name__}.{method}")
        if ufunc is np.matmul:
            return _product(*inputs)
        result = _elementwise(lambda *arrays: call_ufunc(ufunc, "__call__", arrays, {}), inputs)
        if out is None:
            return result
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise _refused(f"writing {result.dtype} into {self.dtype}")
        self.assign(result)
        return self

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del types
        if function in _REDUCTIONS and args and args[0] is self:
            return self._reduced(function, *args[1:], **kwargs)
        if function in (np.dot, np.inner) and len(args) == 2 and not kwargs:
            return _product(*args)
        if function is np.outer and len(args) == 2 and not kwargs:
            return _outer(np.multiply, *args)
        if function is np.flip and args == (self,) and self.ndim == 1 and not kwargs:
            return self[::-1]
        raise _refused(f"np.{getattr(function, '__name__', function)}")

    def __getitem__(self, index: Any) -> Any:
        entries, kept = self._entries(index)
        part = self.array[tuple(entries)]
        if not kept:
            return part
        spans = {place - len(entries) + sum(map(_is_position, entries[place:])): kept[place] for place in kept}
        inner = part if isinstance(part, Ragged) else Ragged(part, {})
        return Ragged(inner.array, {**inner.spans, **spans})

    def __setitem__(self, index: Any, value: Any) -> None:
        entries, kept = self._entries(index)
        if not kept:
            self.array[tuple(entries)] = value
            return
        part = self[index]
        if not (isinstance(value, Ragged) and same_place(value.array.cell, part.array.cell)):
            part.assign(value)

    def _entries(self, index: Any) -> tuple[list[Any], dict[int, Span]]:
        """An index of the window, and the spans of its entries that are parts of such axes."""
        given: list[Any] = list(index) if isinstance(index, tuple) else [index]  # pyright: ignore[reportUnknownArgumentType]
        used = sum(item is not None and item is not Ellipsis for item in given)
        if used > self.ndim:
            raise _refused("such an index")
        at = next((place for place, item in enumerate(given) if item is Ellipsis), len(given))
        given[at : at + 1] = [slice(None)] * (self.ndim - used)
        entries: list[Any] = []
        kept: dict[int, Span] = {}
        axis = -self.ndim
        for item in given:
            span = None if item is None else self.spans.get(axis)
            axis += item is not None
            if span is None:
                if not (item is None or isinstance(item, slice) or _is_position(item)):
                    raise _refused("such an index")
                entries.append(item)
            elif isinstance(item, slice):
                turned = is_turned(item)
                start, size = window(item, span.length)
                part = Span(span.first + start, size)
                kept[len(entries)] = part.turned(self.array.shape[axis - 1]) if turned else part
                entries.append(slice(None, None, -1) if turned else slice(None))
            else:
                entries.append(_position(item, span))
        return entries, kept

    def __getattr__(self, name: str) -> Any:
        function = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min}.get(name)
        if function is not None:
            return lambda *args, **kwargs: self._reduced(function, *args, **kwargs)
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        raise _refused(f"its {name}")

    def dot(self, other: Any) -> Any:
        """As `np.dot`."""
        return _product(self, other)

    def copy(self) -> Ragged:
        """As of an array."""
        return Ragged(fresh(self.array.value, is_scalar=False), self.spans)

    def astype(self, dtype: Any) -> Ragged:
        """As of an array."""
        return Ragged(self.array.astype(dtype), self.spans)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise _refused("making an array of it")

    def __len__(self) -> int:
        raise _refused("its len()")

    def __iter__(self) -> Any:
        raise _refused("iterating over it")

    def __bool__(self) -> bool:
        raise _refused("its truth value")

    # what it is made of

    def mask(self, axes: Sequence[int] | None = None) -> TracerArray:
        """Which elements of the window are its own, along these axes or all; of a shape that broadcasts to it."""
        masks = [
            _between(span, self.array.shape[axis], axis)
            for axis, span in self.spans.items()
            if axes is None or axis in axes
        ]
        joined: Any = masks[0]
        for other in masks[1:]:
            joined = np.logical_and(joined, other)
        return joined

    def with_others(self, number: Any, axes: Sequence[int]) -> TracerArray:
        """The window, with a number in place of what is not its own along these axes."""
        held = [axis for axis in axes if axis in self.spans]
        return call(np.where, self.mask(held), self.array, self.dtype.type(number)) if held else self.array

    def assign(self, value: Any) -> None:
        """Set its elements, as an assignment does."""
        (new,) = _aligned([value], self.spans, self.array.shape)
        wide = broadcast(value_of(new, self.dtype), self.array.shape)
        mask = broadcast(self.mask().value, self.array.shape)
        chosen = call(np.where, fresh(mask), fresh(wide, is_scalar=False), self.array)
        write(TracerArray(self.array.cell), chosen.value, "assignment to an index")

    def _reduced(self, function: Any, axis: Any = None, **kwargs: Any) -> Any:
        if kwargs or (axis is not None and type(axis) is not int):
            raise _refused(f"np.{function.__name__} with such arguments")
        taken = list(range(-self.ndim, 0)) if axis is None else [axis if axis < 0 else axis - self.ndim]
        own = [one for one in taken if one in self.spans]
        extra: dict[str, Any] = {"where": self.mask(own)} if own else {}
        if own and function in _EXTREMA:
            if any(_least(self.spans[one].length) < 1 for one in own):
                raise _refused("the extreme of what may have no elements")
            extra["initial"] = combiner_identity(_EXTREMA[function], self.array.cell.type.dtype)
        result = call(function, self.array, axis=axis, **extra)
        kept = [one for one in range(-self.ndim, 0) if one not in taken]
        spans = {place - len(kept): self.spans[one] for place, one in enumerate(kept) if one in self.spans}
        return Ragged(result, spans) if spans else result


def taken(view: Callable[[Sequence[Any]], TracerArray], entries: Sequence[Any], spans: Mapping[int, Any]) -> Ragged:
    """The slice at index `entries`. `spans`: by position of an entry, the start, stop and window of its slice."""
    held = [slice(*spans[place][2]) if place in spans else entry for place, entry in enumerate(entries)]
    axes = [place for place, entry in enumerate(entries) if entry is None or isinstance(entry, slice)]
    found = {
        axes.index(place) - len(axes): Span(start - window[0], stop - start)
        for place, (start, stop, window) in spans.items()
    }
    turned = {place: is_turned(entries[place]) for place in spans}
    if not any(turned.values()):
        return Ragged(view(held), found)
    return Ragged(view(held), found)[tuple(_WHOLE[turned.get(place, False)] for place in axes)]


def _elementwise(function: Callable[..., Any], operands: Sequence[Any]) -> Ragged:
    spans, shape = _common(operands)
    return Ragged(function(*_aligned(operands, spans, shape)), spans)


def _common(operands: Sequence[Any]) -> tuple[Spans, tuple[int, ...]]:
    """The spans of a result, and its windows' extents along those axes."""
    spans: dict[int, Span] = {}
    windows: dict[int, int] = {}
    for operand in operands:
        if isinstance(operand, Ragged):
            for axis, span in operand.spans.items():
                if axis not in spans or operand.array.shape[axis] > windows[axis]:
                    spans[axis], windows[axis] = span, operand.array.shape[axis]
    rank = max(np.ndim(operand) if not isinstance(operand, Ragged) else operand.ndim for operand in operands)
    return spans, tuple(windows.get(axis, 1) for axis in range(-rank, 0))


def _aligned(operands: Sequence[Any], spans: Spans, shape: Sequence[int]) -> list[Any]:
    """Operands as arrays whose elements stand where `spans` says. Raises CannotRollError for those of other lengths."""
    return [_one_aligned(operand, spans, shape) for operand in operands]


def _one_aligned(operand: Any, spans: Spans, shape: Sequence[int]) -> Any:
    if not isinstance(operand, Ragged):
        if not isinstance(operand, TracerArray | np.ndarray | np.generic | int | float):
            raise _refused(f"combining it with a {type(operand).__name__}")
        extents = np.shape(operand) if not isinstance(operand, TracerArray) else operand.shape
        if any(-axis <= len(extents) and extents[axis] != 1 for axis in spans):
            raise _refused("combining it with an array of fixed length")
        return operand if isinstance(operand, Number | int | float) else as_tracer(operand)
    array = operand.array
    for axis, span in operand.spans.items():
        if axis not in spans or not span.is_long_as(spans[axis]):
            raise _refused("combining it with a slice of another length")
        if not _is_zero(span.first - spans[axis].first) or array.shape[axis] != shape[axis]:
            array = _moved(array, axis, span.first - spans[axis].first, shape[axis])
    for axis in spans:
        if axis not in operand.spans and -axis <= array.ndim and array.shape[axis] != 1:
            raise _refused("combining it with an array of fixed length")
    return array


def _moved(array: TracerArray, axis: int, by: Any, window: int) -> TracerArray:
    """Elements `by` further along an axis, in a window of another extent; others repeat the ends."""
    places = call(np.clip, call(np.arange, window) + by, 0, array.shape[axis] - 1)
    return call(np.take, array, places, axis=axis)


def _product(a: Any, b: Any) -> Any:
    """`a @ b` of vectors and matrices."""
    sides = [side if isinstance(side, Ragged) else Ragged(as_tracer(side), {}) for side in (a, b)]
    first, second = sides
    if not (1 <= first.ndim <= 2 and 1 <= second.ndim <= 2):
        raise _refused("such a product")
    over = -1 if second.ndim == 1 else -2
    spans = first.spans.get(-1), second.spans.get(over)
    left, right = first.array, second.array
    if spans[0] is not None and spans[1] is not None:
        if not spans[0].is_long_as(spans[1]):
            raise _refused("a product of slices of other lengths")
        window = left.shape[-1]
        if not _is_zero(spans[1].first - spans[0].first) or right.shape[over] != window:
            right = _moved(right, over, spans[1].first - spans[0].first, window)
        left = first.with_others(0, [-1])
        right = Ragged(right, {over: spans[0]}).with_others(0, [over])  # one mask for both
    elif spans != (None, None):
        raise _refused("a product with an array of fixed length")
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


def _outer(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    sides = [side if isinstance(side, Ragged) else Ragged(as_tracer(side), {}) for side in (a, b)]
    if any(side.ndim != 1 for side in sides):
        raise _refused("such an outer product")
    return ufunc(sides[0][:, None], sides[1][None, :])


def _between(span: Span, window: int, axis: int) -> TracerArray:
    places = call(np.arange, window)
    inside = np.logical_and(places >= span.first, places < span.first + span.length)
    return call(np.reshape, inside, (window, *(1,) * (-1 - axis)))


def _is_zero(difference: Any) -> bool:
    return type(difference) is int and difference == 0


def _least(length: Any) -> int:
    low = length.low if isinstance(length, Number) else length
    return 0 if low is None else low


_WHOLE = (slice(None), slice(None, None, -1))
"""All of an axis, from its start and from its end."""


def _is_position(item: Any) -> bool:
    """Whether an entry of an index takes one element, and its axis away."""
    return isinstance(item, int | np.integer | Number) and not isinstance(item, bool)


def _position(item: Any, span: Span) -> Any:
    """The place in the window of one element of a span. Raises CannotRollError where there may be none."""
    if not _is_position(item):
        raise _refused("such an index")
    _, high = ends(item)
    if high is not None and high < 0:
        item += span.length
    if not (not_below(item, 0) and not_below(span.length - 1, item)):
        raise CannotRollError("its index may be out of bounds", first=True, last=True)
    return span.first + item


def _refused(what: str) -> CannotRollError:
    return CannotRollError(f"the length of a slice changes with the iteration, and so does {what}")
