"""Elements kept in a list while a ufunc writes into the vector they come from."""

import numpy as np


def inputs():
    x = np.random.default_rng(8).normal(0, 2, (7, 7)).astype(np.float32)
    z = np.arange(7, dtype=np.float32)
    return (
        x,
        z,
    )


def program(x, z):
    t0 = list(z)
    t1 = np.diagonal(x)
    x[0] = -1.5
    np.square(t1, out=z)
    return (t0, z)
