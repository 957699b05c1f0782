"""Python's round takes scalars, and no arrays."""

import numpy as np


def inputs():
    k = np.array([1.25, 2.5, -3.75])
    return (k,)


def program(k):
    t0 = round(k[0], 1)
    t1 = round(k, 1)
    return t0, t1
