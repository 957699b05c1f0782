"""What takes functions: reductions, windows and scans of any body, loops, branches, solvers, transformations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.jax.functions.case import between, jax, jnp, of, still, whole

odeint = pytest.importorskip("jax.experimental.ode").odeint
minimize = pytest.importorskip("jax.scipy.optimize").minimize
lax = jax.lax
X, Y = between(0.2, 1.5, 6, 7), between(0.2, 1.5, 6, 7, seed=1)
IX = whole(0, 50, 6, 7)
ROW = between(0.2, 1.5, 13)


def _mean_and_variance(a, b):
    (n1, m1, s1), (n2, m2, s2) = a, b
    n = n1 + n2
    d = m2 - m1
    safe = jnp.maximum(n, 1)
    return n, m1 + d * n2 / safe, s1 + s2 + d * d * n1 * n2 / safe


def _largest(a, b):
    keep = a[0] >= b[0]
    return tuple(jnp.where(keep, x, y) for x, y in zip(a, b, strict=True))


def _matrices(a, b):
    return jnp.einsum("...ij,...jk->...ik", b, a)


def _affine(a, b):
    return a[0] * b[0], a[1] * b[0] + b[1]


CASES = {
    "reduce, logaddexp": still(lambda x: lax.reduce(x, -jnp.inf, jnp.logaddexp, (1,)), X),
    "reduce, two axes": still(lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 0 * a, (0, 1)), X),
    "reduce, hypot": still(lambda x: lax.reduce(x, 0.0, lambda a, b: jnp.sqrt(a * a + b * b), (0,)), X),
    "reduce, mean and variance": still(
        lambda x: lax.reduce((jnp.ones_like(x), x, jnp.zeros_like(x)), (0.0, 0.0, 0.0), _mean_and_variance, (1,)),
        X,
    ),
    "reduce, value and companions": still(
        lambda x, y, i: lax.reduce((x, y, i), (-jnp.inf, 0.0, np.int32(0)), _largest, (1,)), X, Y, IX
    ),
    "reduce, initial value that is no identity": still(lambda x: lax.reduce(x, 3.0, lax.max, (1,)), X),
    "reduce, sum from five": still(lambda x: lax.reduce(x, 5.0, lax.add, (0,)), X),
    "reduce, xor": still(
        lambda i: (jnp.bitwise_xor.reduce(i, 1), jnp.bitwise_or.reduce(i, 0), jnp.bitwise_and.reduce(i, 0)), IX
    ),
    "reduce_precision": still(lambda x: lax.reduce_precision(x, 5, 7), X),
    "reduce of bool": still(lambda x: ((x > 1).all(0), (x > 1).any(1), jnp.logical_xor.reduce(x > 1)), X),
    "ufunc.reduceat": still(lambda x: jnp.add.reduceat(x, jnp.array([0, 3, 5]), axis=1), X),
    "ufunc.accumulate": of(lambda x: (jnp.add.accumulate(x, 1), jnp.multiply.accumulate(x, 0)), X),
    "ufunc.outer and at": still(lambda x: (jnp.subtract.outer(x[0], x[1]), jnp.add.at(x, 2, 1.0, inplace=False)), X),
    "reduce_window, logaddexp": still(
        lambda x: lax.reduce_window(x, -jnp.inf, jnp.logaddexp, (2, 3), (1, 2), "SAME"), X
    ),
    "reduce_window, product and more": still(
        lambda x: lax.reduce_window(x, 1.0, lambda a, b: a * b * 0.5 + a * b * 0.5, (2, 2), (1, 1), "VALID"),
        X,
        tolerance=1e-3,
    ),
    "reduce_window of several": still(
        lambda x, y: lax.reduce_window((x, y), (-np.float32(np.inf), np.float32(0)), _largest, (2, 2), (2, 2), "VALID"),
        X,
        Y,
    ),
    "reduce_window, dilated": of(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), ((1, 0), (0, 1)), (2, 1), (1, 2)), X
    ),
    "reduce_window, min": of(lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 3), (1, 1), "SAME"), X),
    "reduce_window of integers": still(lambda x: lax.reduce_window(x, 0, lax.add, (2, 3), (2, 1), "SAME"), IX),
    "reduce_window, bits": still(lambda x: lax.reduce_window(x, 0, lax.bitwise_or, (2, 3), (2, 1), "VALID"), IX),
    "reduce_window, large": still(lambda x: lax.reduce_window(x, -jnp.inf, jnp.logaddexp, (6, 7), (1, 1), "SAME"), X),
    "associative_scan": of(lambda x: lax.associative_scan(jnp.add, x, axis=1), X),
    "associative_scan, reverse": of(lambda x: lax.associative_scan(jnp.maximum, x, reverse=True), X),
    "associative_scan, affine": of(lambda x, y: lax.associative_scan(_affine, (x, y)), X, Y),
    "associative_scan of matrices": of(lambda x: lax.associative_scan(_matrices, x[:, :4].reshape(6, 2, 2)), X),
    "associative_scan, mean and variance": still(
        lambda x: lax.associative_scan(_mean_and_variance, (jnp.ones_like(x), x, 0 * x)), X
    ),
    "scan": of(lambda x: lax.scan(lambda c, v: (jnp.tanh(c + v), c * v), x[0], x), X),
    "scan, reverse and unrolled": of(lambda x: lax.scan(lambda c, v: (c * v, c), x[0], x, reverse=True, unroll=3), X),
    "scan of a tree": of(
        lambda x, y: lax.scan(lambda c, v: ({"a": c["a"] + v[0] * v[1]}, c["a"].sum()), {"a": x[0]}, (x, y)), X, Y
    ),
    "fori_loop": of(lambda x: lax.fori_loop(0, 5, lambda i, v: v * 0.9 + i, x), X),
    "while_loop": still(lambda x: lax.while_loop(lambda v: v.sum() < 200, lambda v: v * 1.5, x), X),
    "while_loop of pairs": still(
        lambda n: lax.while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (n, jnp.int32(84))), np.int32(36)
    ),
    "cond": of(lambda x: lax.cond(x.sum() > 3, lambda v: v * 2, jnp.sin, x), X),
    "switch": of(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * v], x), np.int32(2), X),
    "select_n": of(lambda x, y: lax.select_n((x > 1).astype(np.int32) + (y > 1), x, y, x * y), X, Y),
    "map": of(lambda x: lax.map(lambda r: r / r.sum(), x), X),
    "map, batches": of(lambda x: lax.map(lambda r: r / r.sum(), x, batch_size=4), X),
    "vectorize": of(jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()"), X, Y),
    "custom_root": still(
        lambda x: lax.custom_root(
            lambda v: v**3 - x,
            jnp.ones_like(x),
            lambda f, v: lax.fori_loop(0, 30, lambda _, u: u - f(u) / (3 * u**2 + 1e-6), v),
            lambda g, y: y / g(jnp.ones_like(y)),
        ),
        ROW,
    ),
    "custom_linear_solve": still(
        lambda x, b: lax.custom_linear_solve(
            lambda v: x @ x.T @ v + 5 * v, b, lambda m, v: jnp.linalg.solve(x @ x.T + 5 * jnp.eye(6), v)
        ),
        X,
        ROW[:6],
    ),
    "jacobian": of(jax.jacfwd(lambda v: jnp.sin(v) * v.sum()), ROW[:5]),
    "jacrev": still(jax.jacrev(lambda v: jnp.sin(v) * v.sum()), ROW[:5]),
    "hessian": still(jax.hessian(jnp.prod), ROW[:5]),
    "jvp": still(lambda x, t: jax.jvp(lambda v: jnp.cumsum(jnp.exp(v)), (x,), (t,)), ROW, ROW),
    "checkpoint": of(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()), X),
    "custom_jvp": of(lambda x: jax.nn.relu(x - 1) + jnp.where(x > 1, jnp.sqrt(jnp.maximum(x - 1, 0.1)), 0), X),
    "stop_gradient": of(lambda x: x * lax.stop_gradient(x), X),
    "odeint": still(
        lambda y: odeint(lambda s, t: -s * t, y, jnp.linspace(0.0, 1.0, 4)),
        ROW[:3],
        tolerance=1e-3,
    ),
    "minimize": still(
        lambda x: minimize(lambda v: ((v - 1) ** 2).sum(), x, method="BFGS").x,
        ROW[:3],
        tolerance=1e-3,
        has_batch=False,
    ),
    "bitcasts": still(lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(x, jnp.uint8)), X),
    "clamp": of(lambda x: lax.clamp(0.4, x, 1.1), X),
    "conversions": still(lambda x: (x.astype(jnp.int8), (x * 300).astype(jnp.uint8), x.astype(jnp.bfloat16), x > 1), X),
    "batch_matmul": of(lambda x, y: lax.batch_matmul(x.reshape(2, 3, 7), y.reshape(2, 7, 3)), X, Y),
    "dot_general": of(lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((1,), (1,)))), X, Y),
    "uniform": still(lambda k: jax.random.uniform(k, (3,)), np.array([1, 2], np.uint32)),
    "top_k of rows by vmap": still(jax.vmap(lambda x: lax.top_k(x, 2)[1]), X),
    "linear_transpose": still(lambda x, y: jax.linear_transpose(lambda v: jnp.cumsum(v, 1), x)(y), X, Y),
    "reduce, where": of(lambda x: jnp.add.reduce(x, axis=1, where=x > 0.5), X),
    "cumred, vmap": of(jax.vmap(lambda x: lax.cumprod(x, reverse=True)), X),
    "complex numbers": still(
        lambda x, y: (
            jnp.abs(x + 1j * y),
            jnp.angle(x + 1j * y),
            jnp.exp(1j * x),
            (x + 1j * y) ** 2.5,
            jnp.sqrt(x + 1j * y),
        ),
        X,
        Y,
    ),
}
