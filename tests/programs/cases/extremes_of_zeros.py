"""Of zeros of both signs, extremes of 16-bit floats give the first."""

import numpy as np


def inputs():
    x = np.array([0.0, -0.0, 1.0, np.nan, -0.0], np.float16)
    y = np.array([-0.0, 0.0, np.nan, -0.0, -0.0], np.float16)
    return (x, y)


def program(x, y):
    t0, t1, t2, t3 = np.maximum(x, y), np.minimum(x, y), np.fmax(x, y), np.fmin(x, y)
    return (t0, t1, t2, t3)
