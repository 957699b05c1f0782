"""What an H200 should reach: programs, and the time of each in microseconds (copy 4.3 TB/s, bf16 790 TFLOP/s)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

DEVICE = "H200"
_SMALL = 64
"""The part of each extent that a rehearsal takes."""


@dataclass(frozen=True, slots=True)
class Aim:
    """One program."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    """Of its arguments."""
    dtype: str
    us: float
    """At most."""

    def inputs(self, size: str) -> tuple[Any, ...]:
        """Arguments at full size, or at a small one that only shows that it runs."""
        shapes = self.shapes if size == "full" else [tuple(_shrunk(e) for e in shape) for shape in self.shapes]
        rng = np.random.default_rng(0)
        return tuple(rng.standard_normal(shape, np.float32).astype(_dtype(self.dtype)) for shape in shapes)


def _shrunk(extent: int) -> int:
    return extent if extent <= 16 else max(extent // _SMALL, 16)


def _dtype(name: str) -> Any:
    if name != "bf16":
        return np.dtype(np.float32)
    import ml_dtypes

    return ml_dtypes.bfloat16


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))


def _gelu(x: Any) -> Any:
    """In f32 inside, as frameworks compute it for bf16."""
    wide = x.astype(np.float32)
    inner = np.float32(0.797885) * (wide + np.float32(0.044715) * wide * wide * wide)
    return (np.float32(0.5) * wide * (np.float32(1) + np.tanh(inner))).astype(_dtype("bf16"))


def _adam(*parts: Any) -> Any:
    found: list[Any] = []
    for p, g, m, v in zip(parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=True):
        m, v = np.float32(0.9) * m + np.float32(0.1) * g, np.float32(0.99) * v + np.float32(0.01) * g * g
        found += [p - np.float32(1e-3) * m / (np.sqrt(abs(v)) + np.float32(1e-8)), m, v]
    return tuple(found)


def _heads(*parts: Any) -> Any:
    return tuple(np.maximum(a @ b, 0) for a, b in zip(parts[0::2], parts[1::2], strict=True))


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.swapaxes(-1, -2)) * q.dtype.type(0.088)
    return _softmax(scores.astype(np.float32)).astype(q.dtype) @ v


def _mlp(x: Any, up: Any, down: Any) -> Any:
    return (_gelu(x @ up) @ down).astype(x.dtype)


AIMS: dict[str, Aim] = {
    "softmax f32 32768x4096": Aim(_softmax, ((32768, 4096),), "f32", 278),
    "layer norm f32 65536x1024": Aim(_layer_norm, ((65536, 1024),), "f32", 139),
    "GELU bf16 32768x4096": Aim(_gelu, ((32768, 4096),), "bf16", 139),
    "column sums of 512 MiB": Aim(lambda x: x.sum(0), ((32768, 4096),), "f32", 139),
    "whole sum of 512 MiB": Aim(lambda x: x.sum(), ((32768, 4096),), "f32", 139),
    "Adam of 384 tensors, 3.7 MB": Aim(_adam, ((50, 48),) * 384, "f32", 6),
    "eight heads 64x256x256": Aim(_heads, ((64, 256), (256, 256)) * 8, "f32", 6),
    "attention bf16 4x16x4096x128": Aim(_attention, ((4, 16, 4096, 128),) * 3, "bf16", 1600),
    "MLP bf16 8192x4096x16384": Aim(_mlp, ((8192, 4096), (4096, 16384), (16384, 4096)), "bf16", 3000),
}
