"""Forks wait until no thread is inside LLVM: a child would find its locks held by threads that it does not have."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import ContextDecorator
from types import TracebackType


class ForkGate(ContextDecorator):
    """A decorator of functions that must not be cut in two by a fork. They may nest, and run on many threads.

    `os.fork` of another thread waits until all are outside, and others wait outside as long. Starting a program with
    `subprocess` does not wait: it copies no memory.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        """How deep each thread is inside."""
        self._forking = False

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._forking or own in self._inside)
            self._inside[own] += 1

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        own = threading.get_ident()
        with self._changed:
            self._inside[own] -= 1
            if not self._inside[own]:
                del self._inside[own]
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until only the thread that forks may be inside, and keep the others out."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._forking)
        self._forking = True
        self._changed.wait_for(lambda: self._inside.keys() <= {threading.get_ident()})

    def after_fork(self) -> None:
        """Let threads in again: in the parent."""
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """The same in the child, which has the thread that forked alone."""
        self._changed, self._forking = threading.Condition(), False


LLVM = ForkGate()
"""For what calls LLVM, or holds locks of this package while that is called."""
os.register_at_fork(before=LLVM.before_fork, after_in_parent=LLVM.after_fork, after_in_child=LLVM.after_fork_in_child)
