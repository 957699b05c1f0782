"""What is done to a program before its code is written."""

from __future__ import annotations

from autofuse.errors import LegalityError
from autofuse.lazydataclass import dataclass
from autofuse.lower.merging import merge_scans
from autofuse.lower.tile import TileProgram
from autofuse.lower.vectorscans import vectorise_scans
from autofuse.targets.cuda.codegen.program import shapes
from autofuse.targets.cuda.codegen.rowgroups import CLUSTERS
from autofuse.targets.cuda.gpus import has_clusters, shared_bytes_per_block
from autofuse.targets.cuda.passes.edges import load_at_edges
from autofuse.targets.cuda.passes.online import sweep_products
from autofuse.targets.cuda.passes.onlinerows import walk_once
from autofuse.targets.cuda.passes.rows import keep_rows
from autofuse.targets.cuda.passes.splitproducts import split_products


@dataclass(frozen=True, slots=True)
class CudaPasses:
    """The passes for an architecture. Code, prices and reports are all made of what they leave."""

    arch: str

    def __call__(self, program: TileProgram) -> TileProgram:
        """Raises LegalityError where a block has no room for the program as it came."""
        plain = load_at_edges(self._swept(vectorise_scans(merge_scans(program), strided=True)))
        block = shared_bytes_per_block(self.arch)
        blocks = (CLUSTERS[-1], 2, 1) if has_clusters(self.arch) else (2, 1)  # registers hold about as much again
        for most_bytes in (block * number for number in blocks):
            kept = keep_rows(plain, most_bytes)
            if kept is not plain and self._fits(kept):
                return kept
        plain = walk_once(plain)
        shapes(plain, self.arch)
        return plain

    def _swept(self, program: TileProgram) -> TileProgram:
        swept = split_products(sweep_products(program, self.arch), self.arch)
        return swept if swept is program or self._fits(swept) else program

    def _fits(self, program: TileProgram) -> bool:
        try:
            shapes(program, self.arch)
        except LegalityError:
            return False
        return True
