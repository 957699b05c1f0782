"""Amounts and modes that a user gives: numbers of Python or NumPy; what is none is refused by its name."""

from __future__ import annotations

import math

import numpy as np

from autofuse.errors import ArgumentError

DEADLINE_S = 2.0
"""Seconds for choosing fusions where nothing is said about a deadline."""


def check_numerics(value: str) -> str:
    """What was given as `numerics`. Raises ArgumentError."""
    if value not in ("strict", "fast"):
        raise ArgumentError(f'numerics={value!r:.80}: give "strict" or "fast"')
    return value


def whole_number(name: str, value: object, least: int, such_as: str = "") -> int:
    """A whole number of at least `least`, as an int. Raises ArgumentError; `such_as`: an example for its message."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    example = f", such as {such_as}" if such_as else ""
    raise ArgumentError(f"{name}={value!r:.80}: must be a whole number from {least}{example}")


def positive_seconds(name: str, value: object, otherwise: str) -> float:
    """Seconds, finite and above 0, as a float. Raises ArgumentError; `otherwise`: what to give for no limit."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        seconds = float(value)
        if 0 < seconds < math.inf:
            return seconds
    raise ArgumentError(f"{name}={value!r:.80}: must be a number of seconds above 0; for no limit in time {otherwise}")
