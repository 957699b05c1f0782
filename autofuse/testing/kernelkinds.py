"""Small NumPy functions of every kind of kernel that code is generated for, at odd shapes: to try schedules on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Any]

_EXTENTS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 100, 129)
"""Around the numbers of lanes, of vectors in flight, and of rows and columns of register tiles."""
_LONG = (3, 17, 100, 1000, 1023, 4097, 33_001)
"""Of loops that are split; the last one is, by default too."""
_DEPTHS = (1, 3, 16, 33, 257, 300)
"""Of products; the last two are summed in two blocks."""
_FLOATS, _INTEGERS = ("f4", "f4", "f8", "f2"), ("i1", "u2", "i4", "i8")


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws extents, indices and arrays."""

    rng: np.random.Generator

    def extent(self) -> int:
        """Mostly odd; seldom none."""
        return 0 if self.rng.random() < 0.02 else int(self.rng.choice(_EXTENTS))

    def length(self) -> int:
        """Of an array of one axis."""
        return int(self.rng.choice(_LONG))

    def depth(self) -> int:
        """Of a product."""
        return int(self.rng.choice(_DEPTHS))

    def part(self, extent: int) -> slice:
        """Of an axis: any part with a stop after its start, or none of it."""
        start, stop = sorted(int(n) for n in self.rng.integers(0, extent + 1, 2))
        return slice(start, stop)

    def floats(self, *shape: int, dtype: str = "") -> Array:
        """Of a normal distribution."""
        return self.rng.standard_normal(shape).astype(dtype or str(self.rng.choice(_FLOATS)))

    def wide(self, *shape: int) -> Array:
        """Floats that sums and exponentials of many stay finite in."""
        return self.floats(*shape, dtype=str(self.rng.choice(("f4", "f8"))))

    def integers(self, *shape: int, dtype: str = "") -> Array:
        """Small ones, none negative."""
        return self.rng.integers(0, 7, shape).astype(dtype or str(self.rng.choice(_INTEGERS)))

    def numbers(self, *shape: int) -> Array:
        """Floats or integers."""
        return self.floats(*shape) if self.rng.random() < 0.5 else self.integers(*shape)

    def indices(self, extent: int, count: int) -> Array:
        """Of an axis, negative ones too, all within bounds."""
        return self.rng.integers(-extent, extent, count)


Case = tuple[Function, list[Array]]


def _softmax(x: Any, axis: int = -1) -> Any:
    grown = np.exp(x - x.max(axis, keepdims=True))
    return grown / grown.sum(axis, keepdims=True)


# ---- loops -------------------------------------------------------------------------------------------------------


def _elementwise(draw: Draw) -> Case:
    x, y = draw.floats(draw.extent(), 1), draw.integers(draw.extent())
    return lambda x, y: (np.tanh(x) * 2 - y, x > y), [x, y]


def _narrowed(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent())
    return lambda x: (np.where(x > 1, 10.0, -10.0) * x).astype(np.float32).astype(np.int16), [x]


def _bits(draw: Draw) -> Case:
    """Random numbers from counters."""

    def mixed(x: Any) -> Any:
        for shift in (16, 13):
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(0x85EBCA6B)
        return x, (x >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)

    return mixed, [draw.integers(draw.length(), dtype="u4")]


def _transposed(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent(), draw.extent())
    axes = [int(n) for n in draw.rng.permutation(3)]
    return lambda x: x.transpose(axes) + 1, [x]


def _reversed(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent())
    return lambda x: (x[::-1, ::-2] * 2, np.roll(x, 2, 1) + x), [x]


def _joined(draw: Draw) -> Case:
    rows = draw.extent()
    x, y = draw.floats(rows, draw.extent(), dtype="f4"), draw.floats(rows, draw.extent(), dtype="f4")
    return lambda x, y: np.concatenate([x, np.exp(y), x * y[:, :1] if y.shape[1] else x], 1) * 2, [x, y]


def _padded(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent())
    return lambda x: np.pad(x, ((1, 2), (3, 0))) + np.arange(x.shape[1] + 3, dtype=x.dtype), [x]


