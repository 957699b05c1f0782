"""The tuner's side of the worker: jobs with deadlines, and a new worker when one is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass, field
from autofuse.measurement.channel import Channel, ChannelClosedError, DeadlineError, Message
from autofuse.measurement.records import Status
from autofuse.measurement.worker import check_runner_name

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from autofuse.measurement.worker import main; raise SystemExit(main(sys.argv[2:]))"
)
"""The worker finds modules exactly where this process does."""
_START_S = 60.0
_GOODBYE_S = 2.0
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals that no code of a kernel causes: the system sends the first where memory is short."""
QUIET = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""Set in workers that time: threads that the interpreter's products leave behind sleep at once (see `timer.rest`)."""
_NOTHING: Mapping[str, Any] = {}
_NO_MEMORY = ("out of memory", "bad_alloc")
"""What LLVM and the C++ library print before they end the process."""
_TAIL_BYTES = 4000


class WorkerLostError(MeasureError):
    """A worker can do nothing more, or nothing for this program. What it was to do is left undone."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to do in the worker."""

    runner: str
    """`package.module:function`; see `autofuse.measurement.worker` for its contract."""
    payload: Mapping[str, Any]
    """JSON data."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    build_s: float = 60.0
    """Deadline for everything until the runner says how long the rest may take, or answers."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    status: Status
    message: str
    """Empty when `ok`."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    build_s: float = 0.0
    """Time until the runner said how long the rest may take, or until the end if it did not."""
    run_s: float = 0.0


class JobWorker(Protocol):
    """What does jobs for one tuner: a process beside it (`Worker`), or a device that is leased elsewhere."""

    clock: Callable[[], float]
    """Seconds, for how long jobs took."""

    @property
    def restarts(self) -> int:
        """Processes lost so far, and with each what it held."""
        ...

    def run(self, job: Job) -> Outcome:
        """Do a job. Raises MeasureError where none can be done, WorkerLostError where another worker may do it."""
        ...

    def renew(self) -> None:
        """Have the next job done by another process."""
        ...

    def close(self, *, patiently: bool = True) -> None:
        """End the process; `patiently` lets it leave by itself first."""
        ...


class Worker:
    """One worker process, started when the first job comes and again after it was lost.

    Use it from one thread, as a context manager: leaving the block, by Ctrl-C too, ends the process. It is a session
    of its own, so that whatever a candidate starts ends with it.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`environment`: variables to set in the worker, on top of this process's own.

        `clock`: seconds, for how long jobs took. Deadlines are by the monotonic one.
        """
        self.restarts = 0
        """Workers lost so far."""
        self.clock = clock
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._built_at: float | None = None
        self._limit_s = 0.0
        self._errors = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close(patiently=kind is None)

    def close(self, *, patiently: bool = True) -> None:
        """End the process: `patiently` lets it leave by itself first."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None and patiently:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GOODBYE_S)
        self._kill()
        self._errors.close()

    def renew(self) -> None:
        """End the process, if there is one: the next job gets another."""
        self._kill()

    def run(self, job: Job) -> Outcome:
        """Do a job. A crash, a hang or a wrong answer is an Outcome and never an exception.

        Raises MeasureError if the runner's name is not allowed, the payload is not JSON, or no worker can be started.
        Ctrl-C passes through, after the worker has been killed.
        """
        check_runner_name(job.runner)
        start = self.clock()
        try:
            return self._run(job)
        except DeadlineError as late:
            phase = "build" if self._built_at is None else "run"
            self._kill()
            return self._ended("timeout", f"{phase} deadline of {self._limit_s:g} s passed: {late}", start)
        except ChannelClosedError:
            return self._ended(*self._obituary(), start)
        except BaseException:
            self._kill()
            raise

    def interrupt(self) -> None:
        """End the process from another thread: a job that runs ends as killed."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _run(self, job: Job) -> Outcome:
        self._built_at = None
        channel = self._connected()
        start = self.clock()
        self._limit_s = job.build_s
        deadline = time.monotonic() + job.build_s
        channel.send(Message("job", {"runner": job.runner, "payload": job.payload}, job.arrays), deadline)
        while (answer := channel.receive(deadline)).type == "wait":
            self._built_at = self.clock() if self._built_at is None else self._built_at
            self._limit_s = float(answer.data["seconds"])
            deadline = time.monotonic() + self._limit_s
        return self._outcome(answer, start)

    def _outcome(self, answer: Message, start: float) -> Outcome:
        match answer.type:
            case "ok":
                return self._ended("ok", "", start, answer.data)
            case "wrong" | "refused" | "error" | "memory" as status:
                return self._ended(status, str(answer.data.get("message", "")), start)
            case "crash":
                self._kill()
                return self._ended("crash", str(answer.data.get("message", "")), start)
            case _:
                self._kill()
                return self._ended("error", f"the worker sent {answer.type!r:.40} out of turn", start)

    def _ended(self, status: Status, message: str, start: float, data: Mapping[str, Any] = _NOTHING) -> Outcome:
        end = self.clock()
        built_at = end if self._built_at is None else self._built_at
        return Outcome(status, message, data, built_at - start, end - built_at)

    def _connected(self) -> Channel:
        """A channel to a living worker; one that died between jobs is replaced."""
        if self._process is not None and self._process.poll() is not None:
            self._kill()
        if self._channel is None:
            self._start()
        assert self._channel is not None
        return self._channel

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._errors.seek(0)
        self._errors.truncate()
        arguments = [json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **self._environment},
            )
        except OSError as failure:
            ours.close()
            raise MeasureError(f"cannot start the measuring process {sys.executable}: {failure}") from failure
        finally:
            theirs.close()
        self._channel = Channel(ours)
        try:
            self._channel.receive(time.monotonic() + _START_S)
        except DeadlineError:
            self._kill()
            raise MeasureError(f"the measuring process did not start within {_START_S:g} s") from None
        except ChannelClosedError:
            raise MeasureError(f"the measuring process does not start: {self._obituary()[1]}") from None

    def _kill(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self.restarts += 1

    def _obituary(self) -> tuple[Status, str]:
        """What the worker died of, with the end of what it printed."""
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GOODBYE_S)
        self._kill()
        code = process.returncode
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _TAIL_BYTES))
        tail = self._errors.read().decode(errors="replace").strip()
        message = f"the worker died: {cause}" + (f"\n{tail}" if tail else "")
        if any(words in tail for words in _NO_MEMORY):
            return "memory", message
        return "killed" if -code in _FROM_OUTSIDE else "crash", message
