"""The worker process: takes jobs, runs them, answers. `autofuse.measurement.workerpool` starts it.

A job names a runner, a function that its module lists in `RUNNERS`:

    def runner(payload, arrays, wait) -> dict

It gets the job's JSON payload and arrays, prepares (compiles), calls `wait.up_to(seconds)`, then runs and times; it
calls it again whenever it knows better how long the rest takes. Its answer is JSON data. It raises `WrongAnswerError`
if the kernel computes something wrong, DeviceLostError where nothing more can be run in this process, which then ends,
and any other exception if something fails.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import math
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from numpy.typing import NDArray

from autofuse.errors import (
    AutofuseError,
    BackendError,
    DeviceLostError,
    LegalityError,
    MeasureError,
    NotEnoughMemoryError,
    PlanError,
)
from autofuse.measurement.channel import Channel, ChannelClosedError, Message
from autofuse.measurement.checks import WrongAnswerError
from autofuse.measurement.records import Status

RUNNER = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)+:[a-z_][a-z0-9_]*")
"""What may be named as a runner: a function of a module inside a package."""
_PR_SET_PDEATHSIG = 1


class Wait:
    """Tells the tuner how long to wait for the next word: what takes longer is taken to hang, and ended."""

    def __init__(self, tell: Callable[[float], object], clock: Callable[[], float] = monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._until = -math.inf

    def up_to(self, seconds: float) -> None:
        """So long from now."""
        self._until = self._clock() + seconds
        self._tell(seconds)

    def at_least(self, seconds: float) -> None:
        """The same, unless the tuner waits as long anyway: says nothing then, which disturbs no timing."""
        if self._clock() + seconds > self._until:
            self.up_to(seconds)


Runner = Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]], Wait], dict[str, Any]]


def check_runner_name(name: str) -> None:
    """Raise MeasureError unless `name` is of the form `package.module:function`."""
    if not RUNNER.fullmatch(name):
        raise MeasureError(f"{name!r:.100} is no runner; give 'PACKAGE.MODULE:FUNCTION'")


def find_runner(name: str) -> Runner:
    """The function that `name` stands for. Raises MeasureError if its module is not there or lists no such runner."""
    check_runner_name(name)
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as bad:
        raise MeasureError(f"there is no runner {name!r}: {bad}") from bad
    if function_name not in getattr(module, "RUNNERS", ()):
        raise MeasureError(f"there is no runner {name!r}: {module_name}.RUNNERS does not list it")
    return cast("Runner", getattr(module, function_name))


def serve(channel: Channel) -> None:
    """Answer jobs until the tuner closes the connection, or nothing more can be run in this process."""
    channel.send(Message("ready"))
    while True:
        try:
            job = channel.receive()
        except ChannelClosedError:
            return
        done = answer(job, lambda seconds: channel.send(Message("wait", {"seconds": seconds})))
        try:
            channel.send(done)
        except ChannelClosedError:
            return
        except AutofuseError as bad:  # raised before anything was sent: the answer cannot be put into a message
            channel.send(Message("error", {"message": str(bad)}))
        if done.type == "crash":  # what this process had on the device is gone
            return


def answer(job: Message, tell: Callable[[float], object]) -> Message:
    """Do a job. `tell`: told for how many seconds the tuner is to wait."""
    try:
        runner = find_runner(str(job.data.get("runner", "")))
        return Message("ok", runner(job.data["payload"], job.arrays, Wait(tell)))
    except ChannelClosedError:
        raise
    except AutofuseError as bad:
        return Message(status_of(bad), {"message": str(bad)})
    except Exception as bad:  # noqa: BLE001 - the process boundary: whatever a candidate raises costs one record
        where = "".join(traceback.format_tb(bad.__traceback__)[-3:])
        return Message(status_of(bad), {"message": f"{type(bad).__name__}: {bad}\n{where}"})


def status_of(bad: Exception) -> Status:
    """What kind of failure it is that a runner raises something."""
    causes = [bad]
    while isinstance(causes[-1].__cause__, Exception):
        causes.append(causes[-1].__cause__)
    if any(isinstance(cause, MemoryError | NotEnoughMemoryError) for cause in causes):
        return "memory"
    if any(isinstance(cause, DeviceLostError) for cause in causes):
        return "crash"
    match bad:
        case WrongAnswerError():
            return "wrong"
        case BackendError() | LegalityError() | PlanError():
            return "refused"
        case _:
            return "error"


def die_with(parent: int) -> None:
    """Ask the system to kill this process when the tuner dies, also while a candidate hangs in native code."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # should memory run out, this process goes, not the tuner
    if os.getppid() != parent:
        os._exit(1)


def main(arguments: list[str]) -> int:
    """`FD PARENT`: the number of the connected socket, and the tuner's process id."""
    descriptor, parent = map(int, arguments)
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the tuner's to handle
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        serve(channel)
    except ChannelClosedError:
        return 1
    return 0
