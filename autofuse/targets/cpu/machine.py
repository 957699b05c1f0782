"""The machine that LLVM generates code for: triple, CPU name, features, vector width.

The feature flags say which instructions may be used; the CPU name only selects the scheduling model. Under a
hypervisor the two can disagree (a machine that reports the family of one CPU and the AMX of a later one), so flags
are always given in full and never implied from the name. What the machine's description lacks
(`device.detect.hardware`), kernels do not use, so that they run on vectors of the width they are priced at.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import llvmlite.binding as llvm

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.device import detect as device

Isa = Literal["native", "avx512", "avx2", "sse4"]

_GENERIC: dict[Isa, tuple[str, str]] = {
    "sse4": ("x86-64-v2", "sse4.2"),
    "avx2": ("x86-64-v3", "avx2"),
    "avx512": ("x86-64-v4", "avx512vl"),
}
"""ISA level -> (LLVM's generic CPU, the flag that shows that the host has it)."""

_FAMILIES = (("avx512f", ("avx512", "avx10")), ("avx2", ("avx2",)), ("amx_tile", ("amx",)))
"""(Feature in a description of a machine, how LLVM's names of those that come with it begin)."""

_AMX_CPUS = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"})


@dataclass(frozen=True, slots=True)
class Machine:
    """What LLVM compiles for."""

    triple: str
    """LLVM target triple, such as `x86_64-unknown-linux-gnu`."""
    cpu: str
    """CPU name of LLVM's scheduling model."""
    features: str
    """LLVM feature string, `+avx2,-avx512f`; only these instructions are used."""
    vector_bits: int
    """Width of the widest vector registers."""

    @property
    def architecture(self) -> str:
        """First part of the triple: `x86_64`, `aarch64`."""
        return self.triple.split("-", 1)[0]

    def has(self, feature: str) -> bool:
        """Whether `feature` (LLVM's name, such as `avx512bf16`) may be used."""
        return f"+{feature}" in self.features.split(",")


def host_machine(isa: Isa = "native") -> Machine:
    """The machine of this process; `isa` narrows it to a generic level, for tests and for comparing.

    Raises BackendError when the host lacks the level asked for, or is not a Linux machine LLVM knows.
    """
    initialise_llvm()
    triple = llvm.get_process_triple()
    if "linux" not in triple:
        raise BackendError(f"the CPU backend runs on Linux only; this process is {triple}")
    flags = _host_flags()
    if isa == "native":
        features = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))
        return Machine(triple, _cpu_name(flags), features, _vector_bits(flags))
    cpu, witness = _GENERIC[isa]
    if not flags.get(witness, False):
        raise BackendError(f"isa={isa!r:.80} needs the CPU feature {witness}, which this machine lacks; use 'native'")
    return Machine(triple, cpu, f"+{witness}", {"sse4": 128, "avx2": 256, "avx512": 512}[isa])


@functools.cache
def initialise_llvm() -> None:
    """Register the native code generator and assembly parser with LLVM, once per process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def llvm_machine(machine: Machine, opt_level: int) -> Any:
    """A fresh `llvmlite.binding.TargetMachine` that emits position-independent code for `machine`."""
    initialise_llvm()
    try:
        triple = llvm.Target.from_triple(machine.triple)
        return triple.create_target_machine(
            cpu=machine.cpu, features=machine.features, opt=opt_level, reloc="pic", codemodel="small"
        )
    except RuntimeError as error:
        raise BackendError(f"LLVM has no code generator for {machine}: {error}") from error


def _host_flags() -> dict[str, bool]:
    """LLVM's features of this machine, but for those that its description does not have."""
    flags: dict[str, bool] = dict(llvm.get_host_cpu_features())
    described = device.hardware().isa
    if not described:  # a system that tells nothing
        return flags
    lacking = tuple(start for feature, starts in _FAMILIES if feature not in described for start in starts)
    return {name: on and not name.startswith(lacking) for name, on in flags.items()}


def _cpu_name(flags: dict[str, bool]) -> str:
    name: str = llvm.get_host_cpu_name()
    if flags.get("amx-tile", False) and name not in _AMX_CPUS:
        return "sapphirerapids"
    return name


def _vector_bits(flags: dict[str, bool]) -> int:
    if all(flags.get(flag, False) for flag in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        return 512
    return 256 if flags.get("avx2", False) else 128
