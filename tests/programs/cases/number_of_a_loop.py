"""A number that a loop computes has NumPy's own type afterwards, traced or not."""

import numpy as np
import autofuse as af


def inputs():
    x = np.ones(4, np.float32)
    return (x,)


def program(x):
    t0 = af.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x.size))[1]
    t1, t2 = af.fori_loop(0, 3, lambda i, s: (s[0] + 1, s[1] + x), (0, x))
    t3, t4 = af.scan(lambda c, y: (c + 1, y * 2), 0, x)
    t5, t6, t7 = t0 * x, t1 * t2, t3 * t4
    return (t5, t6, t7)
