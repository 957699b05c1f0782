"""A transpose of many rows and columns of no elements, under rules that price transposes."""

import numpy as np


def inputs():
    z = np.zeros((64, 64, 0))
    w = np.zeros((5, 0, 64))
    return (z, w)


def program(z, w):
    t0 = np.rot90(z)
    t1 = np.exp(w).transpose(2, 1, 0).copy() * 2
    return (t0, t1)
