"""Reductions and transposes as XLA:GPU's emitters see them: dimensions that stay neighbours are one.

Dimensions of one element are left out. Sources: XLA, reduction_utils.cc, ir_emission_utils.cc and gpu_fusible.cc. What
stands here is the same in both versions that are modelled, before priority fusion and with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from math import prod

from autofuse.lazydataclass import dataclass

WARP = 32
"""Threads of a warp."""
SLOW_COLUMNS = ((WARP, None), (2 * WARP, WARP), (4 * WARP, 8), (8 * WARP, 3))
"""A column reduction is slow over fewer rows than the first number if it has fewer columns than the second."""


@dataclass(frozen=True, slots=True)
class GroupedReduction:
    """A reduction with its dimensions grouped: of a row reduction D and W are reduced, of a column reduction H."""

    is_row: bool
    """Whether the minor-most dimension is reduced."""
    d: int
    h: int
    w: int

    @property
    def is_worthwhile(self) -> bool:
        """Whether the emitter for reductions beats a loop (IsUnnestedReductionFasterThanElemental)."""
        if self.is_row:
            return self.w >= WARP or (self.w > 0 and WARP % self.w == 0)
        return not any(self.h < rows and (columns is None or self.w < columns) for rows, columns in SLOW_COLUMNS)


def grouped_reduction(shape: Sequence[int], dimensions: Collection[int]) -> GroupedReduction | None:
    """The reduction of these dimensions of such a shape; None if they do not group, or if the shape is empty."""
    if 0 in shape:
        return None
    axes = [(axis in dimensions, extent) for axis, extent in enumerate(shape) if extent != 1]
    runs = [(reduced, prod(extent for _, extent in run)) for reduced, run in groupby(axes, key=lambda axis: axis[0])]
    extents = tuple(extent for _, extent in runs)
    match [reduced for reduced, _ in runs]:
        case [True]:
            return GroupedReduction(True, 1, 1, *extents)
        case [False, True]:
            return GroupedReduction(True, 1, *extents)
        case [True, False, True]:
            return GroupedReduction(True, *extents)
        case [True, False]:
            return GroupedReduction(False, 1, *extents)
        case [False, True, False]:
            return GroupedReduction(False, *extents)
        case _:
            return None


def grouped_transpose(shape: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The operand's shape and the permutation of a transpose, its dimensions grouped."""
    order = [axis for axis in permutation if shape[axis] != 1]
    rank = {axis: number for number, axis in enumerate(sorted(order))}
    runs = [
        [axis for _, axis in run] for _, run in groupby(enumerate(order), key=lambda entry: rank[entry[1]] - entry[0])
    ]
    stored = sorted(runs)
    return tuple(prod(shape[axis] for axis in run) for run in stored), tuple(stored.index(run) for run in runs)
