"""A chain of products is multiplied in the order that takes the fewest multiplications."""

import numpy as np


def inputs():
    x = np.arange(33.0).reshape(33, 1) - 20.0
    x[[3, 9]] = -np.inf
    y = np.arange(12.0).reshape(3, 4)
    return (x, y)


def program(x, y):
    t0 = np.linalg.multi_dot([x, x.T, x])
    t1 = np.linalg.multi_dot([y, y.T, y, y.T])
    t2 = np.linalg.multi_dot([y[:, 0], y, y.T, y[:, 1]])
    return (t0, t1, t2)
