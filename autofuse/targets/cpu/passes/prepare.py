"""What is done to a program before its code is written: rewrites from TileProgram to TileProgram, in order."""

from __future__ import annotations

from autofuse.lower.tile import TileProgram
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.passes.folding import fold_indices
from autofuse.targets.cpu.passes.merging import merge_scans
from autofuse.targets.cpu.passes.narrowing import narrow_values
from autofuse.targets.cpu.passes.positions import compare_positions
from autofuse.targets.cpu.passes.relaning import relane
from autofuse.targets.cpu.passes.scanlanes import spread_scans


def prepare(program: TileProgram, widths: Widths) -> TileProgram:
    """The program as the code generator writes it. Cost models count its work from this form too."""
    return spread_scans(merge_scans(relane(narrow_values(compare_positions(fold_indices(program))), widths)))
