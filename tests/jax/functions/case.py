"""What a family's table holds: a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy


@dataclass(frozen=True)
class Case:
    """A function of arrays, by which `jax.jit` and a plan are compared."""

    function: Callable[..., Any]
    given: tuple[Any, ...]
    """Its arguments, as arrays and numbers of NumPy's and Python's."""
    tolerance: float = 1e-4
    """Relative to the largest element."""
    has_gradient: bool = True
    """Whether floats come from floats, and slopes are the function's own."""
    has_batch: bool = True
    """Whether the function can be mapped over a first axis of its arguments."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """JAX's arrays: made when asked for, as few cases run at a time."""
        return tuple(jnp.asarray(x) for x in self.given)

    def gradient(self) -> Callable[..., Any]:
        """The slopes of a number made of all floats of the result."""
        places = tuple(n for n, x in enumerate(self.arguments) if jnp.issubdtype(x.dtype, jnp.floating))

        def number(*arguments: Any) -> Any:
            leaves = jax.tree.leaves(self.function(*arguments))
            floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact)]
            return sum(jnp.sum(jnp.real(x) * _weights(x) + jnp.imag(x)) for x in floats)

        return jax.grad(number, argnums=places)

    def batch(self) -> tuple[Any, ...]:
        """Two of each argument."""
        return tuple(jnp.stack([x, _other(x)]) for x in self.arguments)


def _weights(x: Any) -> Any:
    return jnp.cos(jnp.arange(x.size, dtype=jnp.real(x).dtype)).reshape(x.shape)


def _other(x: Any) -> Any:
    return x * np.asarray(0.75, x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def of(function: Callable[..., Any], *arguments: Any, **options: Any) -> Case:
    """A case of arrays or numbers."""
    return Case(function, arguments, **options)


def still(function: Callable[..., Any], *arguments: Any, **options: Any) -> Case:
    """A case without slopes."""
    return of(function, *arguments, has_gradient=False, **options)


def normal(seed: int, *shape: int) -> Any:
    """Seeded standard normals, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def between(low: float, high: float, *shape: int, seed: int = 0) -> Any:
    """Seeded numbers in a range, float32."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def whole(low: int, high: int, *shape: int, seed: int = 0) -> Any:
    """Seeded integers in a range, int32."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def positive(seed: int, size: int) -> Any:
    """A positive definite matrix, float32."""
    a = normal(seed, size, size)
    return a @ a.T + size * np.eye(size, dtype=np.float32)
