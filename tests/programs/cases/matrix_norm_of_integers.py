"""A norm of integers is a float."""

import numpy as np


def inputs():
    x = np.arange(-9, 16).reshape(5, 5)
    return (x,)


def program(x):
    t0 = np.linalg.matrix_norm(x, ord=1)
    return t0
