"""Numbers as bounds leave a zero of the other sign alone; arrays as bounds do not, but of 16-bit floats."""

import numpy as np


def inputs():
    x = np.array([-0.0, 0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], np.float32)
    h = x.astype(np.float16)
    return (x, h)


def program(x, h):
    t0 = np.clip(x, 0, 3)
    t1 = np.clip(x, -3.0, -0.0)
    t2 = np.clip(x, np.zeros_like(x), np.float32(2))
    t3 = np.clip(h, np.zeros_like(h), 2)
    t4 = np.clip(h, np.full_like(h, np.nan), 2)
    return (t0, t1, t2, t3, t4)
