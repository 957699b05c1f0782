"""Everything beside a plan's text that decides what code it becomes here: this package, its libraries, the machine."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from autofuse.targets.registry import folders

_LIBRARIES = ("llvmlite", "ml_dtypes", "scipy")
_PACKAGES = ("api", "fusion", "host", "ir", "lower", "plan", "runtime", "targets")
_SOURCES = (".py", ".ll")


@functools.cache
def fingerprint(*packages: str) -> str:
    """A digest (hex) that differs where a plan could become other code. Takes a millisecond or two.

    `packages`: others of autofuse that decide what the digest is for.
    """
    facts = [
        *_toolchain(),
        *(line for package in sorted({*_PACKAGES, *folders(), *packages}) for line in _package(package)),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


@functools.cache
def _toolchain() -> tuple[str, ...]:
    libraries = (_library(name) for name in _LIBRARIES)
    return sys.version, platform.machine(), np.__version__, _first_cpu(), *libraries


@functools.cache
def _package(name: str) -> tuple[str, ...]:
    return tuple(sorted(_sources(os.path.join(Path(__file__).parents[1], name))))


def _first_cpu() -> str:
    """What the system says of the first CPU, but for what changes from moment to moment."""
    try:
        block = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0]
    except OSError:
        return ""
    return "\n".join(line for line in block.splitlines() if "MHz" not in line)


def _library(name: str) -> str:
    """Where a library lies and when it was installed; found without importing it."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return name
    status = os.stat(spec.origin)
    return f"{spec.origin} {status.st_size} {status.st_mtime_ns}"


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SOURCES):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
