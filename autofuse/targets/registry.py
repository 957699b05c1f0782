"""The targets there are, by name. Nothing else in this package names one."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from autofuse.errors import ArgumentError, AutofuseError, BackendError, did_you_mean

_BACKENDS = {
    "cpu": ("autofuse.targets.cpu.backend", "CpuBackend"),
    "cuda": ("autofuse.targets.cuda.backend", "CudaBackend"),
    "simulated": ("autofuse.testing.simt.backend", "SimulatedBackend"),
    "counted": ("autofuse.testing.counted.backend", "CountedBackend"),
}
"""One line for each: the module and the class of its `autofuse.targets.base.Backend`. The first one is the default."""

DEFAULT = next(iter(_BACKENDS))

_made: dict[str, Any] = {}


def names() -> tuple[str, ...]:
    """The names of all targets."""
    return tuple(_BACKENDS)


def offered() -> tuple[str, ...]:
    """The names that users are told of. Those that lie elsewhere are for whoever works on targets."""
    return tuple(name for name, (module, _) in _BACKENDS.items() if module.startswith("autofuse.targets."))


def folders() -> tuple[str, ...]:
    """Where the code of targets lies in the package, beside this folder and what is in it."""
    found = ("/".join(module.split(".")[1:-1]) for module, _ in _BACKENDS.values())
    return tuple(folder for folder in found if not folder.startswith("targets/"))


def backend_named(name: object) -> Any:
    """The backend of a name, made once per process; `autofuse.targets.base.find_backend` says what it can do.

    Raises ArgumentError for a name that there is not, BackendError for a backend that cannot be made.
    """
    if not isinstance(name, str) or name not in _BACKENDS:
        hint = did_you_mean(repr(name), map(repr, offered()), cutoff=0.6) if isinstance(name, str) else ""
        raise ArgumentError(f"backend={name!r:.60} is unknown: must be {' or '.join(map(repr, offered()))}{hint}")
    if name not in _made:
        module, kind = _BACKENDS[name]
        with asking(name, "Backend"):
            _made[name] = getattr(importlib.import_module(module), kind)()
    return _made[name]


@contextmanager
def asking(name: object, piece: str, error: type[AutofuseError] = BackendError) -> Generator[None]:
    """Turn whatever a piece of a target raises, but for what it may, into one error that names both."""
    try:
        yield
    except (AutofuseError, MemoryError):
        raise
    except Exception as raised:
        raise error(f"target {name!r}: {piece} raised {type(raised).__name__}: {raised}") from raised
