"""Positions in a table are int64, whatever the integers they come from."""

import numpy as np


def inputs():
    y = np.array([0, 3, 1])
    k = np.array([2, 2, 0], np.uint64)
    return (
        y,
        k,
    )


def program(y, k):
    t0 = np.ravel_multi_index((y, k), (9, 9))
    return t0
