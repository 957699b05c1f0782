"""What every framework's side hands to the timing process: one program made ready to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Call = Callable[[], Any]
"""One call on the task's own arguments, which returns when its results are there."""

WRITTEN: dict[str, tuple[int, ...]] = {"hdiff": (1,), "jacobi_2d": (0, 1)}
"""Programs that return nothing and write into arguments, with the numbers of those."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One program under one variant, compiled and called once; under a brief task only with fresh results."""

    fresh: Call
    """Every call allocates its results, as the framework does by default."""
    answer: Callable[[tuple[Any, ...]], tuple[Any, Any]]
    """Results, and arguments after the call, of one call on these NumPy arguments; all as NumPy arrays."""
    ready_s: float
    """Seconds from the imported framework and its arguments in memory to the first result."""
    reused: Call | None = None
    """The results go into memory that an earlier call's results had; None where the framework offers no such call."""
    reused_answer: Callable[[], Any] | None = None
    """The results of one such call as NumPy arrays, where they are those of `fresh`."""
    empty: Call | None = None
    """A compiled program of the same arguments that reads one value of each; what is left of a call beside kernels."""
    kernel_us: Callable[[], dict[str, float]] | None = None
    """Microseconds inside kernels, by the framework's own clock, by name of a part."""
    notes: Sequence[str] = ()
    """What a reader of this program's times must know."""


def leaves(value: Any) -> list[NDArray[Any]]:
    """The arrays in a structure; dicts by sorted key, since JAX returns them so."""
    match value:
        case dict():
            return [leaf for key in sorted(value) for leaf in leaves(value[key])]
        case tuple() | list():
            return [leaf for part in value for leaf in leaves(part)]
        case np.ndarray() | np.generic():
            return [np.asarray(value)]
        case _:
            return []
