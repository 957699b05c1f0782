"""Two elements of an integer vector change places: what was read first is a value."""

import numpy as np


def inputs():
    k = np.array([1, 4, 3], np.int32)
    return (k,)


def program(k):
    k[0], k[-1] = k[-1], k[0]
    return k * 1
