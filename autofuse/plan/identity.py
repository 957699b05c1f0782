"""For which machine and toolchain a plan was made, and whether this one is the same."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, NoReturn

from autofuse.errors import PlanError
from autofuse.strictjson import Item
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cuda.gpus import Gpu

GENERATOR_VERSIONS = {"cpu": "cpu/5", "cuda": "cuda/2"}
"""Code generator of each backend. Raised whenever an unchanged plan would compile to other code."""

MEASUREMENT_POLICY = "warm-fastest/1"
"""How times in a plan and in the record database are taken; raised when they stop being comparable with older ones.

A certificate notes it, and each record has it; what a plan is for does not depend on it."""

_CLASS_STEP = 1.25
_RECORDED = {"compared": False}


@dataclass(frozen=True, slots=True)
class CpuIdentity:
    """A CPU plan's surroundings. Every field is compared, except those marked as recorded only."""

    product: str = field(metadata=_RECORDED)
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
    numpy: str = field(metadata=_RECORDED)
    """NumPy version (recorded only: it evaluates opaque ops, of which only the order of equal keys may differ)."""
    blas_library: str = ""
    """What the BLAS library that is loaded says of itself: name, version, the CPU that its kernels are for. Empty =
    not known, as in plans of old."""
    blas: str = field(default="", metadata=_RECORDED)
    """The library that SciPy was built with; of plans of old (recorded only)."""
    policy: str = field(default="", metadata=_RECORDED)
    """How times were taken; of plans of old (recorded only)."""

    @property
    def backend(self) -> Literal["cpu"]:
        return "cpu"


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """A GPU plan's surroundings. Every field is compared, except those marked as recorded only."""

    product: str = field(metadata=_RECORDED)
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
    policy: str = field(default="", metadata=_RECORDED)
    """How times were taken; of plans of old (recorded only)."""

    @property
    def backend(self) -> Literal["cuda"]:
        return "cuda"


Identity = CpuIdentity | GpuIdentity


@dataclass(frozen=True, slots=True)
class Difference:
    """One compared field that differs."""

    field: str
    plan: Any
    here: Any

    def __str__(self) -> str:
        if isinstance(self.plan, tuple) and isinstance(self.here, tuple):
            lost = sorted({*self.plan} - {*self.here})
            extra = sorted({*self.here} - {*self.plan})
            parts = [f"missing here: {' '.join(lost)}"] * bool(lost) + [f"only here: {' '.join(extra)}"] * bool(extra)
            return f"{self.field} ({'; '.join(parts)})"
        return f"{self.field} (plan: {self.plan}, here: {self.here})"


def compare(plan: Identity, here: Identity) -> list[Difference]:
    """The compared fields in which the two differ, in declaration order; none = the plan is at home here.

    A field that is an empty text in the plan was unknown when the plan was made, and is not compared.
    """
    if plan.backend != here.backend:
        return [Difference("backend", plan.backend, here.backend)]
    return [
        Difference(name, getattr(plan, name), getattr(here, name))
        for name in _compared(plan)
        if getattr(plan, name) not in ("", getattr(here, name))
    ]


def require_same(plan: Identity, here: Identity, what: str = "the plan") -> None:
    """Raise PlanError naming each differing field, both values and the way out; return if there are none."""
    differences = compare(plan, here)
    if differences:
        refuse(differences, what)


def refuse(differences: list[Difference], what: str = "the plan") -> NoReturn:
    """Raise the PlanError for these differences."""
    raise PlanError(
        f"{what} was made for another device or toolchain; different: {'; '.join(map(str, differences))}. "
        'Load it with on_mismatch="retune" to tune again here, or on_mismatch="run" to run it as it is'
    )


def identity_hash(identity: Identity) -> str:
    """A digest of the compared fields: equal for two machines that may share plans and measurements."""
    compared = {name: getattr(identity, name) for name in _compared(identity)}
    text = json.dumps({"backend": identity.backend, **compared}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compared(identity: Identity) -> list[str]:
    return [f.name for f in fields(identity) if f.metadata.get("compared", True)]


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
        generator=GENERATOR_VERSIONS["cpu"],
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


def gpu_identity(gpu: Gpu, *, nvrtc: str, driver: str = "", cublas: str = "") -> GpuIdentity:
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
        generator=GENERATOR_VERSIONS["cuda"],
    )


def _class(value: float) -> int:
    return round(_CLASS_STEP ** round(math.log(value, _CLASS_STEP)))


def identity_to_json(identity: Identity) -> dict[str, Any]:
    """Plain data, without what is empty and may be; `identity_from` reads it back."""
    given = {f.name: getattr(identity, f.name) for f in fields(identity)}
    empty = {f.name for f in fields(identity) if given[f.name] == f.default}
    data = {"backend": identity.backend, **{name: value for name, value in given.items() if name not in empty}}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


def identity_from(item: Item) -> Identity:
    """Read `identity_to_json` back; raises the item's error with the path of the first unfit value."""
    backend = item.members(at_most=100).get("backend")
    if backend is None:
        item.fail("the key 'backend' is missing")
    kind = CpuIdentity if backend.choice("cpu", "cuda") == "cpu" else GpuIdentity
    later = [f.name for f in fields(kind) if f.default is not MISSING]
    keys = item.fields(["backend", *(f.name for f in fields(kind) if f.name not in later)], later)
    read: dict[str, Any] = {f.name: _FIELD_READERS[str(f.type)](keys[f.name]) for f in fields(kind) if f.name in keys}
    return kind(**read)


_FIELD_READERS: dict[str, Callable[[Item], Any]] = {
    "str": Item.text,
    "int": lambda item: item.integer(0, 1 << 60),
    "tuple[str, ...]": lambda item: tuple(feature.text(40) for feature in item.items(1000)),
}
