"""Runners that do what kernels under test may do: compute, hang, crash, be wrong, talk too much."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.measurement.checks import WrongAnswerError
from autofuse.measurement.worker import Wait

Arrays = Mapping[str, NDArray[Any]]
Payload = Mapping[str, Any]


def fine(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """Echo the payload, and the arrays as lists."""
    wait.up_to(payload.get("run_s", 30.0))
    listed = {name: [str(array.dtype), array.tolist()] for name, array in arrays.items()}
    return {"echo": payload, "pid": os.getpid(), "arrays": listed}


def behave(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """Do what `payload["building"]` says, say how long to wait (`run_s`), do what `payload["running"]` says."""
    del arrays
    _BEHAVIOURS[payload.get("building", "nothing")]()
    wait.up_to(payload.get("run_s", 30.0))
    result = _BEHAVIOURS[payload.get("running", "nothing")]()
    return {"result": result}


def twice(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """Say how long to wait, and then again."""
    wait.up_to(payload.get("run_s", 30.0))
    return fine(payload, arrays, wait)


def child(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """Start a process of its own, write both process ids to `payload["pids"]`, and hang."""
    pid = os.fork()
    if pid == 0:
        threading.Event().wait()
    with open(f"{payload['pids']}.part", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {pid}")
    os.replace(f"{payload['pids']}.part", payload["pids"])
    threading.Event().wait()
    return fine(payload, arrays, wait)


def _hang_in_native_code() -> None:
    """Hold Python's lock, and ignore every signal that can be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(100_000)


def _wrong() -> None:
    raise WrongAnswerError("y[0, 1] is off: got 2.0, expected 1.0")


def _be_refused() -> None:
    raise BackendError("there is no such instruction")


def _abort_without_memory() -> None:
    os.write(2, b"LLVM ERROR: out of memory\n")
    os.abort()


_BEHAVIOURS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "read address 0": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "hang": _hang_in_native_code,
    "be wrong": _wrong,
    "be refused": _be_refused,
    "be killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort without memory": _abort_without_memory,
    "divide by zero": lambda: 1 // 0,
    "exhaust memory": lambda: bytearray(1 << 60),
    "print a lot": lambda: os.write(1, b"noise\n" * 100_000),
    "return a set": lambda: {1, 2},
    "return nan": lambda: float("nan"),
}
