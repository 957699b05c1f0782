"""Which CUDA C a kernel becomes: of TilePrograms, and of calls that there is code for."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.ir.digest import digest
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.runtime.planlowering import LoweredKernel, canonical, programs_of
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.codegen.scatterplan import ScatterPlan, scatter_plan
from autofuse.targets.cuda.codegen.scatters import generate_scatter
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.productcalls import library_code

CodeKey = TileProgram | str
"""A kernel in canonical form, or a digest of what it calls: equal ones become equal code but for names."""


def code_key(program: TileProgram | OpaqueProgram) -> CodeKey:
    """By which kernels share code."""
    return canonical(program) if isinstance(program, TileProgram) else digest(program.graph)


def code_of(program: TileProgram | OpaqueProgram, arch: str) -> CudaCode | None:
    """The CUDA C of a kernel with its workspaces; None for a call that there is none for.

    Raises LegalityError or BackendError.
    """
    if isinstance(program, TileProgram):
        return CudaCode(program, generate(program, arch), library=library_code(program))
    return None if generated_scatter(program) is None else CudaCode(program, generate_scatter(program, arch))


def generated_scatter(program: OpaqueProgram) -> ScatterPlan | None:
    """How a call that is a scatter is done by generated code; None where there is none."""
    try:
        return scatter_plan(program)
    except LegalityError:
        return None


def codes_of(kernels: Sequence[LoweredKernel], arch: str) -> dict[CodeKey, CudaCode]:
    """The CUDA C of kernels, under the name of the first of those that share it; those inside of loops too.

    Raises LegalityError or BackendError.
    """
    codes: dict[CodeKey, CudaCode] = {}
    for program in programs_of(kernels):
        key = code_key(program)
        if key not in codes and (code := code_of(program, arch)) is not None:
            codes[key] = code
    return codes
