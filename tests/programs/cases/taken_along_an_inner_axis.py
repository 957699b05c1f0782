"""What an array takes along an inner axis lies in memory with that axis outermost: a reshape is a copy."""

import numpy as np


def inputs():
    x = np.arange(36.0).reshape(3, 3, 4)
    k = np.array([2, 0])
    return (x, k)


def program(x, k):
    t0 = x[1:, :, np.array([-1, -2])]
    t0.reshape(-1)[0] = 3
    t1 = x[:, k]
    t1.ravel()[:2] = 5
    t2 = x[k]
    t2.reshape(-1)[0] = 7
    return (t0, t1, t2)
