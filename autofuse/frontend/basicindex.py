"""Basic indices as views: slices and places, also those that move with a loop's counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend import integerindexing
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.promotion import convert
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.positions import position, run_of
from autofuse.frontend.rolling.windows import Spread, SpreadStep
from autofuse.frontend.steps import DynamicSliceStep, ReshapeStep, ReverseStep, SliceStep, Step
from autofuse.frontend.tracer import TracerArray


def basic_steps(shape: tuple[int, ...], entries: Sequence[Any]) -> list[Step]:
    """The view steps of a basic index."""
    index = _BasicIndex()
    extents = iter(shape)
    for entry in entries:
        if entry is None:
            index.final.append(1)
        else:
            index.add(entry, next(extents))
    return index.steps(shape)


class _BasicIndex:
    """Entries of a basic index for one dimension after the other."""

    def __init__(self) -> None:
        self.final: list[int] = []
        """The shape of the view."""
        self._fixed: list[tuple[int, int, int]] = []
        """The start, limit and stride of each dimension, where it does not move."""
        self._moving: dict[int, tuple[Any, int]] = {}
        self._apart: dict[int, int] = {}
        """Strides of slices that move."""
        self._spread: dict[int, Spread] = {}
        self._backwards: list[int] = []

    def add(self, entry: Any, extent: int) -> None:
        """The next dimension's entry: a slice, a Spread, or a place."""
        dimension = len(self._fixed)
        self._fixed.append((0, extent, 1))
        if isinstance(entry, slice) and moves(entry):
            self._add_moving(entry, extent)
        elif isinstance(entry, slice):
            low, high, step, reverse, size = _span(entry, extent)
            self._fixed[-1] = low, high, step
            self.final.append(size)
            self._backwards += [dimension] * reverse
        elif isinstance(entry, Spread):
            self._spread[dimension] = entry
            self.final.append(entry.count)
        elif isinstance(entry, TracerArray):
            self._moving[dimension] = _place(entry, extent, dimension), 1
        else:
            self._fixed[-1] = _point(entry, extent, dimension)

    def _add_moving(self, entry: slice, extent: int) -> None:
        dimension, run = len(self._fixed) - 1, run_of(entry, extent)
        count = _fixed(run.count)
        self.final.append(count)
        self._backwards += [dimension] * run.turned
        if not count:
            self._fixed[-1] = 0, 0, 1
        elif isinstance(run.step, Number):
            self._spread[dimension] = Spread(run.start, run.step, count, count)
        else:
            self._moving[dimension] = run.start, run.hull
            self._apart[dimension] = run.step

    def steps(self, shape: tuple[int, ...]) -> list[Step]:
        """The steps, one after the other."""
        start, limit, stride = zip(*self._fixed, strict=True) if self._fixed else ((), (), ())
        kept = [len(range(*part)) for part in self._fixed]
        kept = [self._moving[d][1] if d in self._moving else extent for d, extent in enumerate(kept)]
        steps = _slices(shape, SliceStep(start, limit, stride), self._moving)
        strides = tuple(self._apart.get(d, 1) for d in range(len(kept)))
        steps += _needed(tuple(kept), SliceStep((0,) * len(kept), tuple(kept), strides))
        kept = [-(-extent // by) for extent, by in zip(kept, strides, strict=True)]
        for dimension, spread in self._spread.items():
            steps.append(SpreadStep(dimension, spread))
            kept[dimension] = spread.count
        if self._backwards:
            steps.append(ReverseStep(tuple(self._backwards)))
        if kept != self.final:
            steps.append(ReshapeStep(tuple(self.final)))
        return steps


def moves(entry: slice) -> bool:
    """Whether a bound of a slice depends on the iteration of a loop."""
    return any(isinstance(part, Number) for part in (entry.start, entry.stop, entry.step))


def _fixed(size: Any) -> int:
    if isinstance(size, Number):
        raise CannotRollError("the length of a slice depends on the iteration")
    return size


def _place(index: TracerArray, extent: int, dimension: int) -> TracerArray:
    place = position(index, extent) if isinstance(index, Number) else None
    return integerindexing.wrapped(index, extent, dimension) if place is None else place


def _slices(shape: tuple[int, ...], fixed: SliceStep, moving: Mapping[int, tuple[Any, int]]) -> list[Step]:
    """A slice at fixed places, and of the dimensions in `moving` at those starts and of those sizes."""
    if not moving:
        return _needed(shape, fixed)
    places = [place for place, _ in moving.values() if isinstance(place, TracerArray)]
    dtype = places[0].dtype if len({place.dtype for place in places}) == 1 else np.dtype(np.int64)
    values = {
        dimension: convert(place.value, dtype) if isinstance(place, TracerArray) else place
        for dimension, (place, _) in moving.items()
    }
    if not places or any(step != 1 for step in fixed.stride):
        steps = _needed(shape, fixed)
        start, sizes = (
            [0] * len(shape),
            [len(range(*t)) for t in zip(fixed.start, fixed.limit, fixed.stride, strict=True)],
        )
    else:
        steps = list[Step]()
        start, sizes = list(fixed.start), [b - a for a, b in zip(fixed.start, fixed.limit, strict=True)]
    starts = tuple(values.get(d, at) for d, at in enumerate(start))
    wanted = tuple(moving[d][1] if d in moving else size for d, size in enumerate(sizes))
    if places:
        return [*steps, DynamicSliceStep(starts, wanted)]
    held = tuple(at for at in starts if isinstance(at, int))
    limits = tuple(at + size for at, size in zip(held, wanted, strict=True))
    return [*steps, SliceStep(held, limits, (1,) * len(held))]


def _needed(shape: tuple[int, ...], step: SliceStep) -> list[Step]:
    whole = all(
        (low, high, by) == (0, extent, 1)
        for low, high, by, extent in zip(step.start, step.limit, step.stride, shape, strict=True)
    )
    return [] if whole else [step]


def _span(entry: slice, extent: int) -> tuple[int, int, int, bool, int]:
    """A slice as start, limit, positive stride, whether it runs backwards, and its size."""
    indices = range(*entry.indices(extent))
    size = len(indices)
    if not size:
        return 0, 0, 1, False, 0
    low, high = min(indices[0], indices[-1]), max(indices[0], indices[-1])
    step = abs(indices.step) if size > 1 else 1
    return low, high + 1, step, indices.step < 0 and size > 1, size


def _point(entry: int, extent: int, dimension: int) -> tuple[int, int, int]:
    if not -extent <= entry < extent:
        raise IndexError(f"index {entry} is out of bounds for axis {dimension} with size {extent}")
    at = entry % extent
    return at, at + 1, 1
