"""Bounds of two dtypes are brought to their common one first."""

import numpy as np


def inputs():
    x = np.linspace(-2.0, 3.0, 6).astype(np.float32)
    y = np.arange(6, dtype=np.int8)
    return (x, y)


def program(x, y):
    t0 = np.linspace(x > 0, x, 5)
    t1 = np.linspace(y, x, 3)
    t2 = np.linspace(y, y + 3, 4)
    t3 = np.linspace(0.5, x, 1)
    return (t0, t1, t2, t3)
