"""Whether a scalar is among others is an array of rank 0."""

import numpy as np


def inputs():
    q = np.float64(3)
    return (q,)


def program(q):
    t0 = np.isin(q, [0, 3, -1])
    return t0
