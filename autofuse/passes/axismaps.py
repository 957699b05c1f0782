"""Which axes of one shape become which axes of another: for moving views past each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise


def runs(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The finest runs of axes with equal products in two shapes of equal, nonzero size; unit axes are left out."""
    i = j = 0
    wide_left = [axis for axis, extent in enumerate(left) if extent != 1]
    wide_right = [axis for axis, extent in enumerate(right) if extent != 1]
    while i < len(wide_left):
        first = i, j
        a, b = left[wide_left[i]], right[wide_right[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= left[wide_left[i]]
                i += 1
            else:
                b *= right[wide_right[j]]
                j += 1
        yield tuple(wide_left[first[0] : i]), tuple(wide_right[first[1] : j])


def unit_moves(left: Sequence[int], right: Sequence[int]) -> dict[int, int] | None:
    """The axis of `right` that each wide axis of `left` becomes, if the shapes differ in unit axes alone."""
    wide_left = [axis for axis, extent in enumerate(left) if extent != 1]
    wide_right = [axis for axis, extent in enumerate(right) if extent != 1]
    if [left[axis] for axis in wide_left] != [right[axis] for axis in wide_right]:
        return None
    return dict(zip(wide_left, wide_right, strict=True))


def ascending(values: Sequence[int]) -> bool:
    """Whether each value is greater than the one before."""
    return all(a < b for a, b in pairwise(values))


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Where each axis goes, given where each comes from."""
    places = [0] * len(permutation)
    for place, axis in enumerate(permutation):
        places[axis] = place
    return tuple(places)
