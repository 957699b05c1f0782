"""Rollouts of many pendulums (Sutton and Barto's control task) under a policy network, and the policy's return."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 50


def environment_rollout(policy: Any, angle: Any, spin: Any) -> Any:
    def act(angle: Any, spin: Any) -> Any:
        seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), spin / 8])
        hidden = jnp.tanh(policy["w"] @ seen + policy["b"])
        return 2 * jnp.tanh(policy["out"] @ hidden)

    def one(angle: Any, spin: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            angle, spin, total = state
            torque = act(angle, spin)
            wrapped = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
            total = total - (wrapped**2 + 0.1 * spin**2 + 0.001 * torque**2)
            spin = jnp.clip(spin + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8, 8)
            return (angle + 0.05 * spin, spin, total), angle

        (_, _, total), path = jax.lax.scan(step, (angle, spin, jnp.float32(0)), None, STEPS)
        return total, path

    totals, paths = jax.vmap(one)(angle, spin)
    return totals.mean(), paths


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, units = {"small": (5, 4), "full": (8192, 16)}[size]
    rng = np.random.default_rng(seed)
    policy = {"w": (units, 3), "b": (units,), "out": (units,)}
    weights = {name: 0.5 * rng.standard_normal(shape, np.float32) for name, shape in policy.items()}
    return weights, *(rng.uniform(-3, 3, count).astype(np.float32) for _ in range(2))
