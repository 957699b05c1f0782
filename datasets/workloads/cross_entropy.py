"""Mean cross entropy of logits against integer labels: log-softmax with one gathered entry a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cross_entropy(logits: NDArray[Any], labels: NDArray[Any]) -> Any:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_normaliser = np.log(np.exp(shifted).sum(axis=-1))
    picked = shifted[np.arange(logits.shape[0]), labels]
    return np.mean(log_normaliser - picked)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, classes = {"small": (37, 19), "full": (1024, 8192)}[size]
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 2.0, (rows, classes)).astype(np.float32)
    return logits, rng.integers(0, classes, rows, dtype=np.int32)
