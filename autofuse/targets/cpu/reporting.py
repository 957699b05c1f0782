"""What people are told of a CPU: by `autofuse doctor` and by `autofuse calibrate`."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autofuse.host.objectcache import cache_directory
from autofuse.lazydataclass import asdict
from autofuse.plainfile import open_to_others
from autofuse.report.quantities import bytes_text, table, three_digits
from autofuse.targets.base import Calibrated, Findings
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.identity import CpuIdentity


def cpu_findings(device: CpuDescription, identity: CpuIdentity) -> Findings:
    """The machine, its calibration, and the cache of compiled kernels."""
    cache = _cache()
    facts: dict[str, Any] = {
        "cpu": {
            "model": device.model,
            "system": f"{platform.system()} {platform.release()}",
            "vector_bits": device.vector_bits,
            "memory_bytes": device.memory_bytes,
            "logical": device.logical,
            "load": os.getloadavg()[0],
            **device.hardware(),
        },
        "identity": {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(identity).items()},
        "calibration": device.calibration.source,
        "cache": cache,
    }
    return Findings(facts, tuple(_lines(facts["cpu"], device, identity, cache)), tuple(_warnings(device, cache)))


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


def _lines(
    cpu: dict[str, Any], device: CpuDescription, identity: CpuIdentity, cache: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    caches = ", ".join(f"{level.upper()} {bytes_text(cpu[f'{level}_bytes'])}" for level in ("l1d", "l2", "l3"))
    quota = f", quota {device.quota_cores:g}" if device.quota_cores is not None else ""
    yield (
        "cpu",
        f"{device.model}, {device.architecture}, {device.cores} cores ({device.logical} hardware threads{quota}), "
        f"{device.threads} threads used, load {cpu['load']:.1f}",
    )
    yield "vectors", f"{device.vector_bits} bits ({' '.join(device.isa)})"
    yield "memory", f"{caches}, {bytes_text(device.memory_bytes)}"
    yield "blas", identity.blas_library
    yield "calibration", device.calibration.source
    yield "cache", _cache_text(cache)


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["folder"] is None:
        return "off (AUTOFUSE_CACHE=off)"
    state = "" if cache["writable"] else ", NOT writable"
    return f"{cache['folder']}{state}, {cache['files']} objects, {bytes_text(cache['bytes'])}"


def _warnings(device: CpuDescription, cache: dict[str, Any]) -> Iterator[str]:
    if device.calibration.source == "defaults":
        yield "not calibrated: predictions use default throughputs; run `autofuse calibrate` on the idle machine"
    if not cache["writable"]:
        yield f"compiled kernels are not kept ({cache['folder'] or 'AUTOFUSE_CACHE=off'}): every process compiles anew"
    if cache["open"] is not None:
        yield f"the cache of compiled kernels is open to others ({cache['open']}): chmod go-w it, or set AUTOFUSE_CACHE"
    if device.quota_cores is not None and device.quota_cores < device.cores:
        yield f"the control group grants {device.quota_cores:g} of {device.cores} cores"


def cpu_calibrated(device: CpuDescription) -> Calibrated:
    """The numbers of a calibration that was kept."""
    facts = {"key": device.key(), "calibration": device.calibration.to_json()}
    return Calibrated(str(CalibrationStore().path(device)), facts, _throughputs(device))


def _throughputs(device: CpuDescription) -> str:
    found = device.calibration
    levels = {
        "L1": found.l1_bytes_per_us,
        "L2": found.l2_bytes_per_us,
        f"L3 ({bytes_text(found.effective_l3_bytes)} usable)": found.l3_bytes_per_us,
        "memory": found.dram_bytes_per_us,
    }
    rows = [(name, three_digits(rate.one / 1e3), three_digits(rate.all / 1e3)) for name, rate in levels.items()]
    rows += [
        (f"BLAS {name} (Gflop/s)", three_digits(rate.one), three_digits(rate.all))
        for name, rate in found.blas_gflops.items()
    ]
    text = table((f"GB/s on {device.model}", "one core", f"{device.threads} threads"), rows)
    return f"{text}fork and join {three_digits(found.fork_join_us)} us\n"
