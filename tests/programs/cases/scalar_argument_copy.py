"""A copy of a scalar among the arguments is a scalar."""

import numpy as np


def inputs():
    q = np.int64(3)
    return (q,)


def program(q):
    t0 = q.copy("F")
    return t0
