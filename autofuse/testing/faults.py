"""The bench's runners, with kernels and plans that fail in the way that their name says."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from autofuse.measurement import bench
from autofuse.measurement.bench import open_session, time_again
from autofuse.measurement.checks import WrongAnswerError
from autofuse.measurement.worker import Wait

__all__ = ["compile_kernels", "open_session", "time_again", "time_kernel", "time_plans"]

Arrays = Mapping[str, NDArray[Any]]
Payload = Mapping[str, Any]


def time_kernel(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does, but for outputs called `crash`, `hang`, `wrong` and `raise`."""
    match payload["outputs"][0]:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            wait.up_to(0.2)
            threading.Event().wait()
        case "wrong":
            raise WrongAnswerError("%wrong[0] is off")
        case "raise":
            raise ZeroDivisionError("by hand")
        case _:
            pass
    return bench.time_kernel(payload, arrays, wait)


def compile_kernels(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does, but for an output called `crash`."""
    if payload["outputs"][0] == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return bench.compile_kernels(payload, arrays, wait)


def time_plans(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does, but for plans called `crash`."""
    if any('"name": "crash"' in text for text in payload["plans"]):
        os.kill(os.getpid(), signal.SIGSEGV)
    return bench.time_plans(payload, arrays, wait)