def _gathered(draw: Draw) -> Case:
    rows, columns = draw.extent() or 1, draw.extent() or 1
    x, rows_of, columns_of = draw.numbers(rows, columns), draw.indices(rows, 11), draw.indices(columns, 11)
    return lambda x, i, j: (x[i] * 2, x[:, j].sum(1), x[i, j] + 1), [x, rows_of, columns_of]


def _chosen_at_run_time(draw: Draw) -> Case:
    rows, columns = draw.extent() or 1, draw.extent() or 1
    x, i = draw.numbers(rows, columns), draw.indices(rows, 1)[0]

    def changed(x: Any, i: Any) -> Any:
        x[i] = x[i] * 2
        return x[i].sum()

    return changed, [x, np.asarray(i)]


def _large(draw: Draw) -> Case:
    """Whose outputs may go past the caches: now and then, as they take long."""
    x = draw.floats(2049, 1031, dtype="f4") if draw.rng.random() < 0.1 else draw.floats(129, 67, dtype="f4")
    return lambda x: (x * 2, x.T + 1), [x]


# ---- folds -------------------------------------------------------------------------------------------------------


def _rows(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent() or 1)
    return lambda x: (x.sum(1), x.max(1), (x > 2).any(1)), [x]


def _columns(draw: Draw) -> Case:
    x = draw.numbers(draw.extent() or 1, draw.extent())
    return lambda x: (x.sum(0), x.min(0), (x > 2).all(0)), [x]


def _middle(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent() or 1, draw.extent())
    return lambda x: (x.sum(1), (x + 1).sum((0, 2))), [x]


def _whole(draw: Draw) -> Case:
    x = draw.wide(draw.length())
    return lambda x: (x.sum(), (x - x.mean()) / (x.std() + 1)), [x]


def _narrow_table(draw: Draw) -> Case:
    x = draw.wide(draw.length(), int(draw.rng.choice((1, 2, 3, 5))))
    return lambda x: (x.sum(0), x - x.max(0)), [x]


def _places(draw: Draw) -> Case:
    x = draw.numbers(draw.extent() or 1, draw.extent() or 1)
    return lambda x: (x.argmax(1), x.argmin(0), x.argmax()), [x]


