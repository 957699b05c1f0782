"""For which GPU and toolchain a plan was made."""

from __future__ import annotations

import math
from typing import ClassVar

from autofuse.lazydataclass import dataclass, field
from autofuse.plan.identity import RECORDED, Identity
from autofuse.targets.cuda.gpus import Gpu

GENERATOR = "cuda/24"
"""Version of the code generator. Raised whenever an unchanged plan would compile to other code."""
_CLASS_STEP = 1.25


@dataclass(frozen=True, slots=True)
class GpuIdentity(Identity):
    """A GPU plan's surroundings. Every field is compared, except those marked as recorded only."""

    backend: ClassVar[str] = "cuda"

    product: str = field(metadata=RECORDED)
    """Product name of the GPU (recorded only)."""
    compute_capability: str
    """`9.0`."""
    sm_count: int
    memory_gib: int
    """Memory size class: drivers keep some of it for themselves (see `gpu_identity`)."""
    memory_gbps: int
    """Memory bandwidth class in 1e9 bytes per second: tells an H100 PCIe from an SXM and an H200."""
    l2_bytes: int
    driver: str
    """Empty = compiled where there was none; then it is not compared."""
    nvrtc: str
    cublas: str
    """Empty = not used; then it is not compared."""
    generator: str
    policy: str = field(default="", metadata=RECORDED)
    """How times were taken; of plans of old (recorded only)."""
    library: str = ""
    """The array library that calls are made with. Empty = compiled where there was none; then it is not compared."""


def gpu_identity(gpu: Gpu, *, nvrtc: str, driver: str = "", cublas: str = "", library: str = "") -> GpuIdentity:
    """The identity of plans made by this version for a GPU, described by its data sheet or by its driver.

    The two descriptions of one part differ by some percent in memory size and bandwidth; both become classes, in steps
    of a factor 1.25.
    """
    digits = gpu.arch.removeprefix("sm_").rstrip("af")
    return GpuIdentity(
        product=gpu.name,
        compute_capability=f"{digits[:-1]}.{digits[-1:]}",
        sm_count=gpu.multiprocessors,
        memory_gib=_class(gpu.memory_bytes / (1 << 30)),
        memory_gbps=_class(gpu.memory_bytes_per_s / 1e9),
        l2_bytes=gpu.l2_bytes,
        driver=driver,
        nvrtc=nvrtc,
        cublas=cublas,
        generator=GENERATOR,
        library=library,
    )


def _class(value: float) -> int:
    return round(_CLASS_STEP ** round(math.log(value, _CLASS_STEP)))
