"""Bins of NaN alone are falling ones, and so are bins whose second is NaN; bins that end in NaN are rising ones."""

import numpy as np


def inputs():
    x = np.array([-1.0, 0.0, 1.5, 7.0, np.inf, np.nan])
    a = np.full(3, np.nan)
    b = np.array([np.nan, 2.0, 1.0])
    c = np.array([1.0, 2.0, np.nan])
    return (x, a, b, c)


def program(x, a, b, c):
    t0 = np.digitize(x, a)
    t1 = np.digitize(x, b, right=True)
    t2 = np.digitize(x, c)
    t3 = np.digitize(x, np.array([1.0, np.nan]))
    return (t0, t1, t2, t3)
