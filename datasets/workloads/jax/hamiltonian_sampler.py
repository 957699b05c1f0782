"""Hamiltonian Monte Carlo (Duane et al. 1987) on a logistic regression: many chains, leapfrog steps, random momenta."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def hamiltonian_sampler(seed: Any, start: Any, data: Any, labels: Any) -> Any:
    def energy(weights: Any) -> Any:
        return jax.nn.softplus(-labels * (data @ weights)).sum() + 0.5 * (weights * weights).sum()

    force = jax.vmap(jax.grad(energy))
    level = jax.vmap(energy)

    def leap(_: int, state: Any) -> Any:
        weights, momentum = state
        momentum = momentum - 0.01 * force(weights)
        weights = weights + 0.02 * momentum
        return weights, momentum - 0.01 * force(weights)

    def step(weights: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        momentum = jax.random.normal(first, weights.shape)
        moved, end = jax.lax.fori_loop(0, 5, leap, (weights, momentum))
        before = level(weights) + 0.5 * (momentum * momentum).sum(axis=1)
        after = level(moved) + 0.5 * (end * end).sum(axis=1)
        taken = jnp.log(jax.random.uniform(second, before.shape)) < before - after
        weights = jnp.where(taken[:, None], moved, weights)
        return weights, taken.mean()

    keys = jax.random.split(jax.random.wrap_key_data(seed), 8)
    weights, taken = jax.lax.scan(step, start, keys)
    return weights, taken


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    chains, rows, width = {"small": (3, 10, 4), "full": (128, 256, 16)}[size]
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((rows, width), np.float32)
    labels = np.where(data @ rng.standard_normal(width) + rng.standard_normal(rows) > 0, 1.0, -1.0)
    start = 0.1 * rng.standard_normal((chains, width), np.float32)
    return np.array([0, seed], np.uint32), start, data, labels.astype(np.float32)
