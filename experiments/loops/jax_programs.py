"""Loop programs in JAX: their own source over jax.numpy, jax.lax and jax.random, and what JAX's users would rewrite."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from namespaces import load_over

from autofuse.measurement.workloads import Workload

LOOPS = SimpleNamespace(
    scan=jax.lax.scan, fori_loop=jax.lax.fori_loop, while_loop=jax.lax.while_loop, random=jax.random
)
"""What a program calls `af`: the same functions, in JAX."""


def same_source(program: Workload) -> Callable[..., Any]:
    """The program over JAX's functions: as one would write it for JAX."""
    function: Any = load_over(program, jnp)
    function.__globals__["af"] = LOOPS
    return function


def lstm_scan(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    """The input's product taken out of the loop."""

    def step(state: Any, from_input: Any) -> Any:
        h, c = state
        keep, write, read, new = jnp.split(from_input + h @ u, 4, axis=-1)
        c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
        h = jax.nn.sigmoid(read) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
    (_, c), history = jax.lax.scan(step, (zero, zero), x @ w + b)
    return history, c


def graph_network(nodes: Any, source: Any, target: Any, weight: Any, bias: Any, rounds: int) -> Any:
    """Updates by `at`, in place of writes."""

    def step(_: Any, state: Any) -> Any:
        messages = jnp.maximum(state[source] * weight[:, None] + bias, 0.0)
        return 0.5 * (nodes + jnp.zeros_like(state).at[target].add(messages))

    return jax.lax.fori_loop(0, rounds, step, nodes)


def plasma_1d(positions: Any, velocities: Any, cells: int, steps: int) -> tuple[Any, Any]:
    """Updates by `at`, in place of writes."""
    share = cells / positions.size

    def step(_: Any, state: Any) -> Any:
        x, v = state
        cell = jnp.minimum(x.astype(jnp.int64), cells - 1)
        right, following = x - cell, (cell + 1) % cells
        density = jnp.zeros(cells, x.dtype).at[cell].add(1.0 - right).at[following].add(right)
        field = jnp.cumsum(1.0 - share * density)
        field = field - field.mean()
        v = v - 0.05 * ((1.0 - right) * field[cell] + right * field[following])
        return (x + 0.05 * v) % cells, v

    return jax.lax.fori_loop(0, steps, step, (positions, velocities))


REWRITTEN: dict[str, Callable[..., Any]] = {
    "graph_network": graph_network,
    "lstm_scan": lstm_scan,
    "plasma_1d": plasma_1d,
}
"""Forms that are faster in JAX, and of programs that write into arrays."""
