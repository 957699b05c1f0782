"""A scalar shares no memory, not even with itself."""

import numpy as np


def inputs():
    q = np.int64(0)
    return (q,)


def program(q):
    return q + int(np.shares_memory(q, q))
