"""What a worker of a cluster says of itself before it measures anything: versions, device, noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.host.cputimes import cpu_times, others_between
from autofuse.measurement.cluster.protocol import toolchain
from autofuse.measurement.worker import Wait
from autofuse.plan.identity import identity_from, identity_to_json
from autofuse.strictjson import Item
from autofuse.targets.base import target_for

RUNNERS = ("introduce",)
"""What the worker may be asked for."""

_REPEATS = 32
_ELEMENTS = 1 << 16
_LOOKED_S = 0.1
"""Least time over which what others do is looked at: the system counts in hundredths of a second."""


def introduce(payload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], wait: Wait) -> dict[str, Any]:
    """Runner: the identity of the device that is here, where one like `identity`, of the payload, is asked for.

    Answer: `toolchain`; `identity`; `description` (see `Target.fingerprint`); `noise`, by how much a fixed computation
    of the host mostly takes longer than at best, as a share; `load`, how many cores others keep busy, or null. Raises
    what the target raises where there is no such device.
    """
    del arrays, wait
    target = target_for(identity_from(Item(payload["identity"], "identity", MeasureError, "introduction")))
    target.clock()  # raises where plans can be made for the device, and it is not here
    before, start = cpu_times(), perf_counter()
    noise = _noise()
    sleep(max(0.0, _LOOKED_S - (perf_counter() - start)))
    return {
        "toolchain": toolchain(),
        "identity": identity_to_json(target.identity),
        "description": target.fingerprint(),
        "noise": noise,
        "load": others_between(before, cpu_times()),
    }


def _noise() -> float:
    values = np.linspace(0.0, 1.0, _ELEMENTS)
    out = np.empty_like(values)
    taken: list[float] = []
    for _ in range(_REPEATS):
        start = perf_counter()
        np.exp(values, out=out)
        taken.append(perf_counter() - start)
    return statistics.median(taken) / min(taken) - 1.0
