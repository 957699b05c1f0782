"""The gated feed-forward block of LLaMA (Shazeer, arXiv 2002.05202): two products of one input meet in a SiLU gate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def swiglu_mlp(x: NDArray[Any], w_gate: NDArray[Any], w_up: NDArray[Any], w_down: NDArray[Any]) -> NDArray[Any]:
    gate = x @ w_gate
    return (gate / (1.0 + np.exp(-gate)) * (x @ w_up)) @ w_down


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width, hidden = {"small": (15, 22, 59), "full": (512, 512, 1376)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    w_gate = rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(width**-0.5)
    w_up = rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(width**-0.5)
    w_down = rng.standard_normal((hidden, width), dtype=np.float32) * np.float32(hidden**-0.5)
    return x, w_gate, w_up, w_down
