"""The squares of narrow integers under a norm do not wrap."""

import numpy as np


def inputs():
    x = np.arange(-72, 78, 6, dtype=np.int8).reshape(5, 5)
    return (x,)


def program(x):
    t0 = np.linalg.matrix_norm(x, ord="fro")
    return t0
