"""A sum of regression trees as arrays: all that is left of a trained model when it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.lazydataclass import dataclass

_BLOCK = 64
"""Rows at a time: what all trees know of them stays in a second-level cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Regression trees, all of depth d and complete: the children of node n are 2 n + 1 and 2 n + 2.

    A row goes to the first child where its value is at most the threshold. A leaf that lies higher is a path to the
    left, with infinite thresholds.
    """

    base: float
    """What is added to the trees' values."""
    feature: NDArray[Any]
    """i16[trees, 2^d - 1]: the column that each node looks at."""
    threshold: NDArray[Any]
    """f64[trees, 2^d - 1]"""
    value: NDArray[Any]
    """f64[trees, 2^d]: of the leaves."""

    @property
    def depth(self) -> int:
        """Nodes from the root of a tree to a leaf."""
        return self.value.shape[1].bit_length() - 1

    def predict(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The sum of all trees, f64[n], for rows without NaN, f64[n, columns].

        Trees are added in their order, so that a row's sum is the same in any batch.
        """
        sums = [self._block(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
        return np.concatenate(sums) if sums else np.zeros(0)

    def _block(self, rows: NDArray[Any]) -> NDArray[Any]:
        trees, nodes = self.feature.shape
        count = len(rows)
        columns = rows.T.ravel()  # a column's values side by side
        own = np.arange(count)
        first = (np.arange(trees) * nodes)[:, None]
        feature, threshold = self.feature.ravel().astype(np.intp) * count, self.threshold.ravel()
        node, place = np.zeros((trees, count), np.intp), np.empty((trees, count), np.intp)
        value, limit = np.empty((trees, count)), np.empty((trees, count))
        for _ in range(self.depth):
            np.add(node, first, out=place)
            threshold.take(place, out=limit, mode="clip")
            feature.take(place, out=place, mode="clip")
            place += own
            columns.take(place, out=value, mode="clip")
            node *= 2
            node += 1
            node += value > limit
        node += np.arange(trees)[:, None] * (nodes + 1) - nodes
        leaves = self.value.ravel().take(node)
        return self.base + np.add.accumulate(leaves, axis=0)[-1] if trees else np.full(count, self.base)
