"""Covariances of fewer observations than degrees of freedom are divided by 0, not by what is below."""

import numpy as np


def inputs():
    x = np.zeros((3, 0), np.int8)
    y = np.array([[1.0, 2.0], [3.0, 5.0]])
    return (x, y)


def program(x, y):
    t0 = np.cov(x)
    t1 = np.cov(y, ddof=5)
    return (t0, t1)
