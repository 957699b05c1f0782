"""Axis arguments: one axis, several, or None for all, with negative counting, as NumPy reads them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

UNSET: Any = np._NoValue  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]  # NumPy's "not given"


def given(value: Any, default: Any) -> Any:
    """An argument, or what stands for it where none was given."""
    return default if value is UNSET else value


def one_axis(axis: Any, rank: int) -> int:
    """A single axis, counted from the front. Raises AxisError (an IndexError) when out of range."""
    return normalize_axis_index(operator.index(axis), rank)


def axes_of_reduction(axis: Any, rank: int) -> tuple[int, ...]:
    """As `many_axes`, for reductions of ufuncs: rank 0 has an axis 0, or -1, over which nothing is reduced."""
    return () if rank == 0 and axis in (0, -1) else many_axes(axis, rank)


def many_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Axes in ascending order; None means all. Raises AxisError when out of range, ValueError when repeated."""
    if axis is None:
        return tuple(range(rank))
    listed = cast("Sequence[Any]", axis) if isinstance(axis, tuple | list) else (axis,)
    found = sorted(one_axis(item, rank) for item in listed)
    if len(set(found)) != len(found):
        raise ValueError("duplicate value in 'axis'")
    return tuple(found)


def static_shape(shape: Any) -> tuple[int, ...]:
    """A shape argument: an int or a sequence of ints (or of traced integers whose value is known)."""
    if isinstance(shape, tuple | list):
        return tuple(operator.index(extent) for extent in cast("Sequence[Any]", shape))
    if hasattr(shape, "ndim") and shape.ndim:
        return tuple(operator.index(extent) for extent in shape)
    return (operator.index(shape),)


def kept(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` with extent 1 along `axes`, for keepdims."""
    return tuple(1 if d in axes else extent for d, extent in enumerate(shape))
