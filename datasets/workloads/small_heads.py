"""Eight independent small MLP heads on one input: multi-task outputs, where horizontal fusion shares the launches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def small_heads(x: NDArray[Any], heads: list[dict[str, NDArray[Any]]]) -> list[NDArray[Any]]:
    outputs: list[NDArray[Any]] = []
    for p in heads:
        hidden = np.tanh(x @ p["w1"] + p["b1"])
        outputs.append(hidden @ p["w2"] + p["b2"])
    return outputs


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width, hidden = {"small": (17, 13, 9), "full": (4096, 128, 64)}[size]
    rng = np.random.default_rng(seed)
    heads = [
        {
            "w1": rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(width**-0.5),
            "b1": rng.normal(0.0, 0.1, hidden).astype(np.float32),
            "w2": rng.standard_normal((hidden, outputs), dtype=np.float32) * np.float32(hidden**-0.5),
            "b2": rng.normal(0.0, 0.1, outputs).astype(np.float32),
        }
        for outputs in (1, 1, 2, 3, 4, 6, 8, 10)
    ]
    return rng.standard_normal((rows, width), dtype=np.float32), heads
