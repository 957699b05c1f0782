"""Writes the programs of this folder: functions of JAX as StableHLO, with arguments and what XLA:CPU makes of them.

Run it with a Python that has JAX: `python tests/frontend/stablehlo/programs/export.py [NAME ...]`. Each program becomes
NAME.mlir, with the source lines of this file, and NAME.npz: `in_0`, `in_1`, ... and `out_0`, ... in the module's order.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FOLDER = Path(__file__).parent
ROOT = str(FOLDER.parents[3]) + "/"
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[np.random.Generator], tuple[Any, ...]]]] = {}


def made(shape: Any, rng: np.random.Generator) -> Any:
    """One array."""
    return shape(rng) if callable(shape) else rng.standard_normal(shape).astype(np.float32)


def program(*shapes: Any):
    """Register a function. A shape is that of f32 normals; anything else is a function from a generator."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def arguments(rng: np.random.Generator) -> tuple[Any, ...]:
            return tuple(
                [made(part, rng) for part in shape] if isinstance(shape, list) else made(shape, rng) for shape in shapes
            )

        PROGRAMS[function.__name__] = function, arguments
        return function

    return register


def classes(count: int, extent: int):
    """Labels of a batch."""
    return lambda rng: rng.integers(0, extent, count).astype(np.int32)


@program([(12, 16), (16,), (16, 4), (4,)], (8, 12), (8, 4))
def mlp_step(params, x, y):
    def loss(params):
        w1, b1, w2, b2 = params
        hidden = jnp.tanh(x @ w1 + b1)
        return jnp.mean((hidden @ w2 + b2 - y) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return value, [p - 0.1 * g for p, g in zip(params, grads, strict=True)]


@program((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8))
def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(8.0)
    mask = jnp.tril(jnp.ones((7, 7), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


@program((6, 33), (33,), (33,))
def layer_norm_gelu(x, scale, shift):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return jax.nn.gelu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift, approximate=False)


@program((2, 9, 9, 3), (3, 3, 3, 4), (64, 5), classes(2, 5))
def conv_net(x, kernel, dense, labels):
    def loss(kernel, dense):
        convolved = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        hidden = jax.nn.relu(convolved)
        pooled = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        scores = pooled.reshape(2, -1) @ dense
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1))

    return jax.value_and_grad(loss, argnums=(0, 1))(kernel, dense)


@program((5, 2, 4), (2, 6), (4, 6), (6, 6))
def rnn(xs, h, w, u):
    def step(h, x):
        h = jnp.tanh(x @ w + h @ u)
        return h, h.sum(axis=-1)

    return jax.lax.scan(step, h, xs)


@program((8, 10), classes(8, 10))
def cross_entropy(scores, labels):
    losses = jax.nn.logsumexp(scores, axis=-1) - jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
    return losses.mean(), jnp.argmax(scores, axis=-1), (jnp.argmax(scores, axis=-1) == labels).mean()


@program((7, 5), (7, 5), (7, 5), (7, 5), lambda rng: np.int32(3))
def adam(p, g, m, v, t):
    v = v * v
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    t = t + 1
    step = m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p - 1e-3 * step, m, v, t


@program(lambda rng: rng.integers(0, 1 << 32, 2, np.uint32))
def draws(key):
    first, second = jax.random.split(key)
    return jax.random.uniform(first, (5, 3)), jax.random.normal(second, (7,)), jax.random.bits(first, (4,))


@program((9, 4), (9,))
def order(x, y):
    top, places = jax.lax.top_k(x, 2)
    return jnp.sort(x, axis=0), jnp.argsort(-y), jnp.lexsort((y, jnp.round(x[:, 0]))), top, places, jnp.cumsum(y)


@program((6, 4), lambda rng: rng.integers(0, 6, 10).astype(np.int32), (10, 4))
def graph_messages(nodes, targets, messages):
    received = jax.ops.segment_sum(messages, targets, num_segments=6)
    return nodes.at[targets[0]].set(0.0) + received, nodes[targets]


@program((4,), lambda rng: np.int32(2))
def branches(x, which):
    doubled = jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x)
    chosen = jax.lax.switch(which, [jnp.sin, jnp.cos, jnp.exp], doubled)
    return jax.lax.while_loop(lambda s: jnp.sum(s) < 50, lambda s: s * 1.5 + 1, jnp.abs(chosen))


@program((4, 16), lambda rng: (rng.standard_normal(9) + 1j * rng.standard_normal(9)).astype(np.complex64))
def spectral_filter(x, response):
    spectrum = jnp.fft.rfft(x) * response
    gain = jnp.exp(-jnp.abs(spectrum)) * jnp.array([1 + 2j, 0.5 - 1j, 2j] * 3, jnp.complex64)
    return jnp.fft.irfft(spectrum * gain, 16), jnp.angle(spectrum).mean(0), jnp.sqrt(spectrum)[:, :3].sum(1)


@program((6, 3), (6,), (4, 3))
def gaussian_process(x, y, at):
    def kernel(a, b):
        return jnp.exp(-((a[:, None] - b[None]) ** 2).sum(-1))

    factor = jnp.linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(6))
    weights = jax.scipy.linalg.cho_solve((factor, True), y)
    return kernel(at, x) @ weights, 2 * jnp.log(jnp.diag(factor)).sum()


@program((7, 3), (7, 2), (5, 5))
def linear_algebra(a, b, c):
    q, r = jnp.linalg.qr(a)
    values = jnp.linalg.svd(a, compute_uv=False)
    spectrum = jnp.linalg.eigvalsh(c + c.T)
    return r.T @ r, q @ (q.T @ b), jnp.linalg.solve(c, c[:, :2] + 1), jnp.linalg.det(c), values, spectrum


def main() -> None:
    """Write all of them, or those that are named."""
    for name in sys.argv[1:] or PROGRAMS:
        function, arguments = PROGRAMS[name]
        values = arguments(np.random.default_rng(7))
        lowered = jax.jit(function).lower(*values)
        text = lowered.as_text(debug_info=True).replace(ROOT, "")
        (FOLDER / f"{name}.mlir").write_text(text)
        inputs = jax.tree.leaves(values)
        outputs = jax.tree.leaves(lowered.compile()(*values))
        arrays = {f"in_{n}": np.asarray(x) for n, x in enumerate(inputs)}
        arrays |= {f"out_{n}": np.asarray(y) for n, y in enumerate(outputs)}
        held = io.BytesIO()
        np.savez_compressed(held, **arrays)
        (FOLDER / f"{name}.npz").write_bytes(held.getvalue())


if __name__ == "__main__":
    main()
