"""Causal multi-head attention (Vaswani et al. 2017) with the gradients of its projections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def attended(weights: Any, x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        (x @ weights[name]).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for name in "qkv"
    )
    scores = q @ k.transpose(0, 1, 3, 2) / jnp.sqrt(jnp.float32(width // heads))
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return mixed @ weights["o"]


def attention_gradient(weights: Any, x: Any, target: Any) -> Any:
    def loss(weights: Any) -> Any:
        return ((attended(weights, x, 4) - target) ** 2).mean()

    return jax.value_and_grad(loss)(weights)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, length, width = {"small": (2, 7, 12), "full": (4, 192, 256)}[size]
    rng = np.random.default_rng(seed)
    weights = {name: rng.standard_normal((width, width), np.float32) / np.float32(width**0.5) for name in "qkvo"}
    return weights, *(rng.standard_normal((batch, length, width), np.float32) for _ in range(2))
