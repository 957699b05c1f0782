"""What is done to a program before its code is written: rewrites from TileProgram to TileProgram, in order."""

from __future__ import annotations

from autofuse.backends.cpu.codegen.folding import fold_indices
from autofuse.backends.cpu.codegen.merging import merge_scans
from autofuse.backends.cpu.codegen.narrowing import narrow_values
from autofuse.backends.cpu.codegen.positions import compare_positions
from autofuse.backends.cpu.codegen.relaning import relane
from autofuse.backends.cpu.codegen.scanlanes import spread_scans
from autofuse.backends.cpu.codegen.widths import Widths
from autofuse.lower.tile import TileProgram


def prepare(program: TileProgram, widths: Widths) -> TileProgram:
    """The program as the code generator writes it. Cost models count its work from this form too."""
    return spread_scans(merge_scans(relane(narrow_values(compare_positions(fold_indices(program))), widths)))
