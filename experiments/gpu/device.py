"""Arrays and clocks of the device that a step runs on: a GPU through CuPy, or the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np
from turns import await_turn

from autofuse.measurement.timer import Timing, TimingPolicy, measure

Task = Mapping[str, Any]
POLICY = TimingPolicy(time_cap_us=500_000.0, min_sample_us=1_000.0)
"""Of calls as the host sees them, in samples so long that waiting for the last one's results hardly counts."""
ALONE = TimingPolicy(time_cap_us=500_000.0, min_sample_us=0.0)
"""Of single calls by the device's clock, which does not count what the host needs for their start."""
_GETTING_READY = 3
"""Calls until a program is as fast as it will be: compiled, allocated, and captured as a graph."""


def timed(call: Callable[[], object], clock: Callable[[], int]) -> Timing:
    """What a call takes, when this process may be timed. It gets ready before."""
    for _ in range(_GETTING_READY):
        call()
    clock()
    await_turn()
    return measure(call, POLICY, clock)


def array_maker(task: Task) -> Callable[[Any], Any]:
    """What copies an array of the host to the device."""
    if task["backend"] == "cuda":
        import cupy

        return lambda part: _copied(cupy, part)
    from autofuse.targets.base import find_target

    target: Any = find_target(task["backend"])
    return target.driver.array


def _copied(cupy: Any, part: Any) -> Any:
    """bf16, which CuPy does not make arrays of, goes as its bits."""
    if part.dtype.kind != "V" and part.dtype.name != "bfloat16":
        return cupy.array(part)
    return cupy.array(part.view(np.uint16)).view(part.dtype)


def there(task: Task, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of arguments on the device."""
    make = array_maker(task)
    return mapped(lambda part: make(part) if isinstance(part, np.ndarray) else part, given)


def callers_clock(task: Task, target: Any) -> Callable[[], int]:
    """The host's, when all that was started is done: what a caller waits for. Simulated devices have their own."""
    if task["backend"] != "cuda":
        return target.clock

    def clock() -> int:
        target.driver.wait()
        return perf_counter_ns()

    return clock


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: mapped(change, part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(mapped(change, part) for part in value)
    return change(value)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


def host(array: Any) -> Any:
    """A copy on the host."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def error_of(found: Any, expected: Any) -> float:
    """The norm of the difference over the norm of the expected; infinite where NaN or integers differ."""
    if expected.dtype.kind in "biu":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    return float(np.linalg.norm((a - b)[finite]) / max(float(np.linalg.norm(b[finite])), 1e-30))
