"""Of a scalar, [...] is an array of rank 0."""

import numpy as np


def inputs():
    k = np.array([4, 2, 3])
    return (k,)


def program(k):
    t0 = k[-1]
    t1 = t0[...]
    return t1
