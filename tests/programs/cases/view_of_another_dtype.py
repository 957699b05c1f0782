"""The same memory as another dtype: writes to either are seen through the other."""

import numpy as np


def inputs():
    k = np.array([4, 2, 0, 1], np.int32)
    x = np.array([0.0, -1.5, 2.0], np.float32)
    return (k, x)


def program(k, x):
    t0, t1 = np.array_split(k, [1])
    t2 = t0.view(np.uint32)
    k[0], k[-1] = k[-1], k[0]
    t3 = x.view(np.uint32)
    t3[1:] &= 0x7FFFFFFF
    return t2, t1, x + 1
