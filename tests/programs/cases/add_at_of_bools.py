"""Bools are added, repeated places in order."""

import numpy as np


def inputs():
    x = np.array([True, False, True, True])
    return (x,)


def program(x):
    np.add.at(x, [1, -2, -1, 1], True)
    np.multiply.at(x, [0, 0], False)
    return ~x
