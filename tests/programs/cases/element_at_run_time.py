"""An element at a place that is known at run time, read before all are overwritten."""

import numpy as np


def inputs():
    w = np.random.default_rng(5).uniform(0.1, 2, 7)
    return (w,)


def program(w):
    t0 = w[np.argmax(w) % len(w)]
    w[...] = -1.5
    return t0
