"""The bench's runners on a simulated device that takes the time that its clock says: the host waits, as for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, sleep
from typing import Any

from numpy.typing import NDArray

from autofuse.measurement import bench
from autofuse.measurement.bench import compile_kernels, open_session
from autofuse.measurement.worker import Runner, Wait
from autofuse.targets.base import find_target

__all__ = ["compile_kernels", "open_session", "time_again", "time_kernel", "time_plans"]
RUNNERS = bench.RUNNERS
Payload = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


def time_kernel(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does."""
    return _paced(bench.time_kernel, payload, arrays, wait)


def time_again(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does."""
    return _paced(bench.time_again, payload, arrays, wait)


def time_plans(payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    """As the bench does."""
    return _paced(bench.time_plans, payload, arrays, wait)


def _paced(runner: Runner, payload: Payload, arrays: Arrays, wait: Wait) -> dict[str, Any]:
    device = find_target("simulated")
    began_ns, began = device.clock(), perf_counter()
    answer = runner(payload, arrays, wait)
    sleep(max(0.0, (device.clock() - began_ns) / 1e9 - (perf_counter() - began)))
    return answer
