"""Two products of 16-bit floats with a ReLU between, 48 MB."""

import numpy as np


def mlp_f16(x, first, second):
    return np.maximum(x @ first, 0) @ second


def inputs(size, seed):
    rng = np.random.default_rng(seed)
    rows, inner, outer = (2048, 1024, 4096) if size == "full" else (33, 24, 40)
    shapes = ((rows, inner), (inner, outer), (outer, inner))
    return tuple((rng.standard_normal(shape, np.float32) / 32).astype(np.float16) for shape in shapes)
