"""`jax.scipy.special` and `jax.scipy.stats`."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import between, jax, jnp, normal, of, still, whole

sc, stats = jax.scipy.special, jax.scipy.stats
X, P, Q = normal(0, 17), between(0.3, 6, 17), between(0.5, 4, 17, seed=2)
U = between(0.02, 0.98, 17, seed=3)
N = whole(0, 7, 17)
GROSS = 3e-4
_OF_REALS = (
    "erf",
    "erfc",
    "expit",
    "entr",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log_ndtr",
    "ndtr",
    "sinc",
    "log_softmax",
    "softmax",
)
_OF_POSITIVE = ("gammaln", "digamma", "gamma", "factorial", "loggamma", "exp1", "bessel_jn", "sici", "fresnel")
_OF_UNIT = ("ndtri", "logit", "erfinv", "spence", "ellipk")

CASES = {
    **{
        name: of(lambda x, name=name: getattr(sc, name)(x), X, tolerance=GROSS)
        for name in _OF_REALS
        if hasattr(sc, name)
    },
    **{
        name: of(lambda x, name=name: getattr(sc, name)(x), P, tolerance=GROSS)
        for name in _OF_POSITIVE
        if hasattr(sc, name) and name != "bessel_jn"
    },
    **{
        name: of(lambda x, name=name: getattr(sc, name)(x), U, tolerance=1e-3) for name in _OF_UNIT if hasattr(sc, name)
    },
    "gammaln of negatives": still(lambda x: (sc.gammaln(x), sc.digamma(x), sc.gamma(x)), 3 * X, tolerance=1e-3),
    "gammasgn": still(sc.gammasgn, 3 * X),
    "beta": of(lambda a, b: (sc.beta(a, b), sc.betaln(a, b)), P, Q, tolerance=GROSS),
    "betainc": of(sc.betainc, P, Q, U, tolerance=1e-3, has_gradient=False),
    "betainc, slopes": of(lambda x: sc.betainc(jnp.asarray(P), jnp.asarray(Q), x), U, tolerance=1e-3),
    "gammainc": of(sc.gammainc, P, Q, tolerance=1e-3),
    "gammaincc": of(sc.gammaincc, P, Q, tolerance=1e-3),
    "gammainc of large ones": still(
        lambda a, x: (sc.gammainc(9 * a, 9 * x), sc.gammaincc(9 * a, 9 * x)), P, Q, tolerance=1e-3
    ),
    "zeta": of(lambda x, q: sc.zeta(x + 1.2, q), P, Q, tolerance=1e-3, has_gradient=False),
    "polygamma": of(lambda x: (sc.polygamma(1, x), sc.polygamma(2, x)), P, tolerance=1e-3),
    "expi": of(sc.expi, P, tolerance=1e-3),
    "expn": of(lambda x: sc.expn(3, x), P, tolerance=1e-3),
    "xlogy": of(lambda x, y: (sc.xlogy(x, y), sc.xlog1py(x, y)), P, Q),
    "rel_entr": of(lambda x, y: (sc.rel_entr(x, y), sc.kl_div(x, y)), P, Q),
    "logsumexp": of(
        lambda x, w: (sc.logsumexp(x), sc.logsumexp(x, b=jnp.abs(w)), sc.logsumexp(x, b=w, return_sign=True)), X, Q
    ),
    "logsumexp of infinities": still(lambda x: sc.logsumexp(jnp.where(x > 0, x, -jnp.inf)), X),
    "multigammaln": of(lambda x: sc.multigammaln(x + 3, 3), P, tolerance=GROSS),
    "poch": of(sc.poch, P, Q, tolerance=1e-3),
    "comb": still(lambda x: sc.comb(9, x) if hasattr(sc, "comb") else x, N.astype(np.float32), tolerance=GROSS),
    "hyp1f1": still(sc.hyp1f1, P, Q, X, tolerance=2e-3),
    "hyp2f1": still(lambda a, b, x: sc.hyp2f1(a, b, a + b + 0.3, 0.7 * x), P, Q, U, tolerance=2e-3),
    "bernoulli": still(lambda x: x + sc.bernoulli(7)[-1], X),
    "bessel_jn": still(lambda x: sc.bessel_jn(x, v=4, n_iter=30), P, tolerance=1e-3),
    "sph_harm_y": still(
        lambda n, m, t, p: sc.sph_harm_y(n, m, t, p, n_max=5),
        *(np.array([1, 2, 3, 4]), np.array([0, 1, -2, 3]), P[:4], Q[:4]),
        tolerance=1e-3,
    ),
    "lpmn_values": still(
        lambda x: sc.lpmn_values(3, 3, x, True) if hasattr(sc, "lpmn_values") else x, U, tolerance=1e-3
    ),
    "igammas of lax": still(
        lambda a, x: (jax.lax.igamma(a, x), jax.lax.igammac(a, x), jax.lax.random_gamma_grad(a, x)),
        P,
        Q,
        tolerance=1e-3,
    ),
    "bessels of lax": of(lambda x: (jax.lax.bessel_i0e(x), jax.lax.bessel_i1e(x)), 4 * X, tolerance=GROSS),
    "elementary": of(
        lambda x: (jnp.expm1(x), jnp.log1p(x * x), jnp.cbrt(x), jnp.sinh(x), jnp.arctan(x), jnp.arcsinh(x)), X
    ),
    "inverses": of(lambda u: (jnp.arcsin(u), jnp.arccos(u), jnp.arctanh(u), jnp.arccosh(1 + u), jnp.tan(u)), U),
    "exp2 and log2": of(
        lambda u: (jnp.exp2(u), jnp.log2(u), jnp.log10(u), jnp.deg2rad(u), jnp.square(u), jnp.reciprocal(u)), U
    ),
    "norm": of(
        lambda x: (stats.norm.logpdf(x, 1, 2), stats.norm.cdf(x), stats.norm.sf(x), stats.norm.logcdf(x)),
        X,
        tolerance=GROSS,
    ),
    "norm.ppf": of(lambda u: (stats.norm.ppf(u), stats.norm.isf(u)), U, tolerance=GROSS),
    "beta.pdf": of(lambda u, a: (stats.beta.logpdf(u, a, 2.0), stats.beta.cdf(u, 2.0, 1.5)), U, P, tolerance=1e-3),
    "gamma.pdf": of(lambda x, a: (stats.gamma.logpdf(x, a), stats.gamma.cdf(x, a)), Q, P, tolerance=1e-3),
    "t.pdf": of(stats.t.logpdf, X, P, tolerance=GROSS),
    "poisson.pmf": still(lambda n, a: (stats.poisson.logpmf(n, a), stats.poisson.cdf(n, a)), N, P, tolerance=1e-3),
    "binom": still(lambda n, u: stats.binom.logpmf(n, 9, u), N, U, tolerance=GROSS),
    "nbinom": still(lambda n, u: stats.nbinom.logpmf(n, 4, u), N, U, tolerance=GROSS),
    "dirichlet.pdf": of(lambda a: stats.dirichlet.logpdf(jnp.array([0.2, 0.3, 0.5]), a), P[:3], tolerance=GROSS),
    "multivariate_normal": of(
        lambda x, m: stats.multivariate_normal.logpdf(x, m, jnp.eye(3) * 2 + 0.3),
        normal(1, 5, 3),
        normal(2, 3),
        tolerance=GROSS,
    ),
    "chi2": of(lambda x, a: (stats.chi2.logpdf(x, a), stats.chi2.cdf(x, a)), Q, P, tolerance=1e-3),
    "other densities": of(
        lambda x: (
            *(stats.laplace.logpdf(x), stats.logistic.logpdf(x), stats.cauchy.logpdf(x), stats.cauchy.cdf(x)),
            *(stats.expon.logpdf(x), stats.uniform.logpdf(x, -9, 20), stats.gennorm.logpdf(x, 1.5)),
            *(stats.truncnorm.logpdf(x, -9, 9), stats.laplace.cdf(x), stats.logistic.sf(x)),
        ),
        X,
        tolerance=1e-3,
    ),
    "pareto": of(lambda x: stats.pareto.logpdf(x + 1, 2.5), P),
    "vonmises": of(stats.vonmises.logpdf, X, P, tolerance=GROSS),
    "betabinom": still(lambda n, a: stats.betabinom.logpmf(n, 9, a, 2.0), N, P, tolerance=1e-3),
    "multinomial": still(
        lambda n: stats.multinomial.logpmf(n, n.sum(), jnp.array([0.2, 0.3, 0.5])), np.array([2, 3, 1])
    ),
    "gaussian_kde": still(lambda x, at: stats.gaussian_kde(x)(at), X, normal(4, 5), tolerance=1e-3),
    "sem": of(stats.sem, X),
}
