"""What replaces NaN in a scalar is a scalar."""

import numpy as np


def inputs():
    k = np.arange(8, dtype=np.int32)
    return (k,)


def program(k):
    t0 = np.percentile(k, 50)
    t1 = np.nan_to_num(t0)
    return t1
