"""Made-up hosts: this process takes itself to run on another machine, to find out what depends on the machine.

`pretend` is for the processes of a test session (`pytest --host=avx2`). It replaces the one function that says what
the CPU is, and narrows the CPUs of the process; the rest follows by itself: prices, identities of plans, widths of
vectors and the instructions that LLVM may use. A host can only be given less than the real one has, except for caches.
NumPy and its BLAS, whose answers tests compare with, are narrowed by variables of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autofuse.targets.cpu.device import detect
from autofuse.targets.cpu.device.detect import Hardware

_WIDE = ("avx512", "amx")
"""How /proc/cpuinfo's names of all features begin that a machine of 256-bit vectors lacks."""
_NUMPY_WIDE = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
"""NumPy's names of the same, in newer and older versions; it passes over those that it does not know."""
_CHILD = """try:
    from tests.hosts import pretend
except ImportError:  # a process that has nothing to do with autofuse
    pass
else:
    pretend({name!r})
"""


@dataclass(frozen=True, slots=True)
class Host:
    """How a made-up host differs from the real one."""

    change: Callable[[Hardware], Hardware] = lambda real: real
    """What its CPU is."""
    one_cpu: bool = False
    """Whether the process may run on one CPU only."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables by which NumPy and OpenBLAS are told, when they are loaded, what they may not use."""


def _small_caches(real: Hardware) -> Hardware:
    return replace(real, l1d_bytes=32 << 10, l2_bytes=256 << 10, l3_bytes=2 << 20)


def _large_caches(real: Hardware) -> Hardware:
    return replace(real, l1d_bytes=64 << 10, l2_bytes=4 << 20, l3_bytes=512 << 20)


def _avx2(real: Hardware) -> Hardware:
    return replace(real, isa=tuple(feature for feature in real.isa if not feature.startswith(_WIDE)))


HOSTS = {
    "small-caches": Host(_small_caches),
    "large-caches": Host(_large_caches),
    "avx2": Host(_avx2, environment={"NPY_DISABLE_CPU_FEATURES": _NUMPY_WIDE, "OPENBLAS_CORETYPE": "Haswell"}),
    "one-core": Host(one_cpu=True),
}
"""By name."""


def pretend(name: str) -> None:
    """Make this process, which has neither compiled anything nor imported NumPy yet, one of the host `name`.

    Processes that it starts must be told (see `tell_children`).
    """
    host, real = HOSTS[name], detect.hardware

    def made_up(root: Path = Path("/")) -> Hardware:
        return host.change(real(root)) if root == Path("/") else real(root)

    detect.hardware = made_up
    os.environ.update(host.environment)


def narrow(name: str, number: int = 0) -> None:
    """Let this process, and those that it starts, run on no more CPUs than the host `name` has.

    Where hosts of one CPU run beside each other, `number` tells them apart.
    """
    if HOSTS[name].one_cpu:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[number % len(cpus)]})


def tell_children(name: str, folder: Path) -> None:
    """Write into `folder` what makes every Python that has it on its path one of the host `name` when it starts."""
    (folder / "sitecustomize.py").write_text(_CHILD.format(name=name))
