"""A Python number that is joined to arrays takes their dtype."""

import numpy as np


def inputs():
    x = np.arange(3, dtype=np.float32)
    y = np.arange(3, dtype=np.int8)
    p = -1
    return (x, y, p)


def program(x, y, p):
    t0 = np.concatenate((p, x), axis=None)
    t1 = np.concatenate((y, p, x.astype(np.float16)), axis=None)
    t2 = np.concatenate((y, 2.5), axis=None)
    t3 = np.hstack((p, x))
    t4 = np.append(x, p)
    return (t0, t1, t2, t3, t4)
