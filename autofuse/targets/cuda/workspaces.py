"""Global memory that kernels work in beside what they read and write: of scatters, and of products by cuBLASLt."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.tile import LoweredProgram, TileProgram
from autofuse.targets.cuda.codes import generated_scatter
from autofuse.targets.cuda.productcalls import with_library_workspace


@dataclass(frozen=True, slots=True)
class CudaWorkspaces:
    """What kernels of an architecture get. See `autofuse.lower.limits.Limits.workspaces`."""

    arch: str

    def __call__(self, program: LoweredProgram) -> LoweredProgram:
        """The program with its workspaces behind its other buffers."""
        if isinstance(program, TileProgram):
            return with_library_workspace(program, self.arch)
        plan = generated_scatter(program)
        return program if plan is None else replace(program, buffers=(*program.buffers, *plan.workspaces))
