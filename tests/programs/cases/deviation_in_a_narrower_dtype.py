"""Sums are of the dtype asked for; what is subtracted is as wide as the array."""

import numpy as np


def inputs():
    x = np.array([-1.3877787807814457e-20, 1e-3, 0.1], np.float64)
    return (x,)


def program(x):
    t0 = np.std(x[:1], dtype=np.float32)
    t1 = np.var(x * 1e8 + 1e8, dtype=np.float32)
    return (t0, t1)
