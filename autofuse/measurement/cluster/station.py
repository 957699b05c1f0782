"""What runs in a worker of Dask: it holds a device for one tuner at a time, and has a process of its own do the jobs.

Dask finds these functions by their names. They take and give texts and bytes. A job runs in a process beside the Dask
worker (`workerpool.Worker`), as it does where a tuner measures on its own machine: a kernel that crashes or hangs costs
neither the Dask worker nor the lease.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from autofuse.errors import AutofuseError, MeasureError
from autofuse.lazydataclass import dataclass, field
from autofuse.measurement.channel import Message
from autofuse.measurement.cluster.protocol import from_bytes, job_from, outcome_message, to_bytes
from autofuse.measurement.workerpool import QUIET, Job, Worker

_LOOK_S = 0.1
"""Between looks whether a task is still wanted."""
_DISK_FULL = os.strerror(errno.ENOSPC)
_WANTED = ("executing", "long-running")
"""States of a task of Dask that nobody has cancelled, and whose client is there."""
_UNLEASED = Message("unleased")

_Asked = tuple[Job | None, "Future[Message]"]
"""A job, or None for another process, and where the answer goes."""


@dataclass(frozen=True, slots=True)
class _Lease:
    """The device of this process, held for one tuner. Only the thread that holds it runs the worker."""

    name: str
    worker: Worker
    asked: SimpleQueue[_Asked] = field(default_factory=SimpleQueue[_Asked])


_leased: list[_Lease] = []
"""The lease of this process, at most one."""
_leasing = Lock()


def hold(name: str) -> str:
    """Hold the device until the one who asked for that cancels, or is gone. Returns why it was not held, or nothing.

    The task takes the worker's resource, so that Dask gives the device to nobody else meanwhile. It gives its place
    among the worker's threads to others.
    """
    from distributed import secede

    lease = _Lease(name, Worker(QUIET))
    with _leasing:
        if _leased:
            return "another task holds the device of this process: start a worker for each device"
        _leased.append(lease)
    try:
        secede()
        while _is_wanted():
            with suppress(Empty):
                _serve(lease, *lease.asked.get(timeout=_LOOK_S))
        return ""
    finally:
        with _leasing:
            _leased.remove(lease)
        lease.worker.close(patiently=False)
        while not lease.asked.empty():
            lease.asked.get()[1].set_result(_UNLEASED)


def perform(request: bytes) -> bytes:
    """Do a job on the device that is held for whoever sends it. All that goes wrong is an answer."""
    try:
        return to_bytes(_performed(from_bytes(request)))
    except AutofuseError as unfit:
        return to_bytes(Message("unfit", {"message": str(unfit)}))


def _performed(request: Message) -> Message:
    name, job = job_from(request) if request.type == "job" else (str(request.data.get("lease")), None)
    answer: Future[Message] = Future()
    with _leasing:
        lease = next((lease for lease in _leased if lease.name == name), None)
        if lease is None:
            return _UNLEASED
        lease.asked.put((job, answer))
    while True:
        try:
            return answer.result(timeout=_LOOK_S)
        except TimeoutError:
            if not _is_wanted():
                lease.worker.interrupt()


def _serve(lease: _Lease, job: Job | None, answer: Future[Message]) -> None:
    """Run a job, and tell how it ended, or why nothing can be run here."""
    try:
        answer.set_result(_done(lease.worker, job))
    except AutofuseError as unfit:
        answer.set_exception(unfit)
    except OSError as failure:
        answer.set_exception(MeasureError(failure.strerror or str(failure)))
    except BaseException as bad:
        answer.set_exception(MeasureError(f"{type(bad).__name__}: {bad}"))
        raise


def _done(worker: Worker, job: Job | None) -> Message:
    if job is None:
        worker.renew()
        return Message("renewed", {"restarts": worker.restarts})
    outcome = worker.run(job)
    if outcome.status == "error" and _DISK_FULL in outcome.message:  # which is no fault of the kernel's
        raise MeasureError(outcome.message)
    return outcome_message(outcome, worker.restarts)


def _is_wanted() -> bool:
    """Whether the task of Dask that this thread runs is neither cancelled nor without a client."""
    from distributed import get_worker

    worker: Any = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state in _WANTED
