"""Arrays in turns: calls that find their operands in memory, not in caches.

A call that is timed over and over finds in the caches what the call before it left there. In a program its operands
were used long before. So it is given copies of its arrays, so many that those of a call have left the caches when
their turn comes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from autofuse.targets.base import Runner, Target

_BEYOND = 2.0
"""Times the largest cache: what is used in turns from so much memory is no longer there when its turn comes."""
_MOST_TURNS = 256
"""Of small arrays. Where the cache holds so many copies, some of it stays there."""


def turns_of(nbytes: int, target: Target) -> int:
    """How many copies of what a call uses are to be used in turns, the first one included.

    What is that large itself is gone before it is used again.
    """
    beyond = _BEYOND * target.cache_bytes
    return 1 if nbytes >= beyond else min(_MOST_TURNS, 1 + math.ceil(beyond / max(nbytes, 1)))


def in_turns(
    target: Target, runner: Runner, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]
) -> Callable[[], object]:
    """Calls of a kernel on copies of its arrays."""
    turns = turns_of(sum(array.nbytes for array in (*inputs, *outs)), target)
    calls = cycle([runner.bound([x.copy() for x in inputs], [x.copy() for x in outs]) for _ in range(turns)])

    def call() -> object:
        return next(calls)()

    return call
