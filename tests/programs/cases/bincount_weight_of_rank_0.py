"""Weights are a vector of as many elements as there are keys: one number is refused."""

import numpy as np


def inputs():
    x = np.array([1.0, 2.0])
    return (x,)


def program(x):
    t0 = np.bincount(np.array([1, 0]), weights=x[0])
    return t0
