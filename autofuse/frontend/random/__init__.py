"""Random numbers from keys: `af.random`, with the signatures, semantics and numbers of `jax.random`.

A key is a `u32[2]` array. What is drawn is a function of the key and of an element's place in the requested shape.
There is no state, so the same key gives the same numbers, and draws are elementwise operations that fuse with what uses
them. In a traced function they are traced; elsewhere they are computed at once, by the same definition, and give NumPy
arrays.

Integers, `uniform` from 0 to 1, `bernoulli`, `randint` and `permutation` are those of JAX 0.10 bit for bit (with
`jax_threefry_partitionable`, its default); what goes through products and functions is JAX's up to rounding.
"""

from autofuse.frontend.random.distributions import categorical, exponential, gumbel, normal
from autofuse.frontend.random.integers import randint
from autofuse.frontend.random.keys import bits, fold_in, key, split
from autofuse.frontend.random.permutations import permutation
from autofuse.frontend.random.uniforms import bernoulli, uniform

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "uniform",
]
