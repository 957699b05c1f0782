"""A swap with a name between, and all elements converted behind it."""

import numpy as np


def inputs():
    x = np.array([-7, 3, 0, 5, 1])
    return (x,)


def program(x):
    t0 = x[0]
    x[0] = x[-1]
    x[-1] = t0
    return x.astype(np.float64)
