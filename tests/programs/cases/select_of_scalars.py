"""A choice among scalars is an array of rank 0."""

import numpy as np


def inputs():
    z = np.random.default_rng(2).normal(0, 2, 9)
    return (z,)


def program(z):
    t0, *t1 = z
    t2 = np.select([t1[0] <= True, t0 > 0.25], [t0, t0])
    return t2
