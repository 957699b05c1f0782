"""Which reductions and transposes have an emitter of their own in XLA:GPU, with their dimensions grouped.

Sources: reduction_utils.cc, ir_emission_utils.cc. Not modelled: packed transposes of types below 32 bits.
"""

from __future__ import annotations

from math import prod

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.grouped_dimensions import GroupedReduction, grouped_reduction, grouped_transpose
from autofuse.search.rules.priority.instructions import Instruction

_LEAST_TRANSPOSED = 256
"""Least product of the two extents that a tiled transpose exchanges."""
_MOST_KEPT_BYTES = 8
"""Largest last dimension that a tiled transpose moves as it is."""
MOST_BATCHES, MOST_ROW, MOST_COLUMN = 8, 1024 * 16, 32 * 128
"""Largest D, W and H of reductions that need no second pass (ReductionIsRaceFree)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A transpose with its dimensions grouped."""

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


def reduction_of(instruction: Instruction) -> GroupedReduction | None:
    """The grouped dimensions of a reduction; None for other instructions, and if its dimensions do not group."""
    if instruction.opcode == "reduce":
        return grouped_reduction(instruction.operands[0].type.shape, instruction.attrs["dimensions"])
    if instruction.is_variadic:
        return grouped_reduction(instruction.operands[0].type.shape, (instruction.attrs["dimension"],))
    return None


def emitted_reduction(instruction: Instruction) -> GroupedReduction | None:
    """The grouped dimensions of a reduction, if the emitter for reductions is worthwhile for it."""
    reduction = reduction_of(instruction)
    return reduction if reduction is not None and reduction.is_worthwhile else None


def is_race_free(reduction: GroupedReduction) -> bool:
    """Whether no two blocks add to one result."""
    if reduction.is_row:
        return reduction.w <= MOST_ROW and reduction.d <= MOST_BATCHES
    return reduction.h <= MOST_COLUMN


def exchange_of(instruction: Instruction) -> Exchange | None:
    """The grouped dimensions of a transpose that is written in tiles; None for all else."""
    if instruction.opcode != "transpose" or not instruction.type.size:
        return None
    shape, permutation = grouped_transpose(instruction.operands[0].type.shape, instruction.attrs["permutation"])
    if len(shape) < 2:
        return None
    exchange = Exchange(shape, permutation, instruction.type.dtype.itemsize)
    return exchange if exchange.is_tiled else None
