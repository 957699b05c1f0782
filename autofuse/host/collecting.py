"""Fewer rounds of Python's garbage collector while much is made that stays.

A compiler makes hundreds of thousands of objects that live until it is done. The collector walks over the young ones
after each 700, and over all of a process now and then: with JAX in it that is a tenth of a first call, for nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

_YOUNG = 50_000
"""Objects that are made between two rounds: a few megabytes."""

_lock = threading.Lock()
_under_way = 0
_before: tuple[int, int, int] | None = None
"""What the process had set before the first of those under way; None where it has as many, or none are collected."""


@contextmanager
def collecting_less() -> Generator[None]:
    """The collector comes rarely while this is under way, in whatever thread; then as often as before.

    It is never turned on or off, and what others set meanwhile stays.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _under_way, _before  # noqa: PLW0603 - the collector is the process's
    with _lock:
        _under_way += 1
        if _under_way > 1:
            return
        found = gc.get_threshold()
        _before = found if 0 < found[0] < _YOUNG else None
        if _before is not None:
            gc.set_threshold(_YOUNG, *found[1:])


def _leave() -> None:
    global _under_way, _before  # noqa: PLW0603 - as above
    with _lock:
        _under_way -= 1
        if _under_way == 0 and _before is not None:
            if gc.get_threshold() == (_YOUNG, *_before[1:]):
                gc.set_threshold(*_before)
            _before = None
