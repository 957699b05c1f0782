"""Sums of columns, 64 MB."""

import numpy as np


def sum_of_columns(x):
    return x.sum(axis=0)


def inputs(size, seed):
    shape = (4096, 4096) if size == "full" else (48, 40)
    return (np.random.default_rng(seed).standard_normal(shape, np.float32),)
