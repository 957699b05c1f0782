"""Slices whose length changes with a loop's counter: `C[i, :i + 1]`, `A[k + 1 :, k]`.

Such a slice is the window that holds all of its elements in every iteration, and along each such axis where its own
elements begin and how many they are. Elementwise work is done on the whole windows, harmlessly; reductions and products
take only its own elements, others being replaced by what changes nothing; writes leave others as they were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from autofuse.frontend import integerindexing
from autofuse.frontend.cells import Cell, View, same_place
from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.operators import call_ufunc
from autofuse.frontend.promotion import as_tracer, broadcast, value_of
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.positions import Run, ends, not_below, run_of
from autofuse.frontend.rolling.windows import Span, SpreadStep, held, is_zero
from autofuse.frontend.tracer import TracerArray, fresh, write

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""NumPy's functions of such slices (`raggedfunctions`)."""
_METHODS = frozenset(
    "all any argmax argmin clip cumprod cumsum dot max mean min prod round std sum var".split()  # noqa: SIM905
)
"""Those that are methods of arrays, too."""
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
            raise refused("transposing it")
        return self if self.ndim == 1 else Ragged(self.array.T, {-3 - axis: span for axis, span in self.spans.items()})

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if method == "outer" and not kwargs and out is None:
            return outer(ufunc, *inputs)
        if method == "at" and isinstance(inputs[0], TracerArray):
            return call_ufunc(ufunc, "at", inputs, {})
        if method != "__call__" or kwargs or (out is not None and out != (self,) and out[0] is not self):
            raise refused(f"np.{ufunc.__name__}.{method}")
        if ufunc is np.matmul:
            return FUNCTIONS[np.matmul](*inputs)
        result = elementwise(lambda *arrays: call_ufunc(ufunc, "__call__", arrays, {}), inputs)
        if out is None:
            return result
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise refused(f"writing {result.dtype} into {self.dtype}")
        self.assign(result)
        return self

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del types
        if function not in FUNCTIONS:
            raise refused(f"np.{getattr(function, '__name__', function)}")
        return FUNCTIONS[function](*args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        entries, kept = self._entries(index)
        part = self.array[tuple(entries)]
        if not kept:
            return part
        spans = {place - len(entries) + sum(map(is_position, entries[place:])): kept[place] for place in kept}
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
            raise refused("such an index")
        at = next((place for place, item in enumerate(given) if item is Ellipsis), len(given))
        given[at : at + 1] = [slice(None)] * (self.ndim - used)
        entries: list[Any] = []
        kept: dict[int, Span] = {}
        axis = -self.ndim
        for item in given:
            span = None if item is None else self.spans.get(axis)
            axis += item is not None
            if span is None:
                if not (item is None or isinstance(item, slice) or is_position(item)):
                    raise refused("such an index")
                entries.append(item)
            elif isinstance(item, slice):
                entry, kept[len(entries)] = self._part(item, span, self.array.shape[axis - 1])
                entries.append(entry)
            else:
                entries.append(_position(item, span))
        return entries, kept

    def _part(self, item: slice, span: Span, window: int) -> tuple[Any, Span]:
        """A slice of an axis with a span: an entry for the window, and its span."""
        run = run_of(item, span.length)
        if not is_zero(run.step - 1):
            return held(Run(span.first + run.start, run.count, run.step, run.turned), window)
        part = Span(span.first + run.start, run.count)
        return _WHOLE[run.turned], part.turned(window) if run.turned else part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        function = getattr(np, name, None)
        if name not in _METHODS or function not in FUNCTIONS:
            raise refused(f"its {name}")
        return functools.partial(FUNCTIONS[function], self)

    def copy(self) -> Ragged:
        """As of an array."""
        return Ragged(fresh(self.array.value, is_scalar=False), self.spans)

    def astype(self, dtype: Any) -> Ragged:
        """As of an array."""
        return Ragged(self.array.astype(dtype), self.spans)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise refused("making an array of it")

    def __len__(self) -> int:
        raise refused("its len()")

    def __iter__(self) -> Any:
        raise refused("iterating over it")

    def __bool__(self) -> bool:
        raise refused("its truth value")

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
        if not _is_written_alone(self.array.cell, self.spans):
            mask = broadcast(self.mask().value, self.array.shape)
            wide = call(np.where, fresh(mask), fresh(wide, is_scalar=False), self.array).value
        write(TracerArray(self.array.cell), wide, "assignment to an index")


def _is_written_alone(window: Cell, spans: Spans) -> bool:
    """Whether a window's elements that are none of its slice's are not written."""
    match window:
        case View(parent=parent, step=SpreadStep() as step) if step.writes_alone(parent.type.shape):
            return is_zero(spans[-1].first) and spans[-1].is_long_as(Span(0, step.spread.length))
        case _:
            return False


def taken(
    view: Callable[[Sequence[Any]], TracerArray], entries: Sequence[Any], spans: Mapping[int, tuple[Any, Span]]
) -> Ragged:
    """The slice at index `entries`. `spans`: by position of an entry, its window and where the slice lies in it."""
    windows = [spans[place][0] if place in spans else entry for place, entry in enumerate(entries)]
    axes = [place for place, entry in enumerate(entries) if entry is None or isinstance(entry, slice)]
    return Ragged(view(windows), {axes.index(place) - len(axes): span for place, (_, span) in spans.items()})


def as_ragged(operand: Any) -> Ragged:
    """A slice, or an array as one without spans."""
    return operand if isinstance(operand, Ragged) else Ragged(as_tracer(operand), {})


def outer(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    """`ufunc.outer` of two vectors."""
    sides = [as_ragged(side) for side in (a, b)]
    if any(side.ndim != 1 for side in sides):
        raise refused("such an outer product")
    return ufunc(sides[0][:, None], sides[1][None, :])


def of_shape(shape: Sequence[Any], make: Callable[[tuple[int, ...]], TracerArray]) -> Ragged:
    """An array whose shape moves, in a window that `make` makes."""
    window: list[int] = []
    spans: dict[int, Span] = {}
    for axis, extent in enumerate(shape):
        low, high = ends(extent)
        if low is None or high is None or low < 0:
            raise CannotRollError("it makes an array of unknown size")
        window.append(high)
        if isinstance(extent, Number):
            spans[axis - len(shape)] = Span(0, extent)
    return Ragged(make(tuple(window)), spans)


def looked_up(array: TracerArray, index: Ragged) -> Ragged:
    """`array[index]` of integers: other elements of the window look up the first one."""
    if index.dtype.kind not in "iu":
        raise refused("an index of it that is no integers")
    behind = array.ndim - 1
    found = call(np.take, array, index.with_others(0, list(index.spans)), 0)
    return Ragged(found, {axis - behind: span for axis, span in index.spans.items()})


def put(array: TracerArray, index: Ragged, value: Any, combiner: str = "set") -> None:
    """`array[index] = value` of integers, or combined with what is there."""
    if index.dtype.kind not in "iu" or index.ndim != 1 or not array.ndim:
        raise refused("an index of it that is no vector of integers")
    spans = {axis - array.ndim + 1: span for axis, span in index.spans.items()}
    (new,) = _aligned([value], spans, (*index.array.shape, *array.shape[1:]))
    integerindexing.put_where(array, index.array, index.mask(), new, combiner)


def elementwise(function: Callable[..., Any], operands: Sequence[Any]) -> Ragged:
    """A function of operands of one shape, element by element."""
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
            raise refused(f"combining it with a {type(operand).__name__}")
        extents = np.shape(operand) if not isinstance(operand, TracerArray) else operand.shape
        if any(-axis <= len(extents) and extents[axis] != 1 for axis in spans):
            raise refused("combining it with an array of fixed length")
        return operand if isinstance(operand, Number | int | float) else as_tracer(operand)
    array = operand.array
    for axis, span in operand.spans.items():
        if axis not in spans or not span.is_long_as(spans[axis]):
            raise refused("combining it with a slice of another length")
        if not is_zero(span.first - spans[axis].first) or array.shape[axis] != shape[axis]:
            array = moved(array, axis, span.first - spans[axis].first, shape[axis])
    for axis in spans:
        if axis not in operand.spans and -axis <= array.ndim and array.shape[axis] != 1:
            raise refused("combining it with an array of fixed length")
    return array


def moved(array: TracerArray, axis: int, by: Any, window: int) -> TracerArray:
    """Elements `by` further along an axis, in a window of another extent; others repeat the ends."""
    places = call(np.clip, call(np.arange, window) + by, 0, array.shape[axis] - 1)
    return call(np.take, array, places, axis=axis)


def _between(span: Span, window: int, axis: int) -> TracerArray:
    places = call(np.arange, window)
    inside = np.logical_and(places >= span.first, places < span.first + span.length)
    return call(np.reshape, inside, (window, *(1,) * (-1 - axis)))


_WHOLE = (slice(None), slice(None, None, -1))
"""All of an axis, from its start and from its end."""


def is_position(item: Any) -> bool:
    """Whether an entry of an index takes one element, and its axis away."""
    return isinstance(item, int | np.integer | Number) and not isinstance(item, bool)


def _position(item: Any, span: Span) -> Any:
    """The place in the window of one element of a span. Raises CannotRollError where there may be none."""
    if not is_position(item):
        raise refused("such an index")
    _, high = ends(item)
    if high is not None and high < 0:
        item += span.length
    if not (not_below(item, 0) and not_below(span.length - 1, item)):
        raise CannotRollError("its index may be out of bounds", first=True, last=True)
    return span.first + item


def refused(what: str) -> CannotRollError:
    """That something cannot be done with such slices."""
    return CannotRollError(f"the length of a slice changes with the iteration, and so does {what}")
