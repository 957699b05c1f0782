"""Opening files that somebody else named: plain files only, no waiting, no surprises."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from autofuse.errors import PlanError


def open_plain(path: Path, at_most: int, *, follow_links: bool) -> BufferedReader:
    """Open a regular file of at most so many bytes for reading.

    Raises PlanError for a folder, a pipe, a device or a file that is too long, OSError if it cannot be opened.
    """
    links = 0 if follow_links else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise PlanError(f"{path} is not a file, but a folder, pipe or device; give a plain file")
        if facts.st_size > at_most:
            raise PlanError(f"{path} has {facts.st_size} bytes; at most {at_most} are accepted")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


MAX_PLAN_BYTES = 256 << 20
"""Longest plan text accepted; constants do not count."""


def read_plan(path: str | os.PathLike[str]) -> bytes:
    """The text of a plan file, unchecked. Raises PlanError if it cannot be read."""
    source = Path(path)
    try:
        with open_plain(source, MAX_PLAN_BYTES, follow_links=True) as file:
            return file.read(MAX_PLAN_BYTES)
    except FileNotFoundError:
        raise PlanError(f"{source}: there is no such plan file") from None
    except (OSError, ValueError) as failure:
        raise PlanError(f"cannot read the plan {str(source)!r}: {failure}") from failure
