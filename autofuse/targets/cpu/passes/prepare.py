"""What is done to a program before its code is written: rewrites from TileProgram to TileProgram, in order."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.lower.merging import merge_scans
from autofuse.lower.tile import TileProgram
from autofuse.lower.vectorscans import vectorise_scans
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.passes.folding import fold_indices
from autofuse.targets.cpu.passes.longerloop import vectorise_longer
from autofuse.targets.cpu.passes.narrowing import narrow_values
from autofuse.targets.cpu.passes.positions import compare_positions


@dataclass(frozen=True, slots=True)
class CpuPasses:
    """The passes for a machine. Code, prices and reports are all made of what they leave."""

    vector_bits: int
    """Width of the machine's widest vectors."""

    def __call__(self, program: TileProgram) -> TileProgram:
        widths = Widths.chosen(program, self.vector_bits)
        return vectorise_scans(
            merge_scans(vectorise_longer(narrow_values(compare_positions(fold_indices(program))), widths))
        )
