"""One step of AdamW (Loshchilov and Hutter 2019) over the many tensors of a transformer, gradients clipped by norm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def adamw_tensors(parameters: Any, first: Any, second: Any, gradient: Any, step: Any) -> Any:
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, 1.0 / norm)
    gradient = jax.tree.map(lambda g: g * scale, gradient)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    moved = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8) - 1e-5 * p, parameters, first, second)
    return moved, first, second


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    layers, width = {"small": (2, 6), "full": (6, 192)}[size]
    rng = np.random.default_rng(seed)
    shapes = {
        "q": (width, width),
        "k": (width, width),
        "v": (width, width),
        "o": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
        **dict.fromkeys(("up_bias",), (4 * width,)),
        **dict.fromkeys(("down_bias", "gain", "offset", "gain_2", "offset_2"), (width,)),
    }

    def tree(make: Any) -> Any:
        return [{name: make(shape) for name, shape in shapes.items()} for _ in range(layers)]

    def normal(shape: tuple[int, ...]) -> Any:
        return rng.standard_normal(shape, np.float32)

    squares = tree(lambda shape: rng.random(shape, np.float32))
    return tree(normal), tree(normal), squares, tree(normal), np.float32(10)
