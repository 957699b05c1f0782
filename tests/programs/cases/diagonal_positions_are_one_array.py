"""The positions of a diagonal are the same array for both dimensions."""

import numpy as np


def inputs():
    q = np.float64(3)
    return (q,)


def program(q):
    t0, t1 = np.diag_indices(3)
    t1[::-1] = 3
    return t0 * q, t1
