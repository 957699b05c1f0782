"""Sorting, searching, sets, quantiles and histograms."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import jax, jnp, normal, of, still, whole

X, Y = normal(0, 6, 11), normal(1, 6, 11)
ROW = normal(2, 40)
SORTED = np.sort(normal(3, 15))
NAN = np.array([3, np.nan, -1, 0.0, -0.0, np.inf, -np.inf, np.nan, 2], np.float32)
KEYS = whole(0, 4, 6, 11)
SMALL = whole(0, 6, 20)

CASES = {
    "sort": of(lambda x: jnp.sort(x, axis=0), X),
    "sort, descending": of(lambda x: jnp.sort(x, descending=True), X),
    "sort of NaN": still(jnp.sort, NAN),
    "argsort": still(jnp.argsort, X),
    "argsort, descending": still(lambda x: jnp.argsort(x, descending=True), NAN),
    "argsort of ties": still(jnp.argsort, KEYS),
    "lexsort": still(lambda a, b, c: jnp.lexsort((a, b, c)), KEYS[0], whole(0, 2, 11), X[0]),
    "sort_complex": still(jnp.sort_complex, np.round(X[0]) + 1j * Y[0]),
    **{
        f"lax.sort of five, {keys} keys": still(
            lambda a, b, c, d, e, keys=keys: jax.lax.sort((a, b, c, d, e), num_keys=keys),
            *(whole(0, 2, 6, 11), whole(0, 2, 6, 11, seed=1), whole(0, 3, 6, 11, seed=2), X, Y),
        )
        for keys in (1, 2, 3, 4, 5)
    },
    "lax.sort of floats, three keys": still(
        lambda a, b, c: jax.lax.sort((a, b, c), num_keys=3), *(np.round(v) for v in (X, Y, X + Y))
    ),
    "lax.sort with slopes": of(lambda a, b: jax.lax.sort((a, b), num_keys=1), X, Y),
    "lax.sort of pairs, unstable": still(
        lambda a, b: jax.lax.sort((a, b), num_keys=2, is_stable=False), KEYS, whole(0, 9, 6, 11)
    ),
    "top_k": of(lambda x: jax.lax.top_k(x, 3), X),
    "top_k of integers": still(lambda x: jax.lax.top_k(x, 4), KEYS),
    "approx_max_k": of(lambda x: jax.lax.approx_max_k(x, 3), X),
    "approx_max_k, an axis": of(lambda x: jax.lax.approx_max_k(x, 2, reduction_dimension=0), X),
    "approx_min_k": of(lambda x: jax.lax.approx_min_k(x, 3), X),
    "argmax": still(lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1)), X),
    "argmax of NaN": still(lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.nanargmax(x[:4])), NAN),
    "partition": of(lambda x: jnp.partition(x, 4), X),
    "argpartition": still(lambda x: jnp.sort(jnp.argpartition(x, 4)[..., :4]), X),
    **{
        f"searchsorted, {method}": still(
            lambda a, v, method=method: (
                jnp.searchsorted(a, v, method=method),
                jnp.searchsorted(a, v, "right", method=method),
            ),
            SORTED,
            ROW,
        )
        for method in ("scan", "scan_unrolled", "sort", "compare_all")
    },
    "searchsorted of NaN": still(jnp.searchsorted, SORTED, NAN),
    "digitize": still(jnp.digitize, ROW, SORTED),
    "unique": still(lambda x: jnp.unique(x, size=7, fill_value=-1), SMALL),
    "unique, all": still(
        lambda x: jnp.unique(x, size=4, return_index=True, return_inverse=True, return_counts=True), SMALL
    ),
    "unique of rows": still(lambda x: jnp.unique(x, axis=0, size=5), whole(0, 2, 9, 3)),
    "unique of floats": still(lambda x: jnp.unique(x, size=9), NAN),
    "nonzero": still(lambda x: jnp.nonzero(x > 0.3, size=9, fill_value=-1), X),
    "flatnonzero": still(lambda x: jnp.flatnonzero(x > 0.3, size=70), X),
    "argwhere": still(lambda x: jnp.argwhere(x > 0.3, size=12), X),
    "where": still(lambda x: jnp.where(x > 0.3, size=12), X),
    "isin": still(jnp.isin, SMALL, np.array([1, 4, 9])),
    "intersect1d": still(lambda a, b: jnp.intersect1d(a, b, size=5), SMALL, whole(3, 9, 8)),
    "union1d": still(lambda a, b: jnp.union1d(a, b, size=12), SMALL, whole(3, 9, 8)),
    "setdiff1d": still(lambda a, b: jnp.setdiff1d(a, b, size=5), SMALL, whole(3, 9, 8)),
    "setxor1d": still(lambda a, b: jnp.setxor1d(a, b, size=9), SMALL, whole(3, 9, 8)),
    "histogram": still(lambda x: jnp.histogram(x, bins=8), ROW),
    "histogram, range": still(lambda x: jnp.histogram(x, bins=5, range=(-1, 1), density=True), ROW),
    "histogram, weights": still(lambda x, w: jnp.histogram(x, jnp.linspace(-2, 2, 6), weights=w), ROW, ROW**2),
    "histogram2d": still(lambda x, y: jnp.histogram2d(x, y, bins=4), ROW, -ROW),
    "histogram_bin_edges": still(lambda x: jnp.histogram_bin_edges(x, 6), ROW),
    "interp": of(lambda x, f: jnp.interp(x, jnp.asarray(SORTED), f), ROW, normal(5, 15)),
    "interp, ends": of(
        lambda x, f: jnp.interp(x, jnp.asarray(SORTED), f, left=-1.0, right="extrapolate"), ROW, SORTED**2
    ),
    "interp, period": of(lambda x, f: jnp.interp(x, jnp.linspace(0, 3, 15), f, period=3.5), ROW, SORTED),
    **{
        f"quantile, {method}": of(
            lambda x, method=method: jnp.quantile(x, jnp.array([0.1, 0.5, 0.93]), 1, method=method), X
        )
        for method in ("linear", "lower", "higher", "midpoint", "nearest")
    },
    "percentile": of(lambda x: jnp.percentile(x, jnp.array([5.0, 50.0])), X),
    "nanquantile": still(lambda x: jnp.nanquantile(x[:6], 0.4), NAN),
    "median": of(lambda x: jnp.median(x, axis=0, keepdims=True), X),
    "nanmedian": still(jnp.nanmedian, NAN),
    "ptp": of(lambda x: jnp.ptp(x, 1), X),
    "rank": still(lambda x: jax.scipy.stats.rankdata(x, axis=1), KEYS),
    "mode": still(lambda x: jax.scipy.stats.mode(x, axis=1), KEYS),
    "cov": of(jnp.cov, X),
    "corrcoef": of(jnp.corrcoef, X),
    "cumulatives": of(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), jax.lax.cummax(x, 1), jax.lax.cummin(x, 0)), X),
    "cumlogsumexp": of(lambda x: jax.lax.cumlogsumexp(x, 1, reverse=True), X),
    "nan cumulatives": still(lambda x: (jnp.nancumsum(x[:4]), jnp.nancumprod(x[:4])), NAN),
    "nan reductions": still(
        lambda x: (jnp.nansum(x[:5]), jnp.nanmean(x[:5]), jnp.nanstd(x[:5]), jnp.nanmax(x), jnp.nanmin(x)), NAN
    ),
    "trapezoid": of(lambda x, y: jnp.trapezoid(x, y, axis=1), X, Y),
    "gradient": of(jnp.gradient, X),
    "diff": of(lambda x: jnp.diff(x, 2, axis=1, prepend=0.0), X),
    "ediff1d": of(lambda x: jnp.ediff1d(x, to_end=1.0), ROW),
    "unwrap": of(lambda x: jnp.unwrap(3 * x), ROW, has_gradient=False),
    "count_nonzero": still(lambda x: jnp.count_nonzero(x > 0, 1), X),
    "average": of(lambda x, w: jnp.average(x, 1, jnp.abs(w), returned=True), X, Y),
    "packbits": still(lambda x: jnp.packbits(x > 0, axis=1), X),
    "unpackbits": still(lambda x: jnp.unpackbits(x.astype(jnp.uint8), axis=0), KEYS),
    "frexp": still(jnp.frexp, X),
    "modf": still(jnp.modf, 3 * X),
    "nextafter": still(jnp.nextafter, X, Y),
    "spacing": still(jnp.spacing, X),
    "gcd": still(lambda a, b: (jnp.gcd(a, b), jnp.lcm(a, b)), whole(-30, 40, 20), whole(1, 40, 20, seed=1)),
    "floor_divide": still(lambda x, y: (x // y, jnp.divmod(x, y), jnp.fmod(x, y), jnp.remainder(x, y)), X, Y),
    "integer division": still(
        lambda x, y: (x // y, x % y, jnp.divmod(x, y), jax.lax.rem(x, y)), whole(-9, 9, 20), whole(1, 5, 20, seed=1)
    ),
    "heaviside": still(jnp.heaviside, NAN, NAN * 0 + 0.5),
    "ldexp": of(jnp.ldexp, ROW[:20], whole(-3, 4, 20)),
    "logaddexp": of(lambda a, b: (jnp.logaddexp(a, b), jnp.logaddexp2(a, b)), X, Y),
    "hypot": of(jnp.hypot, X, Y),
    "sinc": of(jnp.sinc, X),
    "rounding": still(lambda x: (jnp.round(x, 1), jnp.rint(4 * x), jnp.trunc(x), jnp.floor(x), jnp.ceil(x)), X),
    "float_power": of(lambda x: jnp.float_power(jnp.abs(x), 2.3), X),
    "bits": still(lambda a: (jax.lax.population_count(a), jax.lax.clz(a), jnp.bitwise_count(a), a << 3, a >> 2), SMALL),
    "apply_along_axis": of(lambda x: jnp.apply_along_axis(lambda v: v / v.sum(), 1, x), X),
    "apply_over_axes": of(lambda x: jnp.apply_over_axes(jnp.sum, x, [0]), X),
    "polyfit": of(lambda x, y: jnp.polyfit(x, y, 2), ROW[:12], normal(8, 12), tolerance=2e-3),
    "polyval": of(jnp.polyval, ROW[:4], X),
    "polynomials": of(
        lambda p, q: (jnp.polyadd(p, q), jnp.polymul(p, q), jnp.polyder(p), jnp.polyint(p)), ROW[:4], ROW[5:8]
    ),
    "polydiv": still(jnp.polydiv, ROW[:6], ROW[5:8], tolerance=2e-3),
    "roots": still(lambda p: jnp.sort(jnp.abs(jnp.roots(p, strip_zeros=False))), ROW[:5], tolerance=1e-3),
    "vander": of(lambda x: jnp.vander(x, 4), ROW[:7]),
    "kron": of(jnp.kron, X[:2, :3], Y[:3, :2]),
    "cross": of(jnp.cross, X[:, :3], Y[:, :3]),
    "einsum": of(lambda a, b: jnp.einsum("ij,kj->ki", a, b), X, Y),
    "einsum of three": of(lambda a, b: jnp.einsum("ij,kj,kl->il", a, b, a), X, Y),
    "tensordot": of(lambda a, b: jnp.tensordot(a, b, ((1,), (1,))), X, Y),
    "inner and outer": of(lambda a, b: (jnp.inner(a, b), jnp.outer(a[0], b[0]), jnp.vdot(a, b)), X, Y),
    "block": of(lambda a, b: jnp.block([[a, b], [b, a]]), X, Y),
    "tile and repeat": of(lambda a: (jnp.tile(a, (2, 3)), jnp.repeat(a, 2, 1)), X),
    "repeat, lengths": of(lambda a, n: jnp.repeat(a, n, axis=0, total_repeat_length=9), X, whole(0, 4, 6)),
    "rot90 and flips": of(lambda a: (jnp.rot90(a), jnp.flipud(a), jnp.fliplr(a)), X),
    **{
        f"pad, {mode}": of(lambda a, mode=mode: jnp.pad(a, ((2, 1), (3, 4)), mode=mode), X)
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "minimum")
    },
    "median pad": of(lambda a: jnp.pad(a, 2, mode="median"), X),
    "matrix of triangles": of(lambda a: (jnp.tril(a, 1), jnp.triu(a, -1), jnp.diag(a[0]), jnp.diagonal(a, 2)), X),
    "meshgrid": of(lambda a, b: jnp.meshgrid(a, b, indexing="ij"), ROW[:4], ROW[:3]),
}
