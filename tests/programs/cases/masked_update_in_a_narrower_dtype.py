"""What is taken by a mask keeps its dtype in place, or NumPy refuses."""

import numpy as np


def inputs():
    x = np.arange(3.0)
    return (x,)


def program(x):
    t0 = x.astype(np.int64)
    t0[x > 0] *= 1.5
    return (t0,)
