"""What is done to a program before its code is written."""

from __future__ import annotations

from autofuse.errors import LegalityError
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda.codegen.program import shapes
from autofuse.targets.cuda.passes.rows import keep_rows


@dataclass(frozen=True, slots=True)
class CudaPasses:
    """The passes for an architecture. Code, prices and reports are all made of what they leave."""

    arch: str

    def __call__(self, program: TileProgram) -> TileProgram:
        """Raises LegalityError where a block has no room for the program as it came."""
        kept = keep_rows(program)
        if kept is not program:
            try:
                shapes(kept, self.arch)
            except LegalityError:
                kept = program
        if kept is program:
            shapes(program, self.arch)
        return kept
