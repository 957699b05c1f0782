"""What counts leave open, and a GPU can tell: one kernel each, and schedules of it to be timed beside each other.

The answers decide defaults of the generator and rates of the model; each names the decision record that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from aims import AIMS

Array = np.ndarray[Any, Any]
_SMALL = 32
"""The part of each extent that a rehearsal takes."""


@dataclass(frozen=True, slots=True)
class Question:
    """One kernel, and how it may be made."""

    record: str
    """The decision record that wants to know."""
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    """Of its arguments."""
    dtype: str
    ways: tuple[Mapping[str, Any], ...]
    """Decisions of schedules that differ from the defaults; the first one is the default."""

    def inputs(self, size: str) -> tuple[Array, ...]:
        """Arguments at full size, or at a small one that only shows that it runs."""
        shapes = (
            self.shapes if size == "full" else [tuple(max(e // _SMALL, min(e, 16)) for e in s) for s in self.shapes]
        )
        rng = np.random.default_rng(0)
        return tuple(rng.standard_normal(shape, np.float32).astype(_dtype(self.dtype)) for shape in shapes)


def _dtype(name: str) -> Any:
    if name != "bf16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _ways(decision: str, *values: Any) -> tuple[Mapping[str, Any], ...]:
    return ({}, *({decision: value} for value in values))


def _product(a: Any, b: Any) -> Any:
    return a @ b


def _running_sums(x: Any) -> Any:
    return np.cumsum(x, axis=1)


def _two_steps(x: Any) -> Any:
    """Of a stencil on a plane, whose edges stay: the second needs the first around each point."""
    for _ in range(2):
        inside = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
        x = x.copy()
        x[1:-1, 1:-1] = inside
    return x


def _of_aim(name: str, record: str, *ways: Mapping[str, Any]) -> Question:
    aim = AIMS[name]
    return Question(record, aim.function, aim.shapes, {"f32": "float32"}.get(aim.dtype, aim.dtype), ({}, *ways))


_ATTENTION = AIMS["attention bf16 4x16x4096x128"].function
QUESTIONS: dict[str, Question] = {
    "product f32 512x3072x768, tiles": Question(
        "0194", _product, ((512, 3072), (3072, 768)), "float32", _ways("tile", "64x64", "128x64", "128x128")
    ),
    "product f32 512x3072x768, parts": Question(
        "0194", _product, ((512, 3072), (3072, 768)), "float32", _ways("split", 1, 2, 4, 8)
    ),
    "product f32 1408x1408x1408": Question(
        "0194", _product, ((1408, 1408),) * 2, "float32", _ways("tile", "64x64", "128x64", "128x128")
    ),
    "product bf16 8192x4096x16384": Question(
        "0190",
        _product,
        ((8192, 4096), (4096, 16384)),
        "bf16",
        ({}, {"tile": "128x128"}, {"stages": 4}, {"library": 1}),
    ),
    "attention bf16 4x16x4096x128": _of_aim(
        "attention bf16 4x16x4096x128", "0190", {"online": "128x32"}, {"online": "128x64"}, {"online": "64x64"}
    ),
    "attention bf16 of one query": Question(
        "0164",
        _ATTENTION,
        ((32, 1, 128), (32, 8192, 128), (32, 8192, 128)),
        "bf16",
        _ways("split", 1, 4, 8, 16),
    ),
    "running sums f64 1024x2048": Question(
        "0191", _running_sums, ((1024, 2048),), "float64", _ways("row_threads", 32, 64, 256)
    ),
    "two steps of a stencil f64 1000x1000": Question(
        "0226", _two_steps, ((1000, 1000),), "float64", ({}, {"threads": 128}, {"pack_bytes": 8}, {"registers": 128})
    ),
    "GELU bf16 32768x4096": _of_aim("GELU bf16 32768x4096", "0191", {"packs": 1}, {"packs": 2}, {"threads": 512}),
}
