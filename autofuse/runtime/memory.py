"""The static memory plan: where each intermediate lives in the arena, given when it is alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and a vector of 512 bits."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One intermediate buffer."""

    nbytes: int
    first: int
    """The step that writes it."""
    last: int
    """The last step that reads it; at least `first`."""


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Byte offsets, in the given order, and the size of the arena.

    Greedy by size: largest first, each at the lowest offset that is free during its life (Pisarchyk & Lee 2020,
    "Efficient memory management for deep neural net inference").
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].nbytes, n)):
        mine = lifetimes[number]
        busy = sorted(
            (offsets[other], offsets[other] + _padded(lifetimes[other].nbytes))
            for other in placed
            if lifetimes[other].first <= mine.last and mine.first <= lifetimes[other].last
        )
        offset = 0
        for low, high in busy:
            if offset + _padded(mine.nbytes) <= low:
                break
            offset = max(offset, high)
        offsets[number] = offset
        placed.append(number)
        total = max(total, offset + _padded(mine.nbytes))
    return tuple(offsets), total


def _padded(nbytes: int) -> int:
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
