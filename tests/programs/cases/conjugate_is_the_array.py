"""conjugate() of real numbers is the array itself: a write goes through."""

import numpy as np


def inputs():
    y = np.arange(3, dtype=np.float32)
    return (y,)


def program(y):
    t0 = y.conjugate()
    t0[...] = t0 * 2
    return y + 1
