"""A reshaped scalar argument is an array of its own: sorting it writes nowhere else."""

import numpy as np


def inputs():
    y = np.arange(3)
    q = np.int64(1)
    return (
        y,
        q,
    )


def program(y, q):
    t0 = q.reshape(-1)
    t0.sort()
    return (t0, y)
