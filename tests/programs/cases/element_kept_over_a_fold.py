"""An element that was read before the vector it comes from is changed, used in a reduction behind."""

import numpy as np


def inputs():
    x = np.array([2.5, -1.0, 4.0])
    return (x,)


def program(x):
    t0 = [v for v in x][0]
    x[0] = 0.0
    t1 = t0.reshape(-1, 1).diagonal()
    return t1.T.sum()
