"""Processes that get ready beside each other and are timed one after another.

The parent holds a shared lock for each process of a batch before it starts one, and hands it down. Who is ready asks
for the lock alone: it comes when every other process is ready too or gone, and nobody else is timing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

NAME = "AUTOFUSE_STUDY_TURN"
"""The variable that tells a process of a batch its lock."""


def taken(path: Path) -> int:
    """A shared lock on a file that is there, for a process to come: a descriptor, to be closed when it has begun.

    The lock is the process's then, and goes with it.
    """
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def closed(descriptor: int | None) -> Generator[None]:
    """Close it behind a block, if there is one."""
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def await_turn() -> None:
    """Say that this process is ready to be timed, and wait until it is its turn; for one of no batch, at once."""
    if NAME in os.environ:
        fcntl.flock(int(os.environ[NAME]), fcntl.LOCK_EX)
