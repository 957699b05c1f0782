"""One operand of which nothing is summed is viewed, and can be written."""

import numpy as np


def inputs():
    z = np.arange(9.0).reshape(3, 3)
    y = np.arange(6).reshape(2, 3)
    return (
        z,
        y,
    )


def program(z, y):
    t0 = np.einsum("ii->i", z)
    t0[...] = t0 * -10
    t1 = np.einsum("ij->ji", y)
    t1[0] = 7
    t2 = np.einsum("i...->...i", y)
    y[1, 1] = 9
    return t0 + 1, t2
