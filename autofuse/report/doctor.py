"""The state of an installation: toolchain, machine, caches, noise. Facts as data, and what deserves a warning."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from autofuse.measurement.timer import measure, noise_floor
from autofuse.plainfile import open_to_others
from autofuse.plan.identity import CpuIdentity, host_cpu_identity
from autofuse.report.quantities import bytes_text, microseconds
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.device.store import CalibrationStore
from autofuse.targets.cpu.native.objectcache import cache_directory
from autofuse.targets.cuda import nvrtc

_REQUIRED = ("numpy", "scipy", "ml_dtypes", "llvmlite")
_OPTIONAL = {
    "scikit-learn": "tune",
    "optuna": "tune",
    "rich": "tune",
    "matplotlib": "tune",
    "cupy-cuda13x": "cuda",
    "jax": "peers",
    "torch": "peers",
    "numba": "peers",
}
_NOISY = 0.05
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found."""

    versions: dict[str, str | None]
    """Python, LLVM and packages; None = not installed."""
    cpu: dict[str, Any]
    identity: dict[str, Any]
    """As plans record it."""
    calibration: str
    """`measured` or `defaults`."""
    cache: dict[str, Any]
    """Folder of compiled objects (null = off), whether it can be written, files and bytes in it."""
    perf: dict[str, Any]
    cuda: dict[str, Any]
    noise: dict[str, float]
    """An A/A run: the call's microseconds, and the differences below which nothing can be told apart."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def diagnose(*, cuda: bool = False) -> Diagnosis:
    """Look around; takes about a second. `cuda` also imports CuPy to ask the driver for its devices."""
    description = CalibrationStore().describe(detect())
    identity = host_cpu_identity(description)
    cache, noise = _cache(), _noise()
    versions = _versions()
    return Diagnosis(
        versions=versions,
        cpu=_cpu(description),
        identity=_identity(identity),
        calibration=description.calibration.source,
        cache=cache,
        perf=_perf(),
        cuda=_cuda(cuda),
        noise=noise,
        warnings=tuple(_warnings(description, cache, noise, versions)),
    )


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {
        "autofuse": _installed("autofuse"),
        "python": platform.python_version(),
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
    }
    return found | {name: _installed(name) for name in (*_REQUIRED, *_OPTIONAL)}


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu(description: CpuDescription) -> dict[str, Any]:
    return {
        "model": description.model,
        "system": f"{platform.system()} {platform.release()}",
        "vector_bits": description.vector_bits,
        "memory_bytes": description.memory_bytes,
        "logical": description.logical,
        "load": os.getloadavg()[0],
        **description.hardware(),
    }


def _identity(identity: CpuIdentity) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(identity).items()}


def _cache() -> dict[str, Any]:
    folder = cache_directory()
    if folder is None:
        return {"folder": None, "writable": False, "files": 0, "bytes": 0, "open": None}
    sizes = [path.stat().st_size for path in folder.rglob("*.o")] if folder.is_dir() else []
    return {
        "folder": str(folder),
        "writable": _writable(folder),
        "files": len(sizes),
        "bytes": sum(sizes),
        "open": open_to_others(folder),
    }


def _writable(folder: Path) -> bool:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False


def _perf() -> dict[str, Any]:
    paranoid = _PARANOID.read_text().strip() if _PARANOID.exists() else None
    return {"program": shutil.which("perf"), "paranoid": None if paranoid is None else int(paranoid)}


def _cuda(ask_driver: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "driver": ctypes.util.find_library("cuda"),
        "nvrtc": ".".join(map(str, nvrtc.version())) if nvrtc.is_available() else None,
    }
    return found | (_devices() if ask_driver else {})


def _devices() -> dict[str, Any]:
    try:
        cupy: Any = import_module("cupy")
    except ImportError as failure:
        return {"devices": [], "problem": f"CuPy cannot be imported: {failure}"}
    runtime = cupy.cuda.runtime
    try:
        names = [runtime.getDeviceProperties(n)["name"].decode() for n in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as failure:
        return {"devices": [], "problem": str(failure)}
    return {"devices": names}


def _noise() -> dict[str, float]:
    """An A/A run of a pass over memory that takes some 100 us."""
    x = np.ones(1 << 18, np.float32)
    out = np.empty_like(x)

    def call() -> None:
        np.add(x, x, out=out)

    call_us = measure(call).median_us
    floor_us = noise_floor(call, 20)
    return {"call_us": call_us, "floor_us": floor_us, "share": floor_us / call_us}


def _warnings(
    description: CpuDescription, cache: dict[str, Any], noise: dict[str, float], versions: dict[str, str | None]
) -> Iterator[str]:
    if description.calibration.source == "defaults":
        yield "not calibrated: predictions use default throughputs; run `autofuse calibrate` on the idle machine"
    if not cache["writable"]:
        yield f"compiled kernels are not kept ({cache['folder'] or 'AUTOFUSE_CACHE=off'}): every process compiles anew"
    if cache["open"] is not None:
        yield f"the cache of compiled kernels is open to others ({cache['open']}): chmod go-w it, or set AUTOFUSE_CACHE"
    if noise["share"] > _NOISY:
        yield f"noisy: a call timed against itself differs by {noise['share']:.0%}; other work is running"
    if description.quota_cores is not None and description.quota_cores < description.cores:
        yield f"the control group grants {description.quota_cores:g} of {description.cores} cores"
    if versions["optuna"] is None:
        yield "tuning schedules needs Optuna: pip install 'autofuse[tune]'"


def render(found: Diagnosis) -> str:
    """The diagnosis as text."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if version is not None)
    missing = ", ".join(f"{name} [{_OPTIONAL[name]}]" for name in _OPTIONAL if found.versions[name] is None)
    cpu, identity, cache = found.cpu, found.identity, found.cache
    caches = ", ".join(f"{level.upper()} {bytes_text(cpu[f'{level}_bytes'])}" for level in ("l1d", "l2", "l3"))
    quota = f", quota {cpu['quota_cores']:g}" if cpu["quota_cores"] is not None else ""
    lines = [
        f"versions     {versions}",
        f"missing      {missing or 'nothing'}",
        f"cpu          {cpu['model']}, {cpu['architecture']}, {cpu['cores']} cores ({cpu['logical']} hardware threads"
        f"{quota}), {cpu['threads']} threads used, load {cpu['load']:.1f}",
        f"vectors      {cpu['vector_bits']} bits ({' '.join(cpu['isa'])})",
        f"memory       {caches}, {bytes_text(cpu['memory_bytes'])}",
        f"blas         {identity['blas']}",
        f"calibration  {found.calibration}",
        f"cache        {_cache_text(cache)}",
        f"perf         {_perf_text(found.perf)}",
        f"cuda         {_cuda_text(found.cuda)}",
        f"noise        {microseconds(found.noise['floor_us'])} on a call of {microseconds(found.noise['call_us'])} "
        f"({found.noise['share']:.1%}), timed against itself",
    ]
    lines += [f"warning: {warning}" for warning in found.warnings]
    return "\n".join(lines) + "\n"


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["folder"] is None:
        return "off (AUTOFUSE_CACHE=off)"
    state = "" if cache["writable"] else ", NOT writable"
    return f"{cache['folder']}{state}, {cache['files']} objects, {bytes_text(cache['bytes'])}"


def _perf_text(perf: dict[str, Any]) -> str:
    program = perf["program"] or "not installed"
    return program if perf["paranoid"] is None else f"{program}, perf_event_paranoid {perf['paranoid']}"


def _cuda_text(cuda: dict[str, Any]) -> str:
    parts = [f"driver {cuda['driver'] or 'not found'}", f"NVRTC {cuda['nvrtc'] or 'not found'}"]
    if "devices" in cuda:
        parts.append(f"devices: {', '.join(cuda['devices']) or cuda.get('problem', 'none')}")
    return ", ".join(parts)
