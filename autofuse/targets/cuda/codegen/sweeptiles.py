"""Tiles of a sweep's operands: functions that have them come into shared memory, and waiting for them.

the left operand, whole | a tile of its right operand | a tile of the second right operand | weights
"""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen.operandtiles import OperandTile
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.sweepshapes import SweepShape


@dataclass(frozen=True, slots=True)
class SweepTiles:
    """Writes what brings tiles in."""

    code: PhaseCode
    shape: SweepShape
    left: OperandTile
    right: OperandTile
    values: OperandTile

    @property
    def values_offset(self) -> int:
        """Of the tile of the second right operand, in bytes."""
        return self.shape.left_bytes + self.shape.right_bytes

    @property
    def weights_offset(self) -> int:
        """Of weights, in bytes."""
        return self.values_offset + self.shape.values_bytes

    def declare(self) -> None:
        """The functions: `fill_left()`, `fill_right(edge)` and `fill_values(step)`."""
        out = self.code.out
        fills = (
            ("left", "", ("top = 0", "step = 0"), self.left, 0),
            ("right", "int edge", ("step = 0",), self.right, self.shape.left_bytes),
            ("values", "int step", ("edge = 0",), self.values, self.values_offset),
        )
        for name, given, fixed, operand, place in fills:
            operand.declare()
            with out.braces(f"const auto fill_{name} = [&]({given})"):
                out.line(" ".join(f"const int {one};" for one in fixed))
                operand.fill(f"tiles + {place}" if place else "tiles")
            out.line(";")
        out.line("__syncthreads();")  # what was computed before may be an operand, or lie where tiles do

    def commit(self) -> None:
        """What was asked for since the last time comes together."""
        if self._is_copied:
            self.code.out.line(f"{self.code.prelude.use('copy_commit')}();")

    def meet(self) -> None:
        """What was asked for has come, and all are done with what they read before."""
        if self._is_copied:
            self.code.out.line(f"{self.code.prelude.use('copy_wait')}<0>();")
        self.code.out.line("__syncthreads();")

    @property
    def _is_copied(self) -> bool:
        return any(operand.is_copied for operand in (self.left, self.right, self.values))
