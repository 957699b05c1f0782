"""Infinities and NaN of a kernel reach only what they are multiplied with."""

import numpy as np


def inputs():
    x = np.array([1.0, -2.0, 0.5, 3.0, 1.5])
    y = np.array([0.25, np.inf, -1.0, np.nan])
    return (x, y)


def program(x, y):
    t0 = np.convolve(x, y)
    t1 = np.convolve(x, y[:3], mode="same")
    return t0, t1, np.correlate(x, y[:3], mode="full"), np.convolve(x, y[::2], mode="valid")
