"""Updates and reads by index: `x.at[i]` of all methods and modes, `take`, `put_along_axis` and their kin."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import between, jax, jnp, normal, of, still, whole

X, U = between(0.5, 2.0, 9, 4), between(0.5, 2.0, 6, 4, seed=1)
INSIDE = np.array([3, 0, 7, 3, 8, 1], np.int32)
OUTSIDE = np.array([3, -1, 12, 3, -20, 1], np.int32)
DISTINCT = np.array([3, 0, 7, 2, 8, 1], np.int32)
MASK = np.array([True, False, True, True, False, False, True, False, True])


def _updated(method, mode):
    return lambda x, i, u: getattr(x.at[i], method)(u, mode=mode)


CASES = {
    **{
        f"at.{method}, {mode}": of(_updated(method, mode), X, INSIDE if mode == "promise_in_bounds" else OUTSIDE, U)
        for method in ("add", "multiply", "divide", "min", "max", "subtract")
        for mode in ("fill", "drop", "clip", "promise_in_bounds")
    },
    **{f"at.power, {mode}": of(_updated("power", mode), X, DISTINCT, U) for mode in ("fill", "clip", "drop")},
    **{f"at.set, {mode}": of(_updated("set", mode), X, DISTINCT, U) for mode in ("fill", "clip", "drop")},
    "at.set, some outside": of(lambda x, i, u: x.at[i].set(u, mode="drop"), X, np.array([3, 12, 0, -30, 5, 6]), U),
    **{f"at.get, {mode}": of(lambda x, i, mode=mode: x.at[i].get(mode=mode), X, OUTSIDE) for mode in ("fill", "clip")},
    "at.get, fill value": of(lambda x, i: x.at[i].get(mode="fill", fill_value=-7.0), X, OUTSIDE),
    "at.get of integers, fill": still(lambda x, i: x.at[i].get(mode="fill"), whole(0, 9, 9), OUTSIDE),
    "at.apply": of(lambda x, i: x.at[i].apply(jnp.sin), X, INSIDE),
    "at.apply twice at a place": of(lambda x, i: x.at[i].apply(lambda v: v * 2 + 1), X, INSIDE, has_gradient=False),
    "at.apply, drop": of(lambda x, i: x.at[i].apply(jnp.exp, mode="drop"), X, OUTSIDE),
    "at.apply of integers": still(lambda x, i: x.at[i].apply(lambda v: v * v - 3), whole(0, 9, 9), INSIDE),
    "at.apply of a slice": of(lambda x: x.at[2:5, 1].apply(jnp.log), X),
    "at of two indices": of(lambda x, i, j, u: x.at[i, j].add(u), X, INSIDE, whole(0, 4, 6), U[:, 0]),
    "at of a mask": of(lambda x, u: x.at[MASK].set(u[0]), X, U),
    "at of a slice and an index": of(lambda x, i, u: x.at[1:7, i].multiply(u[:, :3]), X, whole(0, 4, 3), U),
    "at of steps": of(lambda x, u: x.at[::2, ::-1].add(u[:5]), X, U),
    "at of an ellipsis": of(lambda x, i, u: x.at[..., i].max(u[0, :3]), X, whole(0, 4, 3), U),
    "at of integers, multiply": still(lambda x, i: x.at[i].multiply(3), whole(1, 9, 9), INSIDE),
    "at of integers, divide": still(lambda x, i: x.at[i].divide(3), X, DISTINCT),
    "at of integers, power": still(lambda x, i: x.at[i].power(3), whole(1, 5, 9), DISTINCT),
    "at of bytes, add": still(lambda x, i: x.at[i].add(200), whole(0, 99, 9).astype(np.uint8), INSIDE),
    "at of bool, min": still(lambda x, i: x.at[i].min(False), MASK, INSIDE[:3]),
    "at of complex numbers": of(
        lambda x, i, u: x.at[i].multiply(u), X + 1j * X, DISTINCT, U - 1j * U, has_gradient=False
    ),
    "at.add of complex numbers": still(lambda x, i, u: x.at[i].add(u), X + 1j * X, INSIDE, U - 1j * U),
    "at of f16": still(
        lambda x, i, u: x.at[i].add(u), X.astype(np.float16), INSIDE, U.astype(np.float16), tolerance=2e-3
    ),
    "at of bfloat16, multiply": still(
        lambda x, i, u: x.astype(jnp.bfloat16).at[i].multiply(u.astype(jnp.bfloat16)), X, DISTINCT, U, tolerance=1e-2
    ),
    "at, sorted and unique": of(
        lambda x, i, u: x.at[i].add(u, indices_are_sorted=True, unique_indices=True), X, np.sort(DISTINCT), U
    ),
    "take": of(lambda x, i: jnp.take(x, i, axis=0), X, OUTSIDE),
    "take, wrap": of(lambda x, i: jnp.take(x, i, axis=1, mode="wrap"), X, OUTSIDE),
    "take, clip": of(lambda x, i: jnp.take(x, i, mode="clip"), X, OUTSIDE),
    "take_along_axis": of(lambda x, i: jnp.take_along_axis(x, i, axis=1), X, whole(0, 4, 9, 2)),
    "take_along_axis, fill": of(lambda x, i: jnp.take_along_axis(x, i, axis=0, mode="fill"), X, whole(-3, 12, 2, 4)),
    "put_along_axis": of(
        lambda x, i, u: jnp.put_along_axis(x, i, u, axis=1, inplace=False), X, whole(0, 4, 9, 1), U[:1, :1]
    ),
    "put": still(lambda x, i, u: jnp.put(x, i, u, inplace=False), X, DISTINCT, U[0]),
    "place": still(lambda x, m: jnp.place(x, m[:, None] & (x > 1), jnp.array([1.0, 2.0]), inplace=False), X, MASK),
    "fill_diagonal": of(lambda x: jnp.fill_diagonal(x, 7.0, inplace=False), X),
    "choose": of(lambda i, x: jnp.choose(i, [x, 2 * x, x + 1], mode="clip"), whole(-1, 5, 9, 4), X),
    "select": of(lambda x: jnp.select([x < 0.7, x < 1.2, x > 1.9], [x, -x, 2 * x], 9.0), X),
    "piecewise": of(lambda x: jnp.piecewise(x, [x < 1, x > 1.5], [jnp.sin, lambda v: v**2, 3.0]), X),
    "compress": of(lambda x: jnp.compress(jnp.asarray(MASK), x, axis=0, size=4), X),
    "extract": still(lambda m, x: jnp.extract(m, x, size=7, fill_value=-1.0), X > 1, X),
    "delete": of(lambda x: jnp.delete(x, jnp.array([1, 3]), axis=0, assume_unique_indices=True), X),
    "insert": of(lambda x: jnp.insert(x, jnp.array([1, 3]), 5.0, axis=0), X),
    "dynamic_slice": of(lambda x, i: jax.lax.dynamic_slice(x, (i, i - 2), (4, 2)), X, np.int32(3)),
    "dynamic_update_slice": of(lambda x, u, i: jax.lax.dynamic_update_slice(x, u, (i, 0)), X, U[:3], np.int32(7)),
    "dynamic_index_in_dim": of(lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 1), X, np.int32(-1)),
    "segment_sum": of(lambda x, i: jax.ops.segment_sum(x, i, 5), X, whole(0, 5, 9)),
    "segment_max": of(lambda x, i: jax.ops.segment_max(x, i, 5), X, whole(0, 4, 9)),
    "segment_min": of(lambda x, i: jax.ops.segment_min(x, i, 5), X, whole(0, 4, 9)),
    "segment_prod": still(lambda x, i: jax.ops.segment_prod(x, i, 5), X, whole(0, 4, 9)),
    "gather of windows": of(lambda x, i: jax.vmap(lambda s: jax.lax.dynamic_slice(x, (s, 1), (3, 2)))(i), X, INSIDE),
    "tril_indices": of(lambda x: x[jnp.tril_indices(4)], X),
    "ravel_multi_index": still(lambda i: jnp.ravel_multi_index((i, i % 4), (9, 4), mode="clip"), INSIDE),
    "unravel_index": still(lambda i: jnp.unravel_index(i, (3, 5)), INSIDE),
    "scatter_mul": of(
        lambda x, i, u: jax.lax.scatter_mul(
            x,
            i[:, None],
            u,
            jax.lax.ScatterDimensionNumbers((1,), (0,), (0,)),
            unique_indices=True,
        ),
        X,
        DISTINCT,
        U,
    ),
    "roll": of(lambda x, n: jnp.roll(x, n, axis=0), X, np.int32(3)),
    "digits of a histogram": still(lambda x: jnp.bincount(x, length=6), whole(0, 8, 30)),
    "bincount, weights": of(lambda i, w: jnp.bincount(i, w, length=6), whole(0, 6, 30), normal(3, 30)),
}
