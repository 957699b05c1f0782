"""Global memory that kernels of the CPU work in beside what they read and write: copies of a scatter's result."""

from __future__ import annotations

from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.tile import Buffer, LoweredProgram, OpaqueProgram, Space


@dataclass(frozen=True, slots=True)
class CpuWorkspaces:
    """What kernels of a CPU get. See `autofuse.lower.limits.Limits.workspaces`."""

    vector_bits: int

    def __call__(self, program: LoweredProgram) -> LoweredProgram:
        """The program with its workspaces behind its other buffers."""
        if not isinstance(program, OpaqueProgram) or not program.is_coded:
            return program
        node = coded_in(program.graph)
        if node is None or role_of(node) is not Role.SCATTER:
            return program
        from autofuse.targets.cpu.codegen.scatterepilogue import COPIES
        from autofuse.targets.cpu.codegen.scatterloops import ScatterLoops

        loops = ScatterLoops(program, node, self.vector_bits)
        split = loops.split()
        if split.way != "copies":
            return program
        type_ = TensorType((split.blocks * loops.copy_elements,), loops.dtype)
        parameters = (buffer for buffer in program.buffers if buffer.space is not Space.WORKSPACE)
        return replace(program, buffers=(*parameters, Buffer(COPIES, type_, Space.WORKSPACE)))
