"""What a mask leaves alone keeps its own dtype's value, also where the computed values are narrower."""

import numpy as np


def inputs():
    x = np.array([1.5, 2.5, -3.0], np.float32)
    y = np.array([0.1, 1e300, 0.3])
    k = np.array([1, 2, 3], np.int8)
    n = np.array([1 << 40, 5, -7])
    return (x, y, k, n)


def program(x, y, k, n):
    np.multiply(x, x, out=y, where=x < 2)
    np.add(k, k, out=n, where=k > 2)
    return x
