"""`np.pad` in the modes that are slices, reverses and concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.dispatch import implements
from autofuse.frontend.joining import joined, sliced
from autofuse.frontend.promotion import as_tracer, broadcast, value_of
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value

_MODES = ("constant", "edge", "wrap", "reflect", "symmetric", "empty")


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """As `np.pad`."""
    source = as_tracer(array)
    if mode not in _MODES:
        raise ValueError(f"np.pad is traced for mode {', '.join(_MODES)}; got {mode!r:.80}")
    if kwargs.pop("reflect_type", "even") != "even" or kwargs.keys() - {"constant_values"}:
        raise ValueError(f"np.pad with {sorted(kwargs) or 'reflect_type'} cannot be traced")
    widths = _pairs(pad_width, source.ndim)
    if mode == "empty":
        mode = "constant"
    if mode == "constant":
        return _constant(source, widths, _pairs(kwargs.get("constant_values", 0), source.ndim))
    value = source.value
    for dimension, (before, after) in enumerate(widths):
        if before or after:
            value = _extended(value, dimension, int(before), int(after), mode)
    return fresh(value, is_scalar=False)


def _pairs(given: Any, rank: int) -> list[tuple[Any, Any]]:
    """(before, after) per dimension, from any of the forms NumPy takes."""
    if isinstance(given, dict):
        table: list[Any] = [given.get(d, given.get(d - rank, 0)) for d in range(rank)]
        return [(pair, pair) if not np.ndim(pair) else (pair[0], pair[1]) for pair in table]
    if isinstance(given, TracerArray) and given.known is None:
        return [(given, given)] * rank
    spread: Any = np.broadcast_to(np.asarray(given), (rank, 2)).tolist()
    return [(before, after) for before, after in spread]


def _constant(source: TracerArray, widths: list[tuple[Any, Any]], fills: list[tuple[Any, Any]]) -> TracerArray:
    value = source.value
    same = all(side is fills[0][0] or side == fills[0][0] for pair in fills for side in pair) if fills else True
    if same and fills:
        groups = [(range(source.ndim), fills[0][0], (0, 1))]
    else:
        groups = [((d,), fills[d][side], (side,)) for d in range(source.ndim) for side in (0, 1)]
    for dimensions, fill, sides in groups:
        low = tuple(int(w[0]) if d in dimensions and 0 in sides else 0 for d, w in enumerate(widths))
        high = tuple(int(w[1]) if d in dimensions and 1 in sides else 0 for d, w in enumerate(widths))
        if any(low) or any(high):
            value = current().emit(
                "pad",
                (value, value_of(_truncated(fill, source.dtype), source.dtype)),
                edge_padding_low=low,
                edge_padding_high=high,
                interior_padding=(0,) * source.ndim,
            )
    return fresh(value, is_scalar=False)


def _truncated(fill: Any, dtype: np.dtype[Any]) -> Any:
    """The fill as an assignment would convert it."""
    return fill if isinstance(fill, TracerArray) else np.asarray(fill).astype(dtype)[()]


def _extended(value: Value, dimension: int, before: int, after: int, mode: str) -> Value:
    if mode == "edge":
        return _with_edges(value, dimension, before, after)
    if not value.type.shape[dimension]:
        raise ValueError(f"can't extend empty axis {dimension} using modes other than 'constant' or 'empty'")
    extent = value.type.shape[dimension]
    overlap = 1 if mode == "reflect" else 0
    if extent == 1 and mode == "reflect":
        return _with_edges(value, dimension, before, after)
    period = extent - overlap
    left = [
        _period(value, dimension, min(period, before - done), mode, k, left=True)
        for k, done in enumerate(range(0, before, period))
    ]
    right = [
        _period(value, dimension, min(period, after - done), mode, k, left=False)
        for k, done in enumerate(range(0, after, period))
    ]
    return joined([*reversed(left), value, *right], dimension)


def _period(value: Value, dimension: int, count: int, mode: str, number: int, *, left: bool) -> Value:
    """The `count` elements next to the array (or next to the period before), mirrored in odd periods."""
    extent = value.type.shape[dimension]
    if mode == "wrap":
        return sliced(value, dimension, extent - count, extent) if left else sliced(value, dimension, 0, count)
    skip = 1 if mode == "reflect" else 0
    mirrored = number % 2 == 0
    at_start = left == mirrored
    low, high = (skip, skip + count) if at_start else (extent - skip - count, extent - skip)
    if not mirrored:
        # an even number of mirrorings: the elements stand in their own order
        low, high = (extent - skip - count, extent - skip) if left else (skip, skip + count)
    part = sliced(value, dimension, low, high)
    return current().emit("reverse", (part,), dimensions=(dimension,)) if mirrored else part


def _with_edges(value: Value, dimension: int, before: int, after: int) -> Value:
    extent = value.type.shape[dimension]
    if not extent:
        raise ValueError(f"can't extend empty axis {dimension} using modes other than 'constant' or 'empty'")

    def repeated(at: int, count: int) -> Value:
        shape = tuple(count if d == dimension else e for d, e in enumerate(value.type.shape))
        return broadcast(sliced(value, dimension, at, at + 1), shape)

    parts = [repeated(0, before)] if before else []
    parts.append(value)
    if after:
        parts.append(repeated(extent - 1, after))
    return joined(parts, dimension)
