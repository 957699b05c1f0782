"""Reductions and transposes with their dimensions grouped, as XLA:GPU's emitters see them.

Sources: reduction_utils.cc, ir_emission_utils.cc. Not modelled: packed transposes of types below 32 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from autofuse.search.rules.priority.instructions import Instruction

_WARP = 32
_LEAST_TRANSPOSED = 256
"""Least product of the two extents that a tiled transpose exchanges."""
_MOST_KEPT_BYTES = 8
"""Largest last dimension that a tiled transpose moves as it is."""
MOST_BATCHES, MOST_ROW, MOST_COLUMN = 8, 1024 * 16, 32 * 128
"""Largest D, W and H of reductions that need no second pass (ReductionIsRaceFree)."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction with its dimensions grouped: a row reduction folds D and W, a column reduction H."""

    is_row: bool
    d: int
    h: int
    w: int

    @property
    def is_worthwhile(self) -> bool:
        """Whether the emitter for reductions beats a loop (IsUnnestedReductionFasterThanElemental)."""
        if self.is_row:
            return self.w >= _WARP or (self.w > 0 and _WARP % self.w == 0)
        tall = ((_WARP, None), (2 * _WARP, _WARP), (4 * _WARP, 8), (8 * _WARP, 3))
        return not any(self.h < height and (width is None or self.w < width) for height, width in tall)

    @property
    def is_race_free(self) -> bool:
        """Whether no two blocks add to one result."""
        return self.w <= MOST_ROW and self.d <= MOST_BATCHES if self.is_row else self.h <= MOST_COLUMN


@dataclass(frozen=True, slots=True)
class Exchange:
    """A transpose with dimensions that stay neighbours made one, and single ones left out."""

    shape: tuple[int, ...]
    """Of the operand."""
    permutation: tuple[int, ...]
    itemsize: int

    @property
    def kept(self) -> int:
        """Extent of the last dimension if it stays last, else 1."""
        return self.shape[-1] if self.permutation[-1] == len(self.shape) - 1 else 1

    @property
    def exchanged(self) -> tuple[int, int]:
        """The extents that are innermost before and after, but for `kept`."""
        at = -2 if self.permutation[-1] == len(self.shape) - 1 else -1
        return self.shape[at], self.shape[self.permutation[at]]

    @property
    def is_tiled(self) -> bool:
        """Whether it goes through shared memory (GetDescriptionForTiledTransposeEmitter)."""
        small = self.kept == 1 or self.kept * self.itemsize <= _MOST_KEPT_BYTES
        return small and prod(self.exchanged) >= _LEAST_TRANSPOSED


def fold_of(instruction: Instruction) -> Fold | None:
    """The grouped dimensions of a reduction; None for other instructions, and if its dimensions do not group."""
    if instruction.opcode == "reduce":
        return grouped(instruction.operands[0].type.shape, instruction.attrs["dimensions"])
    if instruction.is_variadic:
        return grouped(instruction.operands[0].type.shape, (instruction.attrs["dimension"],))
    return None


def grouped(shape: Sequence[int], reduced: Collection[int]) -> Fold | None:
    """The grouped dimensions of a reduction of such a shape; None if they do not group."""
    if 0 in shape:
        return None
    axes = [(axis in reduced, extent) for axis, extent in enumerate(shape) if extent != 1]
    runs = [(folded, prod(extent for _, extent in run)) for folded, run in groupby(axes, key=lambda axis: axis[0])]
    extents = tuple(extent for _, extent in runs)
    match [folded for folded, _ in runs]:
        case [True]:
            return Fold(True, 1, 1, *extents)
        case [False, True]:
            return Fold(True, 1, *extents)
        case [True, False, True]:
            return Fold(True, *extents)
        case [True, False]:
            return Fold(False, 1, *extents)
        case [False, True, False]:
            return Fold(False, *extents)
        case _:
            return None


def emitted_fold(instruction: Instruction) -> Fold | None:
    """The grouped dimensions of a reduction, if the emitter for reductions is worthwhile for it."""
    fold = fold_of(instruction)
    return fold if fold is not None and fold.is_worthwhile else None


def exchange_of(instruction: Instruction) -> Exchange | None:
    """The grouped dimensions of a transpose that is written in tiles; None for all else."""
    if instruction.opcode != "transpose" or not instruction.type.size:
        return None
    shape = instruction.operands[0].type.shape
    order = [axis for axis in instruction.attrs["permutation"] if shape[axis] != 1]
    rank = {axis: number for number, axis in enumerate(sorted(order))}
    runs = [
        [axis for _, axis in run] for _, run in groupby(enumerate(order), key=lambda entry: rank[entry[1]] - entry[0])
    ]
    if len(runs) < 2:
        return None
    stored = sorted(runs)
    exchange = Exchange(
        tuple(prod(shape[axis] for axis in run) for run in stored),
        tuple(stored.index(run) for run in runs),
        instruction.type.dtype.itemsize,
    )
    return exchange if exchange.is_tiled else None
