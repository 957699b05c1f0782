"""Ctrl-C while modules are imported waits until they are there; a request to end is taken like Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_wait() -> Generator[None]:
    """Let Ctrl-C come at the end of the block: NumPy takes one that comes in its import for a broken installation."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Termination:
    """Whether SIGTERM came. The first one is a KeyboardInterrupt, so that what there is can be saved."""

    came = False

    def take(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle the signal; another one ends the process at once."""
        self.came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt


@contextmanager
def termination_interrupts() -> Generator[Termination]:
    """Take SIGTERM, as batch systems and containers send it, like Ctrl-C within the block. In the main thread."""
    termination = Termination()
    before = signal.signal(signal.SIGTERM, termination.take)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
