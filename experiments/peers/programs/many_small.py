"""Three dicts of 128 small arrays, 384 in all: what a call with many arguments costs beside its work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def many_small(x: Arrays, y: Arrays, z: Arrays) -> Arrays:
    return {name: x[name] * y[name] + z[name] for name in x}


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    del size
    rng = np.random.default_rng(seed)
    return tuple({f"w{i}": rng.standard_normal((8, 8), dtype=np.float32) for i in range(128)} for _ in range(3))
