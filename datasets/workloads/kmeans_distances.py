"""The assignment step of k-means (Lloyd 1982): squared distances to all centroids, nearest one, and the inertia."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def kmeans_distances(points: NDArray[Any], centroids: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    squared = (points * points).sum(axis=1)[:, None] + (centroids * centroids).sum(axis=1)[None, :]
    distance = np.maximum(squared - 2.0 * (points @ centroids.T), 0.0)
    return np.argmin(distance, axis=1), distance.min(axis=1).sum()


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, clusters, features = {"small": (211, 7, 5), "full": (50_000, 64, 32)}[size]
    rng = np.random.default_rng(seed)
    centroids = rng.normal(0.0, 3.0, (clusters, features)).astype(np.float32)
    chosen = rng.integers(0, clusters, count)
    points = centroids[chosen] + rng.standard_normal((count, features), dtype=np.float32)
    return points, centroids
