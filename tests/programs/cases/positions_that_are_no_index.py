"""Unsigned integers of 64 bits are not safely an index."""

import numpy as np


def inputs():
    x = np.arange(3, dtype=np.uint64)
    return (x,)


def program(x):
    np.put(x, x % 2, 3)
    return (x,)
