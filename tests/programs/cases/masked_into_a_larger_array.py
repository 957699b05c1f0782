"""A ufunc under a mask into an array that has more axes than its operands."""

import numpy as np


def inputs():
    x = np.arange(18.0).reshape(2, 3, 3)
    z = np.linspace(0, 2, 9).reshape(3, 3)
    return (x, z)


def program(x, z):
    np.exp(z, out=x, where=z <= 1)
    t0 = np.zeros(3)
    np.multiply(2.0, 1.5, out=t0, where=z[0] > 0.3)
    return t0
