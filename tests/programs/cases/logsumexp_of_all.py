"""The logarithm of a sum over everything is a scalar."""

import numpy as np
import scipy.special


def inputs():
    y = np.linspace(-1, 2, 12).reshape(3, 4)
    return (y,)


def program(y):
    return scipy.special.logsumexp(y), scipy.special.logsumexp(y, axis=1)
