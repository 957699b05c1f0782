"""Attention of 16-bit floats."""

import numpy as np


def attention_f16(queries, keys, values):
    scores = queries @ keys.swapaxes(-1, -2) * np.float16(0.0884)
    power = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (power / power.sum(axis=-1, keepdims=True)) @ values


def inputs(size, seed):
    rng = np.random.default_rng(seed)
    shape = (16, 2048, 128) if size == "full" else (2, 33, 16)
    return tuple(rng.standard_normal(shape, np.float32).astype(np.float16) for _ in range(3))
