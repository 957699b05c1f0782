"""The first of the elements that a vector was unpacked into, and a write through a view behind it."""

import numpy as np


def inputs():
    z = np.random.default_rng(3).normal(0, 2, 31)
    return (z,)


def program(z):
    t0, *t1 = z
    t2 = z[None]
    t2[0] = 3
    return t0, t1[4]
