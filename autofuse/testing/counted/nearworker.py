"""A measuring worker that is no process: for targets whose times this one has no part in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from autofuse.measurement.channel import Message
from autofuse.measurement.records import Status
from autofuse.measurement.worker import answer
from autofuse.measurement.workerpool import Job, Outcome, Worker


class DeathError(BaseException):
    """The worker ends, as a process does of which nothing is left. Raised where it works."""

    def __init__(self, status: Status = "crash", message: str = "it crashed") -> None:
        """How the job at hand ends."""
        super().__init__(message)
        self.status: Status = status


class NearWorker(Worker):
    """Does jobs where it is asked to. What hangs there, or crashes by anything but a DeathError, takes the process."""

    def __init__(
        self,
        environment: object = None,
        clock: Callable[[], float] = time.monotonic,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`environment`: this process's own is kept. `around`: entered for each job."""
        del environment
        super().__init__(clock=clock)
        self._around = around

    def renew(self) -> None:
        self.restarts += 1

    def _run(self, job: Job) -> Outcome:
        start, self._built_at = self.clock(), None
        arrays = {name: array.copy() for name, array in job.arrays.items()}
        data = {"runner": job.runner, "payload": json.loads(json.dumps(job.payload))}
        try:
            with self._around():
                return self._outcome(answer(Message("job", data, arrays), self._begins), start)
        except DeathError as death:
            self.restarts += 1
            return self._ended(death.status, str(death), start)

    def _begins(self, seconds: float) -> None:
        """What is built runs, and has all the time that it needs."""
        del seconds
        self._built_at = self.clock() if self._built_at is None else self._built_at
