"""A measuring worker that is a thread of this process: for targets whose times the process has no part in."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Thread

from autofuse.measurement.channel import Channel
from autofuse.measurement.records import Status
from autofuse.measurement.worker import serve
from autofuse.measurement.workerpool import Worker


class DeathError(BaseException):
    """A worker ends as a process does of which nothing is left. Raised there."""

    def __init__(self, status: Status = "crash", message: str = "it crashed") -> None:
        """How the job at hand ends."""
        super().__init__(message)
        self.status: Status = status


class NearWorker(Worker):
    """Starts at once. What hangs there, or crashes by anything but a DeathError, takes the process with it."""

    def __init__(
        self,
        environment: object = None,
        clock: Callable[[], float] = time.monotonic,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`environment`: this process's own is kept. `around`: entered by the thread before it works."""
        del environment
        super().__init__(clock=clock)
        self._around = around
        self._death = DeathError("crash", "the worker is gone")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        Thread(target=self._serve, args=(theirs,), daemon=True).start()
        self._channel = Channel(ours)
        self._channel.receive()

    def _kill(self) -> None:
        self.restarts += self._channel is not None
        super()._kill()

    def _obituary(self) -> tuple[Status, str]:
        self._kill()
        return self._death.status, str(self._death)

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            with self._around():
                serve(channel)
        except DeathError as death:
            self._death = death
        finally:
            with suppress(OSError):
                channel.close()
