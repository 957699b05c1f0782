"""The worker process: takes jobs, runs them, answers. `autofuse.measurement.pool` starts it.

A job names a runner, a function inside autofuse:

    def runner(payload, arrays, built) -> Answer

It gets the job's JSON payload and arrays, prepares (compiles), calls `built()` once, then runs and times. It raises
`WrongAnswerError` if the kernel computes something wrong, and any other exception if something fails.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from numpy.typing import NDArray

from autofuse.errors import AutofuseError, MeasureError
from autofuse.measurement.channel import Channel, ChannelClosedError, Message
from autofuse.measurement.checks import WrongAnswerError

RUNNER = re.compile(r"autofuse(\.[a-z_][a-z0-9_]*)+:[a-z_][a-z0-9_]*")
"""What may be named as a runner: a module-level function of this package."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a runner returns."""

    data: Mapping[str, Any]
    """JSON data."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])


Runner = Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]], Callable[[], None]], Answer]


def check_runner_name(name: str) -> None:
    """Raise MeasureError unless `name` is of the form `autofuse.module:function`."""
    if not RUNNER.fullmatch(name):
        raise MeasureError(f"{name!r:.100} is no runner; give 'autofuse.MODULE:FUNCTION'")


def find_runner(name: str) -> Runner:
    """The function that `name` stands for. Raises MeasureError if there is none, or if it is not autofuse's own."""
    check_runner_name(name)
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
        function: Any = getattr(module, function_name)
    except (ImportError, AttributeError) as bad:
        raise MeasureError(f"there is no runner {name!r}: {bad}") from bad
    if not callable(function) or not str(getattr(function, "__module__", "")).startswith("autofuse."):
        raise MeasureError(f"{name!r} is not a function of autofuse")
    return cast("Runner", function)


def serve(channel: Channel) -> None:
    """Answer jobs until the tuner closes the connection."""
    channel.send(Message("ready"))
    while True:
        try:
            job = channel.receive()
        except ChannelClosedError:
            return
        answer = _run(job, channel)
        try:
            channel.send(answer)
        except ChannelClosedError:
            return
        except AutofuseError as bad:  # raised before anything was sent: the answer cannot be put into a message
            channel.send(Message("error", {"message": str(bad)}))


def _run(job: Message, channel: Channel) -> Message:
    try:
        runner = find_runner(str(job.data.get("runner", "")))
        answer = runner(job.data["payload"], job.arrays, lambda: channel.send(Message("built")))
        return Message("ok", dict(answer.data), answer.arrays)
    except ChannelClosedError:
        raise
    except WrongAnswerError as wrong:
        return Message("wrong", {"message": str(wrong)})
    except AutofuseError as bad:
        return Message("error", {"message": str(bad)})
    except Exception as bad:  # noqa: BLE001 - the process boundary: whatever a candidate raises costs one record
        where = "".join(traceback.format_tb(bad.__traceback__)[-3:])
        return Message("error", {"message": f"{type(bad).__name__}: {bad}\n{where}"})


def _die_with(parent: int) -> None:
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
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the tuner's to handle
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        serve(channel)
    except ChannelClosedError:
        return 1
    return 0
