"""Programs for every form of kernel and of call, at small odd sizes: what must be right before any time counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Form = tuple[Callable[..., Any], Callable[[], tuple[Array, ...]]]
_RNG = np.random.default_rng


def _normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return _RNG(seed).standard_normal(shape).astype(dtype)


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _heads(*parts: Any) -> Any:
    return tuple(np.tanh(part) * 2 for part in parts)


def _update(x: Any, indices: Any, values: Any) -> Any:
    x = x * 1
    np.add.at(x, indices, values)
    return x


def _indices() -> tuple[Array, Array, Array]:
    return _normal(50, 6), _RNG(1).integers(0, 50, 333), _normal(333, 6, seed=2)


def _product(dtype: Any) -> Callable[[], tuple[Array, ...]]:
    return lambda: (_normal(70, 90, dtype=dtype), _normal(90, 50, dtype=dtype, seed=1))


FORMS: dict[str, Form] = {
    "elementwise": (lambda x: np.exp(x) * 2 + x, lambda: (_normal(1003),)),
    "elementwise f16": (lambda x: x * x + x, lambda: (_normal(33, 31, dtype=np.float16),)),
    "shifted and padded": (lambda x: np.pad(x[:, 1:], ((0, 0), (2, 1))) * 3, lambda: (_normal(29, 77),)),
    "rows": (_softmax, lambda: (_normal(37, 333),)),
    "rows in clusters": (_softmax, lambda: (_normal(2, 70_000),)),
    "columns": (lambda x: x.sum(0), lambda: (_normal(333, 77),)),
    "whole sum": (lambda x: (x * x).sum(), lambda: (_normal(501, 203),)),
    "scan": (lambda x: np.cumsum(x, 1), lambda: (_normal(9, 1500),)),
    "transpose": (lambda x: x.T * 2, lambda: (_normal(130, 70),)),
    "argmax": (lambda x: np.argmax(x, 1), lambda: (_normal(40, 90),)),
    "gather": (lambda x, i: x[i] * 2, lambda: (_normal(50, 6), _RNG(1).integers(0, 50, 99))),
    "product f32": (lambda a, b: np.maximum(a @ b, 0), _product(np.float32)),
    "product f16": (lambda a, b: np.maximum(a @ b, 0), _product(np.float16)),
    "product bf16": (lambda a, b: a @ b, _product(ml_dtypes.bfloat16)),
    "chained products": (
        lambda q, k, v: _softmax(q @ k.T) @ v,
        lambda: tuple(_normal(60, 32, seed=s) for s in range(3)),
    ),
    "joined launches": (_heads, lambda: tuple(_normal(17 + n, 9, seed=n) for n in range(6))),
    "scatter": (_update, _indices),
    "sort": (lambda x: (np.sort(x, 1), np.argsort(x, 0, kind="stable")), lambda: (_normal(21, 60),)),
    "library": (lambda a: np.linalg.solve(a @ a.T + 9 * np.eye(20, dtype=np.float32), a), lambda: (_normal(20, 20),)),
}
"""A function, and what makes its arguments."""
