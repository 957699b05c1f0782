"""Integer arrays as indices into an array of no elements."""

import numpy as np


def inputs():
    y = np.zeros((0, 0), np.uint8)
    return (y,)


def program(y):
    t0 = y[np.ix_(*[range(n) for n in y.shape])]
    return t0
