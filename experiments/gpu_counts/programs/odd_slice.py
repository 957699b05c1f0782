"""A slice that starts anywhere, of rows of an odd length, 64 MB."""

import numpy as np


def odd_slice(x):
    return x[:, 1:] * 2 + x[:, :-1]


def inputs(size, seed):
    shape = (4096, 4099) if size == "full" else (48, 37)
    return (np.random.default_rng(seed).standard_normal(shape, np.float32),)
