"""For which CPU and toolchain a plan was made."""

from __future__ import annotations

from typing import ClassVar

from autofuse.lazydataclass import dataclass, field
from autofuse.plan.identity import RECORDED, Identity
from autofuse.targets.cpu.device.describe import CpuDescription

GENERATOR = "cpu/21"
"""Version of the code generator. Raised whenever an unchanged plan would compile to other code."""


@dataclass(frozen=True, slots=True)
class CpuIdentity(Identity):
    """A CPU plan's surroundings. Every field is compared, except those marked as recorded only."""

    backend: ClassVar[str] = "cpu"

    product: str = field(metadata=RECORDED)
    """Product name of the CPU (recorded only)."""
    architecture: str
    isa: tuple[str, ...]
    """Instruction-set features that code generation depends on."""
    cores: int
    """Physical cores the process may use."""
    threads: int
    """Threads the plan uses."""
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    llvm: str
    generator: str
    """Version of the code generator."""
    numpy: str = field(metadata=RECORDED)
    """NumPy version (recorded only: it evaluates opaque ops, of which only the order of equal keys may differ)."""
    blas_library: str = ""
    """What the BLAS library that is loaded says of itself: name, version, the CPU that its kernels are for. Empty =
    not known, as in plans of old."""
    blas: str = field(default="", metadata=RECORDED)
    """The library that SciPy was built with; of plans of old (recorded only)."""
    policy: str = field(default="", metadata=RECORDED)
    """How times were taken; of plans of old (recorded only)."""


def cpu_identity(description: CpuDescription, *, blas_library: str, llvm: str, numpy: str) -> CpuIdentity:
    """The identity of plans made by this version for a CPU with this toolchain (see `host_toolchain`)."""
    return CpuIdentity(
        product=description.model,
        architecture=description.architecture,
        isa=description.isa,
        cores=description.cores,
        threads=description.threads,
        l1d_bytes=description.l1d_bytes,
        l2_bytes=description.l2_bytes,
        l3_bytes=description.l3_bytes,
        llvm=llvm,
        generator=GENERATOR,
        numpy=numpy,
        blas_library=blas_library,
    )


def host_cpu_identity(description: CpuDescription) -> CpuIdentity:
    """`cpu_identity` with LLVM and NumPy as they are installed here, and the BLAS that is loaded."""
    import llvmlite.binding
    import numpy as np

    from autofuse.targets.cpu.native.blas import loaded_library

    llvm = ".".join(map(str, llvmlite.binding.llvm_version_info))
    return cpu_identity(description, blas_library=loaded_library(), llvm=llvm, numpy=np.__version__)
