"""Ctrl-C while modules are imported: it waits until they are there."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def interrupts_wait() -> Generator[None]:
    """Let Ctrl-C come at the end of the block: NumPy takes one that comes in its import for a broken installation."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
