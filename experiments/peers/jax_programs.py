"""Programs that JAX cannot run as they stand, since they write in place, and ones with an op of JAX's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def hdiff(field: Any, out: Any, coeff: Any) -> tuple[Any]:
    """Returns the new `out`."""
    del out
    inner = field[1:-1, 1:-1, :]
    lap = 4.0 * inner - (field[2:, 1:-1, :] + field[:-2, 1:-1, :] + field[1:-1, 2:, :] + field[1:-1, :-2, :])
    flux_i = lap[1:, 1:-1, :] - lap[:-1, 1:-1, :]
    flux_i = jnp.where(flux_i * (field[2:-1, 2:-2, :] - field[1:-2, 2:-2, :]) > 0.0, 0.0, flux_i)
    flux_j = lap[1:-1, 1:, :] - lap[1:-1, :-1, :]
    flux_j = jnp.where(flux_j * (field[2:-2, 2:-1, :] - field[2:-2, 1:-2, :]) > 0.0, 0.0, flux_j)
    step = flux_i[1:, :, :] - flux_i[:-1, :, :] + flux_j[:, 1:, :] - flux_j[:, :-1, :]
    return (field[2:-2, 2:-2, :] - coeff * step,)


def jacobi_2d(a: Any, b: Any, steps: int = 5) -> tuple[Any, Any]:
    """Returns the new `a` and `b`."""

    def smoothed(u: Any) -> Any:
        return 0.2 * (u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1])

    for _ in range(steps):
        b = b.at[1:-1, 1:-1].set(smoothed(a))
        a = a.at[1:-1, 1:-1].set(smoothed(b))
    return a, b


def heat_3d(field: Any, steps: int = 4) -> Any:
    u = field
    for _ in range(steps):
        centre = u[1:-1, 1:-1, 1:-1]
        u = u.at[1:-1, 1:-1, 1:-1].set(
            centre
            + 0.125 * (u[2:, 1:-1, 1:-1] - 2.0 * centre + u[:-2, 1:-1, 1:-1])
            + 0.125 * (u[1:-1, 2:, 1:-1] - 2.0 * centre + u[1:-1, :-2, 1:-1])
            + 0.125 * (u[1:-1, 1:-1, 2:] - 2.0 * centre + u[1:-1, 1:-1, :-2])
        )
    return u


REWRITES: dict[str, Callable[..., Any]] = {"hdiff": hdiff, "jacobi_2d": jacobi_2d, "heat_3d": heat_3d}
"""The program as JAX needs it: functions of their arguments. Programs of `WRITTEN` return what they would write."""


def conv_bn_relu(x: Any, w: Any, bias: Any, mean: Any, var: Any, gamma: Any, beta: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout) + bias
    return jax.nn.relu((y - mean) * jax.lax.rsqrt(var + 1e-3) * gamma + beta)


def attention(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))  # jax.nn wants [batch, steps, heads, width]
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)


def cross_entropy(logits: Any, labels: Any) -> Any:
    log_probability = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(log_probability, labels[:, None], axis=-1).mean()


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def swiglu_mlp(x: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:
    return (jax.nn.silu(x @ w_gate) * (x @ w_up)) @ w_down


def gelu_mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return jax.nn.gelu(x @ w1 + b1, approximate=True) @ w2 + b2


def lstm_sequence(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    """The loop over time as `lax.scan`, the input's product taken out of it."""

    def step(state: Any, from_input: Any) -> Any:
        h, c = state
        keep, write, read, new = jnp.split(from_input + h @ u, 4, axis=-1)
        c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
        h = jax.nn.sigmoid(read) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
    (_, c), history = jax.lax.scan(step, (zero, zero), x @ w + b)
    return history, c


IDIOMS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "conv_bn_relu": conv_bn_relu,
    "cross_entropy": cross_entropy,
    "gelu_mlp": gelu_mlp,
    "lstm_sequence": lstm_sequence,
    "softmax": softmax,
    "swiglu_mlp": swiglu_mlp,
}
"""Programs for which jax.nn or jax.lax has the op, as a user of those would write them."""
