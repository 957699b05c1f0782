"""Reading off the CPU this process runs on: /proc and /sys first, then what the C library asks the CPU itself."""

from __future__ import annotations

import functools
import itertools
import os
import platform
from pathlib import Path

from autofuse.errors import ArgumentError
from autofuse.host.available import memory_bytes
from autofuse.host.groups import groups_of, number_of, text_of
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import CpuDescription, vector_bits

_X86 = ("sse4_1", "sse4_2", "popcnt", "abm", "bmi1", "bmi2", "avx", "avx2", "fma", "f16c", "avx_vnni")
_AVX512 = ("f", "dq", "cd", "bw", "vl", "vbmi", "_vbmi2", "ifma", "_vnni", "_bitalg", "_vpopcntdq", "_bf16", "_fp16")
_AMX = ("amx_tile", "amx_bf16", "amx_int8")
_ARM = ("asimd", "asimdhp", "asimddp", "fphp", "sve", "sve2", "svebf16", "bf16", "i8mm")
_RELEVANT_ISA = frozenset((*_X86, *_AMX, *_ARM, *(f"avx512{suffix}" for suffix in _AVX512)))
_FALLBACK_BYTES = {1: 32 << 10, 2: 512 << 10, 3: 0}
_SYSCONF = {1: "SC_LEVEL1_DCACHE_SIZE", 2: "SC_LEVEL2_CACHE_SIZE", 3: "SC_LEVEL3_CACHE_SIZE"}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a CPU is, whoever may use how much of it. Fields as in `CpuDescription`."""

    model: str
    isa: tuple[str, ...]
    """Empty where it cannot be read."""
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int


def hardware(root: Path = Path("/")) -> Hardware:
    """Read what this machine's CPU is; `root` as for `detect`.

    Prices, identities of plans and generated code all follow this answer, so whoever replaces this function has
    another machine (`pytest --host`).
    """
    first = min(_usable_cpus(root))
    return _hardware_here(first) if root == Path("/") else _hardware(root, first)


@functools.lru_cache(maxsize=16)
def _hardware_here(first: int) -> Hardware:
    """Of this machine, which stays as it is; reading it takes a millisecond or two."""
    return _hardware(Path("/"), first)


def _hardware(root: Path, first: int) -> Hardware:
    model, isa = _cpuinfo(root)
    caches = {level: _cache_bytes(root, first, level) for level in (1, 2, 3)}
    line = number_of(root / f"sys/devices/system/cpu/cpu{first}/cache/index0/coherency_line_size") or 64
    return Hardware(model, isa, caches[1], caches[2], caches[3], line)


def detect(threads: int | None = None, root: Path = Path("/")) -> CpuDescription:
    """Describe this machine's CPU, with default numbers (`device/calibrationstore.py` keeps measured ones).

    `threads`: how many plans shall use; by default one per physical core, no more than the control group grants.
    `root`: where `proc` and `sys` are mounted. Raises ArgumentError for a thread count below 1 or above the number
    of hardware threads.
    """
    usable = _usable_cpus(root)
    siblings = {_siblings(root, cpu) for cpu in usable}
    cores = max(1, len(siblings))
    quota = _quota_cores(root)
    if threads is None:
        threads = max(1, min(cores, round(quota) if quota is not None else cores))
    if not 1 <= threads <= len(usable):
        raise ArgumentError(
            f"threads={threads}: this process may run on {len(usable)} hardware threads; give 1..{len(usable)}"
        )
    found = hardware(root)
    return CpuDescription(
        architecture=platform.machine(),
        model=found.model,
        isa=found.isa,
        cores=cores,
        logical=len(usable),
        threads=threads,
        l1d_bytes=found.l1d_bytes,
        l2_bytes=found.l2_bytes,
        l3_bytes=found.l3_bytes,
        line_bytes=found.line_bytes,
        memory_bytes=memory_bytes(root),
        quota_cores=quota,
        calibration=default_calibration(vector_bits(found.isa), threads, found.l3_bytes),
    )


def _first_block(path: Path) -> list[str]:
    """The lines of a file as far as the first empty one."""
    try:
        with path.open(errors="replace") as file:
            return list(itertools.takewhile(str.strip, file))
    except OSError:
        return []


def _usable_cpus(root: Path) -> list[int]:
    if root != Path("/"):
        return parse_cpu_list(text_of(root / "sys/devices/system/cpu/online") or "0")
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def parse_cpu_list(text: str) -> list[int]:
    """`0-2,5` -> [0, 1, 2, 5], the kernel's way to write sets of CPUs."""
    cpus: list[int] = []
    for part in text.split(","):
        lo, _, hi = part.strip().partition("-")
        if lo.isdigit() and (hi.isdigit() or not hi):
            cpus.extend(range(int(lo), int(hi or lo) + 1))
    return cpus


def _siblings(root: Path, cpu: int) -> str:
    return text_of(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _cpuinfo(root: Path) -> tuple[str, tuple[str, ...]]:
    """Product name and features, of the first CPU: a file on all of a large server's takes a while to read."""
    facts: dict[str, str] = {}
    for line in _first_block(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    model = facts.get("model name") or facts.get("CPU part") or platform.processor() or "unknown"
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return model[:200], tuple(sorted(_RELEVANT_ISA.intersection(flags)))


def _cache_bytes(root: Path, cpu: int, level: int) -> int:
    """Bytes of the data cache at a level: per core for levels 1 and 2, the whole of it for level 3."""
    for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        if number_of(folder / "level") == level and text_of(folder / "type") in ("Data", "Unified"):
            size = _size(text_of(folder / "size") or "")
            sharing = parse_cpu_list(text_of(folder / "shared_cpu_list") or "")
            sharers = len({_siblings(root, other) for other in sharing}) or 1
            return size if level == 3 else size // sharers
    return _cache_bytes_from_libc(level) if root == Path("/") else _FALLBACK_BYTES[level]


def _cache_bytes_from_libc(level: int) -> int:
    """The C library executes cpuid, which works where /sys is hidden."""
    try:
        found = os.sysconf(_SYSCONF[level])
    except (ValueError, OSError, AttributeError):
        found = 0
    return found if found > 0 else _FALLBACK_BYTES[level]


def _size(text: str) -> int:
    """`48K` -> 49152."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * scale if digits.isdigit() else 0


def _quota_cores(root: Path) -> float | None:
    """The least CPU quota on the way up, in cores."""
    limits: list[float] = []
    for folder in groups_of(root, "cpu"):
        quota, _, period = (text_of(folder / "cpu.max") or "").partition(" ")
        if not quota:
            quota = text_of(folder / "cpu.cfs_quota_us") or ""
            period = text_of(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)
