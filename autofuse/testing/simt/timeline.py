"""Streams of a simulated device: what is started waits, and runs in any order that streams and events allow.

An operation needs others: the one before it in its stream, and those that its stream waits for. Nothing runs before
somebody waits for it; then operations that may run are drawn from a seed until it is done. What was forgotten to be
waited for is seldom done by then: the answer is wrong, or memory is not there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock

from autofuse.errors import BackendError


def nothing() -> None:
    """What an operation does that others wait for only."""


class Operation:
    """Work that was started. An event is the operation that it was recorded behind."""

    __slots__ = ("ends_ns", "is_done", "needs", "run", "tidies")

    def __init__(self, run: Callable[[], None], needs: tuple[Operation, ...], *, tidies: bool) -> None:
        """`tidies`: run even after a failure, since the device's books depend on it."""
        self.run, self.needs, self.tidies = run, needs, tidies
        self.is_done = False
        self.ends_ns = 0


class Timeline:
    """All that was started on a device and is not done."""

    def __init__(self, seed: int) -> None:
        """`seed`: of the order in which operations run that may run in any."""
        self.lock = RLock()
        self._random = random.Random(seed)
        self._pending: list[Operation] = []
        self._free_ns = self._end_ns = 0

    @property
    def now_ns(self) -> int:
        """When all that was started ends."""
        return self._end_ns

    def pause(self, nanoseconds: int) -> None:
        """Let time pass in which nothing is started."""
        with self.lock:
            self._end_ns += nanoseconds
            self._free_ns = self._end_ns

    def add(
        self,
        run: Callable[[], None],
        needs: Iterable[Operation] = (),
        *,
        takes_ns: int = 0,
        share: float = 1.0,
        tidies: bool = False,
    ) -> Operation:
        """Start something. `share`: of the device that it keeps busy; others have the rest meanwhile."""
        with self.lock:
            there = tuple(needs)
            begins = max([self._free_ns if takes_ns else 0, *(operation.ends_ns for operation in there)])
            made = Operation(run, tuple(operation for operation in there if not operation.is_done), tidies=tidies)
            made.ends_ns = begins + takes_ns
            if takes_ns:
                self._free_ns = begins + round(takes_ns * share)
            self._end_ns = max(self._end_ns, made.ends_ns)
            self._pending.append(made)
            return made

    def finish(self, wanted: Operation | None = None) -> None:
        """Run until an operation is done, or all are. Raises BackendError if one fails; then none is left."""
        with self.lock:
            while self._pending if wanted is None else not wanted.is_done:
                ready = [o for o in self._pending if all(need.is_done for need in o.needs)]
                self._run(self._random.choice(ready))

    def _run(self, operation: Operation) -> None:
        self._pending.remove(operation)
        try:
            operation.run()
        except BackendError:
            self._give_up()
            raise
        finally:
            _end(operation)

    def _give_up(self) -> None:
        """After a failure nothing that was started runs any more."""
        for operation in self._pending:
            if operation.tidies:
                with suppress(BackendError):  # the first failure is told
                    operation.run()
            _end(operation)
        self._pending.clear()


def _end(operation: Operation) -> None:
    operation.is_done, operation.needs, operation.run = True, (), nothing


class SimulatedStream:
    """Operations one after another. Has what of CuPy's streams callers need."""

    def __init__(self, timeline: Timeline, use: Callable[[SimulatedStream | None], None]) -> None:
        """`use`: makes a stream the current one of this thread; None: the one that was so before."""
        self.timeline, self._use = timeline, use
        self.is_captured = False
        """Whether somebody records what is started in it, in place of having it done."""
        self._last: Operation | None = None

    def add(self, run: Callable[[], None], *, takes_ns: int = 0, share: float = 1.0, tidies: bool = False) -> Operation:
        """Start something behind what was started before."""
        with self.timeline.lock:
            self._last = self.timeline.add(run, self._before(), takes_ns=takes_ns, share=share, tidies=tidies)
            return self._last

    def record(self) -> Operation:
        """An event: all that was started in it until now."""
        return self._last if self._last is not None else self.add(nothing)

    def wait_event(self, event: Operation) -> None:
        """Have what is started from now on wait for an event."""
        with self.timeline.lock:
            self._last = self.timeline.add(nothing, (*self._before(), event))

    def synchronize(self) -> None:
        """Wait for all of it."""
        if self._last is not None:
            self.timeline.finish(self._last)

    def _before(self) -> tuple[Operation, ...]:
        return () if self._last is None else (self._last,)

    def __enter__(self) -> SimulatedStream:
        self._use(self)
        return self

    def __exit__(self, *failure: object) -> None:
        self._use(None)
