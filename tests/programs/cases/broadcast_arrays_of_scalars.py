"""Scalars that are broadcast become arrays of rank 0."""

import numpy as np


def inputs():
    k = np.array([1, 4, 3], np.uint8)
    return (k,)


def program(k):
    t0, *t1 = k
    t2, t3 = np.broadcast_arrays(t0, t0)
    return (t2, t3)
