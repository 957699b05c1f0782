"""Layer norm of rows, 64 MB."""

import numpy as np


def row_layer_norm(x, scale, shift):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(1e-5)) * scale + shift


def inputs(size, seed):
    rng = np.random.default_rng(seed)
    rows, columns = (16384, 1024) if size == "full" else (48, 64)
    return tuple(rng.standard_normal(shape, np.float32) for shape in ((rows, columns), (columns,), (columns,)))
