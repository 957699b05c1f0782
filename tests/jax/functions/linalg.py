"""Dense linear algebra: factorisations by what they make up again, where their factors are free in sign or order."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import jax, jnp, normal, of, positive, still

A, B = normal(0, 5, 5) + 2 * np.eye(5, dtype=np.float32), normal(1, 5, 3)
TALL, WIDE = normal(2, 7, 4), normal(3, 4, 7)
H = positive(4, 5)
COMPLEX = A + 1j * normal(5, 5, 5)
HERMITIAN = COMPLEX + COMPLEX.conj().T
STACK = np.stack([A, A.T, A @ A])
LOWER, D, UPPER = normal(6, 6), normal(7, 6) + 4, normal(8, 6)
BAND = 1 - np.eye(1, 6, 0, dtype=np.float32)[0], 1 - np.eye(1, 6, 5, dtype=np.float32)[0]
sp, ll = jax.scipy.linalg, jax.lax.linalg


def _turned(u):
    """Without the signs of columns, of which factorisations leave some open."""
    return jnp.abs(u)


def _by_size(values):
    return jnp.sort(jnp.abs(values), axis=-1), jnp.sort(jnp.real(values), axis=-1)


def _eig(a):
    w, v = jnp.linalg.eig(a)
    return _by_size(w), jnp.abs(a @ v - v * w[..., None, :]), jnp.linalg.norm(v, axis=-2)


def _schur(a, output):
    t, z = sp.schur(a, output)
    return z @ t @ jnp.conj(jnp.swapaxes(z, -1, -2)), jnp.abs(jnp.tril(t, -2))


def _both(a):
    w, left, right = ll.eig(a, compute_left_eigenvectors=True)
    pairs = jnp.abs(jnp.sum(jnp.conj(left) * right, axis=-2))
    order = jnp.argsort(jnp.real(w) + 1e-3 * jnp.imag(w))
    kept = jnp.abs(jnp.conj(left.T) @ a - w[:, None] * jnp.conj(left.T))
    return pairs[order], kept, jnp.linalg.norm(left, axis=-2)


def _hessenberg(a):
    h, q = sp.hessenberg(a, calc_q=True)
    return q @ h @ jnp.conj(q.T), jnp.tril(h, -2), jnp.abs(h)


def _tridiagonal(a):
    _, d, e, _ = ll.tridiagonal(a, lower=True)
    return d, jnp.abs(e)


def _pivoted(a):
    q, r, p = sp.qr(a, pivoting=True, mode="economic")
    return q @ r, _turned(r), p


def _lu(a):
    return tuple(sp.lu(a))


def _reflected(a, c):
    packed, taus = jnp.linalg.qr(a, "raw")
    packed = jnp.swapaxes(packed, -1, -2)
    return ll.ormqr(packed, taus, c, left=True, transpose=True), ll.ormqr(packed, taus, c.T, left=False)


CASES = {
    "det": of(jnp.linalg.det, STACK),
    "slogdet": of(jnp.linalg.slogdet, A),
    "slogdet of complex numbers": still(jnp.linalg.slogdet, COMPLEX),
    "inv": of(jnp.linalg.inv, A, tolerance=1e-3),
    "solve": of(jnp.linalg.solve, A, B, tolerance=1e-3),
    "solve of a vector": of(lambda a, b: jnp.linalg.solve(a, b[:, 0]), A, B, tolerance=1e-3),
    "solve, Hermitian": of(lambda a, b: sp.solve(a, b, assume_a="pos"), H, B, tolerance=1e-3),
    "lstsq": of(lambda a, b: jnp.linalg.lstsq(a, b)[0], TALL, normal(9, 7, 2), tolerance=1e-3),
    "lstsq, all": still(jnp.linalg.lstsq, TALL, normal(9, 7, 2), tolerance=1e-3),
    "pinv": of(jnp.linalg.pinv, TALL, tolerance=1e-3),
    "matrix_rank": still(jnp.linalg.matrix_rank, TALL @ WIDE),
    "matrix_power": of(lambda a: (jnp.linalg.matrix_power(a, 5), jnp.linalg.matrix_power(a, -2)), A, tolerance=1e-3),
    "norms": of(
        lambda a: [jnp.linalg.norm(a, order) for order in (None, 1, 2, jnp.inf, -1, -2, "fro", "nuc")],
        A,
        tolerance=1e-3,
    ),
    "cond": of(jnp.linalg.cond, A, tolerance=1e-3),
    "multi_dot": of(lambda a, b, c: jnp.linalg.multi_dot([a, b, c]), TALL, WIDE, TALL),
    "tensorsolve": of(
        lambda a, b: jnp.linalg.tensorsolve(a.reshape(2, 3, 6), b),
        normal(1, 6, 6) + 3 * np.eye(6, dtype=np.float32),
        normal(2, 2, 3),
        tolerance=1e-3,
    ),
    "tensorinv": of(
        lambda a: jnp.linalg.tensorinv(a.reshape(2, 3, 6), ind=2),
        normal(1, 6, 6) + 3 * np.eye(6, dtype=np.float32),
        tolerance=1e-3,
    ),
    "cholesky": of(jnp.linalg.cholesky, H),
    "cholesky, upper": of(lambda a: jnp.linalg.cholesky(a, upper=True), H),
    "cholesky of none": still(lambda a: jnp.isnan(jnp.linalg.cholesky(-a)), H),
    "cholesky of complex numbers": still(lambda a: jnp.linalg.cholesky(a @ jnp.conj(a.T)), COMPLEX, tolerance=1e-3),
    "cho_solve": of(lambda a, b: sp.cho_solve(sp.cho_factor(a), b), H, B, tolerance=1e-3),
    "cholesky_update": still(
        lambda a, v: jnp.abs(ll.cholesky_update(jnp.linalg.cholesky(a).T, v)), H, B[:, 0], has_batch=False
    ),
    "solve_triangular": of(
        lambda a, b: [sp.solve_triangular(a, b, trans=t, lower=low) for t in (0, 1, 2) for low in (True, False)],
        A + 3 * np.eye(5, dtype=np.float32),
        B,
    ),
    "solve_triangular, unit": of(lambda a, b: sp.solve_triangular(a, b, lower=True, unit_diagonal=True), A, B),
    "qr": of(jnp.linalg.qr, TALL, tolerance=1e-3),
    "qr, complete": still(lambda a: [jnp.abs(x) for x in jnp.linalg.qr(a, "complete")], TALL),
    "qr, r": of(lambda a: jnp.abs(jnp.linalg.qr(a, "r")), A, tolerance=1e-3),
    "qr, raw": still(lambda a: jnp.linalg.qr(a, "raw"), TALL, tolerance=1e-3),
    "qr of wide ones": still(jnp.linalg.qr, WIDE, tolerance=1e-3),
    "qr of complex numbers": still(jnp.linalg.qr, COMPLEX, tolerance=1e-3),
    "qr, pivoting": still(_pivoted, TALL, tolerance=1e-3),
    "ormqr": still(_reflected, TALL, normal(4, 7, 3), tolerance=1e-3),
    "lu": of(_lu, A, tolerance=1e-3),
    "lu of tall ones": still(_lu, TALL),
    "lu_factor": still(sp.lu_factor, A),
    "lu_solve": of(lambda a, b: sp.lu_solve(sp.lu_factor(a), b), A, B, tolerance=1e-3),
    "lu of lax": still(ll.lu, STACK),
    "eigh": of(lambda a: jnp.linalg.eigh(a + a.T)[0], A, tolerance=1e-3),
    "eigh, vectors": still(lambda a: jnp.abs(jnp.linalg.eigh(a + a.T)[1]), A, tolerance=1e-3),
    "eigvalsh, upper": of(lambda a: jnp.linalg.eigvalsh(a, UPLO="U"), A, tolerance=1e-3),
    "eigh of complex numbers": still(jnp.linalg.eigvalsh, HERMITIAN, tolerance=1e-3),
    "eigh of scipy": still(lambda a: sp.eigh(a, eigvals_only=True), H, tolerance=1e-3),
    "eigh_tridiagonal": still(lambda d, e: sp.eigh_tridiagonal(d, e, eigvals_only=True), D, LOWER[1:], tolerance=1e-3),
    "eig": still(_eig, A, tolerance=1e-3),
    "eig of complex numbers": still(_eig, COMPLEX, tolerance=1e-3),
    "eig of stacks": still(_eig, STACK, tolerance=2e-3),
    "eig, slopes": of(lambda a: jnp.linalg.eigvals(a).real.sum(), A, tolerance=1e-3),
    "eigvals": still(lambda a: _by_size(jnp.linalg.eigvals(a)), A, tolerance=1e-3),
    "eig of both sides": still(_both, A, tolerance=1e-3),
    "schur": still(lambda a: _schur(a, "real"), A, tolerance=1e-3),
    "schur of real ones as complex": still(lambda a: _schur(a, "complex"), A, tolerance=1e-3),
    "schur of complex numbers": still(lambda a: _schur(a, "complex"), COMPLEX, tolerance=1e-3),
    "hessenberg": still(_hessenberg, A, tolerance=1e-3),
    "hessenberg of complex numbers": still(_hessenberg, COMPLEX, tolerance=1e-3),
    "tridiagonal": still(_tridiagonal, H, tolerance=1e-3),
    "tridiagonal of complex numbers": still(_tridiagonal, HERMITIAN, tolerance=1e-3),
    "tridiagonal_solve": of(
        ll.tridiagonal_solve,
        LOWER * BAND[0],
        D,
        UPPER * BAND[1],
        normal(9, 6, 2),
        tolerance=1e-3,
    ),
    "tridiagonal_solve with pivots": of(
        ll.tridiagonal_solve,
        *(LOWER * BAND[0], 0.1 * UPPER, UPPER * BAND[1], normal(9, 6, 2)),
        tolerance=2e-2,
    ),
    "svd": of(lambda a: jnp.linalg.svd(a, compute_uv=False), TALL, tolerance=1e-3),
    "svd, vectors": still(lambda a: [jnp.abs(x) for x in jnp.linalg.svd(a, full_matrices=False)], TALL, tolerance=1e-3),
    "svd, whole": still(lambda a: [jnp.abs(x) for x in jnp.linalg.svd(a.T)[1:]], WIDE, tolerance=1e-3),
    "svd of complex numbers": still(jnp.linalg.svdvals, COMPLEX, tolerance=1e-3),
    "svd by QR": still(
        lambda a: jnp.abs(ll.svd(a, full_matrices=False, algorithm=ll.SvdAlgorithm.QR)[0]), TALL, tolerance=1e-3
    ),
    "svd, slopes": of(
        lambda a: (lambda u, s, v: (u * s**2) @ v)(*jnp.linalg.svd(a, full_matrices=False)), TALL, tolerance=2e-3
    ),
    "expm": of(sp.expm, 0.3 * A, tolerance=1e-3, has_batch=False),
    "expm_frechet": still(sp.expm_frechet, 0.2 * A, 0.3 * A, tolerance=1e-3, has_batch=False),
    "sqrtm": still(sp.sqrtm, H, tolerance=1e-3),
    "funm": still(lambda a: sp.funm(a, jnp.exp), 0.3 * H, tolerance=2e-3, has_batch=False),
    "polar": still(sp.polar, A, tolerance=2e-3),
    "toeplitz": of(sp.toeplitz, LOWER, UPPER),
    "hilbert": still(lambda x: x + sp.hilbert(5), A),
    "block_diag": of(sp.block_diag, A, B),
    "householder_product": of(ll.householder_product, TALL, normal(1, 4), tolerance=1e-3),
    "symmetric_product": of(lambda a, c: ll.symmetric_product(a, c @ c.T), TALL.T, normal(3, 4, 4)),
    "cg": of(
        lambda a, b: jax.scipy.sparse.linalg.cg(a, b, maxiter=20)[0], H, B[:, 0], tolerance=2e-3, has_gradient=False
    ),
    "gmres": still(lambda a, b: jax.scipy.sparse.linalg.gmres(a, b, maxiter=5)[0], H, B[:, 0], tolerance=2e-3),
    "bicgstab": still(lambda a, b: jax.scipy.sparse.linalg.bicgstab(a, b, maxiter=9)[0], H, B[:, 0], tolerance=2e-3),
    "vector_norm": of(lambda a: [jnp.linalg.vector_norm(a, ord=o) for o in (0.5, 1, 2, 3, jnp.inf)], A),
    "trace and diagonal": of(lambda a: (jnp.trace(a, 1), jnp.linalg.diagonal(a)), A),
}
