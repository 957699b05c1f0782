"""The text of a plan file, without the modules that understand it."""

from __future__ import annotations

import os

from autofuse.errors import PlanError
from autofuse.plainfile import read_plain

MAX_PLAN_BYTES = 256 << 20
"""Longest plan text accepted; constants do not count."""


def read_plan(path: str | os.PathLike[str]) -> bytes:
    """The text of a plan file, unchecked. Raises PlanError if it cannot be read."""
    try:
        return read_plain(path, MAX_PLAN_BYTES)
    except FileNotFoundError:
        raise PlanError(f"{os.fspath(path)}: there is no such plan file") from None
    except (OSError, ValueError) as failure:
        raise PlanError(f"cannot read the plan {os.fspath(path)!r}: {failure}") from failure
