"""Very long reductions in several steps, as XLA:GPU has them when fusion begins (tree_reduction_rewriter.cc).

A step of its own reads what the first one writes, so what follows a long reduction is never part of the kernel that
reads its input. On this side the first step stands for the whole reduction. Not modelled: `argmin` and `argmax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt

from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Attrs
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.grouped_dimensions import grouped_reduction
from autofuse.search.rules.priority.hero_dimensions import MOST_BATCHES, MOST_COLUMN, MOST_ROW, is_race_free
from autofuse.search.rules.priority.instructions import BITCAST, Instruction

Maker = Callable[[str, TensorType, tuple[Instruction, ...], Attrs, "FusionAtom | None"], Instruction]
"""Makes an instruction, with a number of its own, from its opcode, type, operands, attributes and atom."""


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """Builds the steps of one reduction."""

    make: Maker
    init: Instruction
    combiner: str

    def build(self, x: Instruction, dimensions: Sequence[int], atom: FusionAtom | None) -> Instruction:
        """The last step; `atom` is the first one."""
        reduction = grouped_reduction(x.type.shape, dimensions)
        if reduction is None or not reduction.is_worthwhile or is_race_free(reduction):
            return self._reduction(x, dimensions, atom)
        x = self._shaped(x, (reduction.d, reduction.h, reduction.w))
        if reduction.is_row and reduction.d > MOST_BATCHES:
            return self.build(self.build(x, (2,), atom), (0,), None)
        axis = 2 if reduction.is_row else 1
        outer, inner = split_extents(x.type.shape[axis], reduction.is_row)
        x = self._padded(x, axis, outer * inner)
        x = self._shaped(x, (*x.type.shape[:axis], outer, inner, *x.type.shape[axis + 1 :]))
        return self.build(self.build(x, (0, 3) if reduction.is_row else (2,), atom), (1,), None)

    def _reduction(self, x: Instruction, dimensions: Sequence[int], atom: FusionAtom | None) -> Instruction:
        shape = tuple(extent for axis, extent in enumerate(x.type.shape) if axis not in dimensions)
        attrs = {"dimensions": tuple(dimensions), "combiner": self.combiner}
        return self.make("reduce", TensorType(shape, x.type.dtype), (x, self.init), attrs, atom)

    def _shaped(self, x: Instruction, shape: tuple[int, ...]) -> Instruction:
        return x if x.type.shape == shape else self.make(BITCAST, TensorType(shape, x.type.dtype), (x,), {}, None)

    def _padded(self, x: Instruction, axis: int, extent: int) -> Instruction:
        shape = (*x.type.shape[:axis], extent, *x.type.shape[axis + 1 :])
        if shape == x.type.shape:
            return x
        return self.make("pad", TensorType(shape, x.type.dtype), (x, self.init), {}, None)


def split_extents(extent: int, is_row: bool) -> tuple[int, int]:
    """How many pieces a dimension is cut into, and their length (ComputeSplitParams).

    Near the square root, with the least padding; of several such lengths the first one met, unless a power of two.
    """
    bound = MOST_ROW if is_row else MOST_COLUMN
    longest = min(isqrt(extent), bound)
    inner, padding = longest, -extent % longest
    for length in range(longest - 1, longest // 2, -1):
        needed = -extent % length
        if needed < padding or (needed == padding and length & (length - 1) == 0):
            inner, padding = length, needed
    outer = (extent + padding) // inner
    if outer <= bound and _is_better_swapped(outer, inner, extent, is_row):
        return inner, outer
    return outer, inner


def _is_better_swapped(outer: int, inner: int, extent: int, is_row: bool) -> bool:
    """Longer pieces write less, unless rows could then not be read two elements at a time."""
    if not is_row:
        return True
    if inner % 2 == 0 and extent % 2 == 0:
        return inner * 2 < outer or outer % 2 == 0
    return extent % 2 == 0 or outer % 2 != 0
