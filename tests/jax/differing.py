"""Arrays for tests of `autofuse.jax`, and how near results must be to JAX's."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")


def numbers(seed, *shape):
    """Seeded standard normals, float32."""
    return jax.numpy.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def close(found, wanted, tolerance=3e-5):
    """Trees of equal structure and types, equal up to the order of sums and a few ulp of XLA's functions."""
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        wide = jax.numpy.promote_types(one.dtype, np.float32) if one.dtype != bool else one.dtype
        a, b = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0))))
