"""What a branch returns is an array of its own, in C order."""

import numpy as np
import autofuse as af


def inputs():
    x = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    y = np.arange(4.0)
    return (x, y)


def program(x, y):
    t0 = af.cond(y[3] > 2, lambda v: v + v, lambda v: v * v, x)
    t0.ravel()[::2] = 3
    t1 = af.cond(y[3] > 2, lambda v: v, lambda v: v, y)
    t1[0] = 9
    t2 = af.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, x), (0, x * 1))[1]
    t2[0] = 5
    return (t0, t1, t2, x, y)
