"""Whether a scalar is real is a scalar."""

import numpy as np


def inputs():
    x = np.array([0.5, 2.0])
    return (x,)


def program(x):
    t0 = x.sum()
    t1 = np.isreal(t0)
    return t1
