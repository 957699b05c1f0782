"""Convolution needs something to convolve with."""

import numpy as np


def inputs():
    x = np.arange(3.0)
    return (x,)


def program(x):
    t0 = np.convolve(x, x[:0], mode="valid")
    return (t0,)
