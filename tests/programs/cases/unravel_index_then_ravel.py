"""The results of unravel_index lie between one another: a ravel of one is a copy."""

import numpy as np


def inputs():
    k = np.array([[3, 34], [1, 2]])
    return (k,)


def program(k):
    t0, t1 = np.unravel_index(k, (7, 5))
    t2 = t0.ravel()
    t2[0] = 50
    t3 = t1.reshape(-1)
    t3[0] = 60
    return (t0, t1, t2, t3)
