"""Top-1 accuracy and mean confidence of a linear classifier: product, argmax, comparison, mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def top1_accuracy(features: NDArray[Any], w: NDArray[Any], b: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, Any]:
    logits = features @ w + b
    predicted = np.argmax(logits, axis=-1)
    top = logits.max(axis=-1, keepdims=True)
    confidence = 1.0 / np.exp(logits - top).sum(axis=-1)
    return np.mean(predicted == labels), confidence.mean()


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width, classes = {"small": (37, 11, 9), "full": (4096, 256, 1000)}[size]
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, width), dtype=np.float32)
    w = rng.standard_normal((width, classes), dtype=np.float32) * np.float32(width**-0.5)
    b = rng.normal(0.0, 0.1, classes).astype(np.float32)
    labels = np.argmax(features @ w + rng.normal(0.0, 1.0, (rows, classes)), axis=-1).astype(np.int64)
    return features, w, b, labels
