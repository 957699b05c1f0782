"""The state of an installation: toolchain, machine, caches, noise. Facts as data, and what deserves a warning."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from autofuse.lazydataclass import dataclass
from autofuse.measurement.timer import measure, noise_floor
from autofuse.report.quantities import microseconds
from autofuse.targets.base import Findings, find_backend
from autofuse.targets.registry import offered

_REQUIRED = ("numpy", "scipy", "ml_dtypes", "llvmlite")
_OPTIONAL = {
    "scikit-learn": "tune",
    "optuna": "tune",
    "rich": "tune",
    "matplotlib": "tune",
    "cupy-cuda13x": "cuda",
    "jaxlib": "jax",
    "jax": "jax",
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
    targets: dict[str, Findings]
    """By name."""
    perf: dict[str, Any]
    noise: dict[str, float]
    """An A/A run: the call's microseconds, and the differences below which nothing can be told apart."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "versions": self.versions,
            "targets": {name: dict(found.facts) for name, found in self.targets.items()},
            "perf": self.perf,
            "noise": self.noise,
            "warnings": list(self.warnings),
        }


def diagnose(*, ask_driver: bool = False) -> Diagnosis:
    """Look around; takes about a second. `ask_driver`: see `Backend.diagnosis`."""
    noise, versions = _noise(), _versions()
    targets = {name: find_backend(name).diagnosis(ask_driver=ask_driver) for name in offered()}
    warnings = [warning for found in targets.values() for warning in found.warnings]
    return Diagnosis(versions, targets, _perf(), noise, (*warnings, *_warnings(noise, versions)))


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


def _perf() -> dict[str, Any]:
    paranoid = _PARANOID.read_text().strip() if _PARANOID.exists() else None
    return {"program": shutil.which("perf"), "paranoid": None if paranoid is None else int(paranoid)}


def _noise() -> dict[str, float]:
    """An A/A run of a pass over memory that takes some 100 us."""
    x = np.ones(1 << 18, np.float32)
    out = np.empty_like(x)

    def call() -> None:
        np.add(x, x, out=out)

    call_us = measure(call).median_us
    floor_us = noise_floor(call, 20)
    return {"call_us": call_us, "floor_us": floor_us, "share": floor_us / call_us}


def _warnings(noise: dict[str, float], versions: dict[str, str | None]) -> Iterator[str]:
    if noise["share"] > _NOISY:
        yield f"noisy: a call timed against itself differs by {noise['share']:.0%}; other work is running"
    if versions["optuna"] is None:
        yield "tuning schedules needs Optuna: pip install 'autofuse[tune]'"


def render(found: Diagnosis) -> str:
    """The diagnosis as text."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if version is not None)
    missing = ", ".join(f"{name} [{_OPTIONAL[name]}]" for name in _OPTIONAL if found.versions[name] is None)
    noise = (
        f"{microseconds(found.noise['floor_us'])} on a call of {microseconds(found.noise['call_us'])} "
        f"({found.noise['share']:.1%}), timed against itself"
    )
    told = [line for target in found.targets.values() for line in target.lines]
    lines = [
        ("versions", versions),
        ("missing", missing or "nothing"),
        *told,
        ("perf", _perf_text(found.perf)),
        ("noise", noise),
    ]
    texts = [f"{word:<12} {text}" for word, text in lines] + [f"warning: {warning}" for warning in found.warnings]
    return "\n".join(texts) + "\n"


def _perf_text(perf: dict[str, Any]) -> str:
    program = perf["program"] or "not installed"
    return program if perf["paranoid"] is None else f"{program}, perf_event_paranoid {perf['paranoid']}"
