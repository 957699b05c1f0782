"""The last element of a list of a vector's elements, read before it is overwritten."""

import numpy as np


def inputs():
    z = np.array([1.0, 2.0, -4.0, 3.0])
    return (z,)


def program(z):
    t0 = list(z)[-1]
    z[-1] = 0.5
    return t0
