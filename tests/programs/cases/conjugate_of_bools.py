"""The method conjugate() of bools gives bools."""

import numpy as np


def inputs():
    y = np.array([True, False, True])
    return (y,)


def program(y):
    t0 = y.conjugate()
    return t0
