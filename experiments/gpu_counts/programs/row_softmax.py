"""Softmax of rows, 64 MB."""

import numpy as np


def row_softmax(x):
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def inputs(size, seed):
    side = 4096 if size == "full" else 48
    return (np.random.default_rng(seed).standard_normal((side, side), np.float32),)