def _normalised(draw: Draw) -> Case:
    x = draw.wide(draw.extent(), draw.extent() or 1)

    def normalised(x: Any, gain: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain

    return normalised, [x, draw.wide(x.shape[1])]


def _softened(draw: Draw) -> Case:
    x, axis = draw.wide(draw.extent() or 1, draw.extent() or 1), int(draw.rng.integers(2))
    return lambda x: _softmax(x, axis), [x]


def _pairs(draw: Draw) -> Case:
    x, y = draw.wide(draw.extent()), draw.wide(draw.extent())
    return lambda x, y: np.abs(x[:, None] - y[None, :]).sum(1), [x, y]


def _running(draw: Draw) -> Case:
    x, axis = draw.numbers(draw.extent(), draw.extent()), int(draw.rng.integers(2))
    return lambda x: (np.cumsum(x, axis) + 1, np.cumsum(x[::-1, ::-1], axis)), [x]


def _running_line(draw: Draw) -> Case:
    x = draw.wide(draw.length())
    return lambda x: np.cumsum(x) - x.max(), [x]


# ---- products ----------------------------------------------------------------------------------------------------


def _product(draw: Draw) -> Case:
    depth, dtype = draw.depth(), str(draw.rng.choice(("f4", "f4", "f8", "f2", "i4")))
    make = draw.integers if dtype == "i4" else draw.floats
    x, y = make(draw.extent(), depth, dtype=dtype), make(depth, draw.extent(), dtype=dtype)
    if draw.rng.random() < 0.5:
        return lambda x, y: x @ y.T + 1, [x, np.ascontiguousarray(y.T)]
    return lambda x, y: np.maximum(x @ y, 0), [x, y]


def _vector_product(draw: Draw) -> Case:
    x = draw.wide(draw.extent(), draw.depth())
    return lambda x, y: x @ y + 1, [x, draw.rng.standard_normal(x.shape[1]).astype(x.dtype)]


def _batched(draw: Draw) -> Case:
    batch, depth = int(draw.rng.choice((1, 2, 3))), draw.depth()
    x, y = draw.floats(batch, draw.extent(), depth, dtype="f4"), draw.floats(batch, depth, draw.extent(), dtype="f4")
    return lambda x, y: (x * 2) @ y, [x, y]


def _panel(draw: Draw) -> Case:
    depth = draw.depth()
    x, y = draw.floats(draw.extent(), depth, dtype="f4"), draw.floats(depth, draw.extent() or 1, dtype="f4")
    return lambda x, y: _softmax(x @ y / 8), [x, y]


def _attention(draw: Draw) -> Case:
    depth, keys = draw.depth(), draw.extent() or 1
    q, k = draw.floats(draw.extent(), depth, dtype="f4"), draw.floats(keys, depth, dtype="f4")
    return lambda q, k, v: _softmax(q @ k.T / 8) @ v, [q, k, draw.floats(keys, draw.extent(), dtype="f4")]


def _two_products(draw: Draw) -> Case:
    rows, depth, columns = draw.extent(), draw.depth(), draw.extent()
    x, h = (draw.floats(rows, depth, dtype="f4") for _ in range(2))
    w, u = (draw.floats(depth, columns, dtype="f4") for _ in range(2))
    return lambda x, w, h, u: np.tanh(x @ w + h @ u), [x, w, h, u]


# ---- arguments that are written ----------------------------------------------------------------------------------


def _written_slice(draw: Draw) -> Case:
    x = draw.numbers(draw.extent(), draw.extent())
    rows, columns = draw.part(x.shape[0]), draw.part(x.shape[1])

    def written(x: Any, y: Any) -> None:
        x[rows, columns] += y[rows, columns]

    return written, [x, x.copy()]


def _written_shifted(draw: Draw) -> Case:
    x = draw.wide(draw.length())

    def written(x: Any) -> Any:
        x[1:] = x[:-1] * 0.5
        x[2:-1] += x[1:-2]
        return x[::2].sum()

    return written, [x]


def _written_fold(draw: Draw) -> Case:
    x = draw.wide(draw.length())
    part = draw.part(x.size)

    def written(x: Any) -> Any:
        x[part] = np.exp(x[part] - x.max())
        return x.sum()

    return written, [x]


def _written_rows(draw: Draw) -> Case:
    x = draw.wide(draw.extent(), draw.extent() or 1)
    rows = draw.part(x.shape[0])

    def written(x: Any) -> Any:
        x[rows] -= x[rows].mean(1, keepdims=True)
        x[:, ::2] *= x.sum(0)[::2]
        return (x * x).sum()

    return written, [x]


def _written_product(draw: Draw) -> Case:
    depth = draw.depth()
    x = draw.floats(draw.extent(), draw.extent(), dtype="f4")
    rows = draw.part(x.shape[0])

    def written(x: Any, a: Any, b: Any) -> None:
        x[rows] += np.tanh(a @ b)[rows]

    return written, [x, *(draw.floats(*shape, dtype="f4") for shape in ((x.shape[0], depth), (depth, x.shape[1])))]


def _written_running(draw: Draw) -> Case:
    x = draw.wide(draw.extent(), draw.extent(), 3)

    def written(x: Any) -> Any:
        x[:, 1:, :] = np.cumsum(x, 1)[:, :-1, :]
        return x[..., ::-1] * 2

    return written, [x]


KINDS: dict[str, Callable[[Draw], Case]] = {
    function.__name__.lstrip("_"): function
    for function in (
        *(_elementwise, _narrowed, _bits, _transposed, _reversed, _joined, _padded, _gathered, _chosen_at_run_time),
        *(_large, _rows, _columns, _middle, _whole, _narrow_table, _places, _normalised, _softened, _pairs),
        *(_running, _running_line, _product, _vector_product, _batched, _panel, _attention, _two_products),
        *(_written_slice, _written_shifted, _written_fold, _written_rows, _written_product, _written_running),
    )
}
"""By name."""
