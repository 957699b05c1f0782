"""The twelve-layer encoder of BERT-base (Devlin et al. 2018), a Python loop over a list of layer parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADS = 12


def layer_norm(x: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any]) -> NDArray[Any]:
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-12) * gamma + beta


def self_attention(x: NDArray[Any], p: dict[str, NDArray[Any]]) -> NDArray[Any]:
    steps, width = x.shape
    qkv = x @ p["w_qkv"] + p["b_qkv"]
    q, k, v = np.split(qkv, 3, axis=-1)
    q = q.reshape(steps, HEADS, -1).transpose(1, 0, 2)
    k = k.reshape(steps, HEADS, -1).transpose(1, 2, 0)
    v = v.reshape(steps, HEADS, -1).transpose(1, 0, 2)
    scores = q @ k * (width // HEADS) ** -0.5
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = (e / e.sum(axis=-1, keepdims=True)) @ v
    return context.transpose(1, 0, 2).reshape(steps, width) @ p["w_out"] + p["b_out"]


def feed_forward(x: NDArray[Any], p: dict[str, NDArray[Any]]) -> NDArray[Any]:
    h = x @ p["w_in"] + p["b_in"]
    h = 0.5 * h * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h * h * h)))
    return h @ p["w_down"] + p["b_down"]


def bert_encoder(x: NDArray[Any], layers: list[dict[str, NDArray[Any]]]) -> NDArray[Any]:
    for p in layers:
        x = layer_norm(x + self_attention(x, p), p["gamma1"], p["beta1"])
        x = layer_norm(x + feed_forward(x, p), p["gamma2"], p["beta2"])
    return x


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    steps, width = {"small": (7, 36), "full": (128, 768)}[size]
    rng = np.random.default_rng(seed)
    shapes = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "in": (width, 4 * width),
        "down": (4 * width, width),
    }
    layers: list[dict[str, NDArray[Any]]] = []
    for _ in range(12):
        p: dict[str, NDArray[Any]] = {}
        for name, (rows, columns) in shapes.items():
            p["w_" + name] = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)
            p["b_" + name] = rng.normal(0.0, 0.02, columns).astype(np.float32)
        for norm in ("1", "2"):
            p["gamma" + norm] = rng.uniform(0.8, 1.2, width).astype(np.float32)
            p["beta" + norm] = rng.normal(0.0, 0.02, width).astype(np.float32)
        layers.append(p)
    return rng.standard_normal((steps, width), dtype=np.float32), layers
