"""A polynomial of many coefficients is one call of NumPy's own, not thousands of steps."""

import numpy as np


def inputs():
    x = np.linspace(-1.5, 1.0, 12)
    y = np.random.default_rng(0).integers(-9, 4, (17, 17, 3)).astype(np.int32)
    return (x, y)


def program(x, y):
    t0 = np.polyval(y.ravel(), x[1:])
    t1 = np.polyval(y.ravel(), x[0])
    t2 = np.polyval(y.ravel(), y.std() / 10)
    t3 = np.polyval(y[0, 0], x)
    return (t0, t1, t2, t3)
