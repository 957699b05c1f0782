"""One BERT encoder layer (Devlin et al. 2018): attention and GELU feed-forward, each with residual and layer norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def layer_norm(x: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any]) -> NDArray[Any]:
    mean = x.mean(axis=-1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-12) * gamma + beta


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def split_heads(x: NDArray[Any], heads: int) -> NDArray[Any]:
    batch, steps, width = x.shape
    return x.reshape(batch, steps, heads, width // heads).transpose(0, 2, 1, 3)


def bert_layer(x: NDArray[Any], p: dict[str, NDArray[Any]], heads: int = 12) -> NDArray[Any]:
    batch, steps, width = x.shape
    q = split_heads(x @ p["wq"] + p["bq"], heads)
    k = split_heads(x @ p["wk"] + p["bk"], heads)
    v = split_heads(x @ p["wv"] + p["bv"], heads)
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // heads)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    context = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, steps, width)
    x = layer_norm(x + context @ p["wo"] + p["bo"], p["gamma1"], p["beta1"])
    hidden = gelu(x @ p["w1"] + p["b1"])
    return layer_norm(x + hidden @ p["w2"] + p["b2"], p["gamma2"], p["beta2"])


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, steps, width = {"small": (2, 7, 36), "full": (4, 128, 768)}[size]
    rng = np.random.default_rng(seed)
    hidden = 4 * width
    x = rng.standard_normal((batch, steps, width), dtype=np.float32)
    p: dict[str, NDArray[Any]] = {}
    for name, (rows, columns) in {
        "q": (width, width),
        "k": (width, width),
        "v": (width, width),
        "o": (width, width),
        "1": (width, hidden),
        "2": (hidden, width),
    }.items():
        p["w" + name] = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)
        p["b" + name] = rng.normal(0.0, 0.02, columns).astype(np.float32)
    for norm in ("1", "2"):
        p["gamma" + norm] = rng.uniform(0.8, 1.2, width).astype(np.float32)
        p["beta" + norm] = rng.normal(0.0, 0.02, width).astype(np.float32)
    return x, p
