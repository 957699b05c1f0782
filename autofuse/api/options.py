"""Options as users give them, looked at before anything is done: one of the wrong kind is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import numpy as np

from autofuse.errors import ArgumentError
from autofuse.plainfile import require_path

_Check = Callable[[str, Any], None]


def check_options(**options: Any) -> None:
    """Raise ArgumentError for options of the wrong kind. What values mean is looked at where they are used."""
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)


def _function(name: str, value: Any) -> None:
    if not callable(value):
        raise ArgumentError(f"{name}={value!r:.80}: must be a function, got {_kind(value)}")


def _by_name(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[Any, Any]", value)):
        raise ArgumentError(f'{name}={value!r:.80}: must be a dict of arguments by name, such as {{"w": w}}')


def _switch(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name}={value!r:.80}: must be True or False, got {_kind(value)}")


def _threads(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
        raise ArgumentError(f"{name}={value!r:.80}: must be a whole number, or None for one per core")


def _no_array(name: str, value: Any) -> None:
    """Arrays compare with everything, and are never what an option takes."""
    if isinstance(value, np.ndarray | np.generic):
        raise ArgumentError(f"{name}={value!r:.80}: cannot be an array or a number of NumPy's")


def _variants(name: str, value: Any) -> None:
    _no_array(name, value)
    if value is None or isinstance(value, bool | int | float | bytes) or not value:
        raise ArgumentError(f'{name}={value!r:.80}: give "default", "auto", or choices such as "columns=joined"')
    if not isinstance(value, str) and not hasattr(value, "label"):
        raise ArgumentError(f"{name}={value!r:.80}: must be text or Choices, got {_kind(value)}")


def _path(name: str, value: Any) -> None:
    if value is not None:
        require_path(name, value)


def _rules(name: str, value: Any) -> None:
    _no_array(name, value)
    if isinstance(value, str):
        require_path(name, value)


def _static(name: str, value: Any) -> None:
    whole = value is None or (isinstance(value, Collection) and not isinstance(value, str | bytes | np.ndarray))
    if not whole:
        raise ArgumentError(f'{name}={value!r:.80}: must be a list of positions and names, such as [1] or ["mode"]')


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


_CHECKS: dict[str, _Check] = {
    "fn": _function,
    "kwargs": _by_name,
    "static": _static,
    "rules": _rules,
    "threads": _threads,
    "variants": _variants,
    **dict.fromkeys(
        ("backend", "device", "policy", "model", "legality", "numerics", "on_unsupported", "on_miss", "on_mismatch"),
        _no_array,
    ),
    **dict.fromkeys(("roll", "check_bounds", "cold", "progress", "verify"), _switch),
    **dict.fromkeys(("db", "inputs", "store", "path"), _path),
}
