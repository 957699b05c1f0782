"""What correlate returns lies in order, also where the second operand is the longer one."""

import numpy as np


def inputs():
    x = np.arange(7.0)
    y = np.arange(11.0)
    return (x, y)


def program(x, y):
    t0 = np.correlate(x, y)
    t0.ravel()[::2] = -1
    t1 = np.correlate(y, x, "full")
    t1.ravel()[::2] = -1
    return (t0, t1)
