"""Calls of very unequal length timed side by side: slow ones are called less often, and the slowest only foretold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interleaved import Samples, interleave

FEW = 3
"""Timed calls of a side that is too slow to be called as often as the others."""
_EACH_BLOCK, _BEFORE = 4, 2
"""Calls that `interleave` makes of a slow side: in each block, and before the first."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Names of sides, by how much of them there is time for."""

    interleaved: tuple[str, ...]
    """In turns with each other."""
    few: tuple[str, ...]
    """One untimed call and `FEW` timed ones, after the others."""
    foretold: tuple[str, ...]
    """None: even these take too long."""


def sort_by_time(seconds: Mapping[str, float], blocks: int, most_seconds: float) -> Sorted:
    """Who may be called how often, when a call takes `seconds` and all calls of a side at most `most_seconds`."""
    turns = _BEFORE + blocks * _EACH_BLOCK
    return Sorted(
        tuple(name for name, s in seconds.items() if s * turns <= most_seconds),
        tuple(name for name, s in seconds.items() if s * turns > most_seconds >= s * (FEW + 1)),
        tuple(name for name, s in seconds.items() if s * (FEW + 1) > most_seconds),
    )


def timed(
    calls: Mapping[str, Callable[[], Any]], few: tuple[str, ...], blocks: int, block_seconds: float, seed: int
) -> dict[str, Samples]:
    """Microseconds of calls by side and block; sides of `few` have one block."""
    turns = {name: call for name, call in calls.items() if name not in few}
    samples = interleave(turns, blocks, block_seconds, seed, resting=True) if turns else {}
    return samples | {name: [_few_calls(calls[name])] for name in few}


def _few_calls(call: Callable[[], Any]) -> list[float]:
    call()
    found: list[float] = []
    for _ in range(FEW):
        begun = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - begun) / 1e3)
    return found
