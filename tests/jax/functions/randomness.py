"""Draws of `jax.random`: the same numbers, by the same key."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import Case, jax, jnp, normal, of, positive, still

random = jax.random
KEY = np.array([3, 1 << 20], np.uint32)
MEANS, COVARIANCE = normal(0, 3), positive(1, 3)
LOGITS = normal(2, 4, 5)
SHAPE = np.array([0.4, 1.0, 2.5, 7.0], np.float32)


def drawn(function, *arguments, **options) -> Case:
    """A draw by a key, without slopes."""
    return still(function, KEY, *arguments, **options)


CASES = {
    "bits": drawn(
        lambda k: (random.bits(k, (3, 5)), random.bits(k, (7,), jnp.uint8), random.bits(k, (7,), jnp.uint16))
    ),
    "split": drawn(lambda k: random.split(k, 5)),
    "fold_in": drawn(lambda k: random.fold_in(k, 7)),
    "uniform": drawn(lambda k: (random.uniform(k, (5, 3)), random.uniform(k, (4,), minval=-2, maxval=5))),
    "uniform of f16": drawn(lambda k: (random.uniform(k, (5,), jnp.float16), random.uniform(k, (5,), jnp.bfloat16))),
    "normal": drawn(lambda k: random.normal(k, (5, 3))),
    "normal of bfloat16": drawn(lambda k: random.normal(k, (5, 3), jnp.bfloat16), tolerance=2e-2),
    "complex normal": drawn(lambda k: random.normal(k, (5,), jnp.complex64)),
    "truncated_normal": drawn(lambda k: random.truncated_normal(k, -1.0, 2.0, (9,))),
    "bernoulli": drawn(lambda k: random.bernoulli(k, 0.3, (9,))),
    "randint": drawn(lambda k: (random.randint(k, (9,), -5, 100), random.randint(k, (9,), 0, 7, jnp.uint8))),
    "permutation": drawn(lambda k: random.permutation(k, 20)),
    "permutation of rows": drawn(random.permutation, LOGITS),
    "permutation, independent": drawn(lambda k, x: random.permutation(k, x, axis=1, independent=True), LOGITS),
    "choice": drawn(lambda k: random.choice(k, 12, (5,))),
    "choice without replacement": drawn(lambda k: random.choice(k, 12, (5,), replace=False)),
    "choice by weights": drawn(lambda k: random.choice(k, 4, (7,), p=jnp.array([0.1, 0.2, 0.3, 0.4]))),
    "choice by weights without replacement": drawn(
        lambda k: random.choice(k, 4, (3,), replace=False, p=jnp.array([0.1, 0.2, 0.3, 0.4]))
    ),
    "categorical": drawn(random.categorical, LOGITS),
    "categorical, shape": drawn(lambda k, x: random.categorical(k, x, axis=0, shape=(6, 5)), LOGITS),
    "categorical without replacement": drawn(
        lambda k, x: random.categorical(k, x, shape=(2, 4), replace=False), LOGITS
    ),
    "gumbel": drawn(lambda k: random.gumbel(k, (9,)), tolerance=1e-3),
    "exponential": drawn(lambda k: random.exponential(k, (9,))),
    "laplace": drawn(lambda k: random.laplace(k, (9,))),
    "logistic": drawn(lambda k: random.logistic(k, (9,))),
    "cauchy": drawn(lambda k: random.cauchy(k, (9,)), tolerance=1e-3),
    "beta": drawn(lambda k, a: random.beta(k, a, 1.7, (4,)), SHAPE, tolerance=1e-3),
    "gamma": drawn(random.gamma, SHAPE, tolerance=1e-3),
    "gamma, slopes": of(random.gamma, KEY, SHAPE, tolerance=2e-3),
    "loggamma": drawn(random.loggamma, SHAPE, tolerance=1e-3),
    "dirichlet": drawn(lambda k, a: random.dirichlet(k, a, (3,)), SHAPE, tolerance=1e-3),
    "chisquare": drawn(random.chisquare, SHAPE, tolerance=1e-3),
    "f": drawn(lambda k, a: random.f(k, a, a + 1), SHAPE, tolerance=1e-3),
    "poisson": drawn(lambda k: random.poisson(k, jnp.array([0.3, 2.0, 9.0, 40.0]))),
    "poisson of zero": drawn(lambda k: random.poisson(k, jnp.array([0.0, 1.0]))),
    "binomial": drawn(lambda k: random.binomial(k, 10.0, jnp.array([0.1, 0.5, 0.9]))),
    "multinomial": drawn(lambda k: random.multinomial(k, 12.0, jnp.array([0.1, 0.5, 0.4]))),
    "geometric": drawn(lambda k: random.geometric(k, 0.3, (9,))),
    "t": drawn(random.t, SHAPE, tolerance=1e-3),
    "rayleigh": drawn(lambda k: random.rayleigh(k, 2.0, (5,))),
    "pareto": drawn(random.pareto, SHAPE, tolerance=1e-3),
    "lognormal": drawn(lambda k: random.lognormal(k, 0.7, (6,))),
    "weibull_min": drawn(lambda k: random.weibull_min(k, 2.0, 1.5, (6,))),
    "wald": drawn(lambda k: random.wald(k, 2.0, (6,)), tolerance=1e-3),
    "triangular": drawn(lambda k: random.triangular(k, 0.0, 0.3, 2.0, (6,))),
    "maxwell": drawn(lambda k: random.maxwell(k, (4,))),
    "double_sided_maxwell": drawn(lambda k: random.double_sided_maxwell(k, 0.0, 2.0, (4,))),
    "generalized_normal": drawn(lambda k: random.generalized_normal(k, 1.5, (4,)), tolerance=1e-3),
    "ball": drawn(lambda k: random.ball(k, 3, 2, (4,)), tolerance=1e-3),
    "orthogonal": drawn(lambda k: random.orthogonal(k, 4), tolerance=1e-3),
    "rademacher": drawn(lambda k: random.rademacher(k, (9,))),
    **{
        f"multivariate_normal, {method}": drawn(
            lambda k, m, c, method=method: random.multivariate_normal(k, m, c, (4,), method=method),
            MEANS,
            COVARIANCE,
            tolerance=1e-3,
        )
        for method in ("cholesky",)
    },
    "multivariate_normal by eigh": drawn(
        lambda k, m, c: random.multivariate_normal(k, m, c, (400,), method="eigh").mean(0).shape[0] + m,
        MEANS,
        COVARIANCE,
    ),
    "keys of a type": still(lambda n: random.normal(random.key(n), (4,)), np.int32(7)),
    "keys of a type, split": still(
        lambda n: jax.vmap(lambda k: random.uniform(k, (2,)))(random.split(random.key(n), 3)), np.int32(7)
    ),
    "initialisers": drawn(
        lambda k: [
            getattr(jax.nn.initializers, name)()(k, (4, 6))
            for name in ("glorot_uniform", "he_normal", "lecun_normal", "xavier_uniform", "orthogonal")
        ],
        tolerance=1e-3,
    ),
}
