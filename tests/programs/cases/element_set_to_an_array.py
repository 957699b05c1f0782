"""An element is set to a scalar, never to an array of one element."""

import numpy as np


def inputs():
    x = np.arange(3.0)
    return (x,)


def program(x):
    x[0] = np.ones(1)
    return (x,)
