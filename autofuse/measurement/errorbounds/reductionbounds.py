"""Bounds through reductions of axes, windows and running ones, and through sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import lookup, role_of
from autofuse.measurement.errorbounds.callbounds import spread_of_runs
from autofuse.measurement.errorbounds.roundings import (
    BLOCK,
    Array,
    Bound,
    anything,
    filled,
    made_smaller,
    magnitude,
    precision,
    relative,
    sum_rounding,
    summed,
    unless_too_large,
)


def reduction(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array) -> Bound:
    """`reduce`, `cumulative` and `reduce_window`: errors of terms add up, those of extremes are the largest."""
    (x,), (bound,), dtype = operands, bounds, node.output.type.dtype
    terms = _terms(node)
    match node.attrs["combiner"]:
        case "add" if dtype.is_float:
            sizes = _sizes(node, x, dtype)
            carried = None if bound is None else _combined(node, bound, "add")
            rounding = sum_rounding(dtype, terms, terms, sizes, result)
            return summed(
                carried, unless_too_large(rounding, sizes, lambda: _sizes(node, made_smaller(x, dtype), dtype))
            )
        case "multiply" if dtype.is_float:
            rounding = np.where(_leaves_range(node, x, dtype), np.inf, relative(result, dtype, float(terms)))
            if bound is None:
                return rounding
            size = magnitude(x, dtype)
            grown = _combined(node, size + bound, "multiply") - _combined(node, size, "multiply")
            return summed(anything(grown), rounding)
        case "maximum" | "minimum":
            return None if bound is None else np.maximum(_combined(node, bound, "maximum"), 0)
        case _:  # sums of integers and bools: whatever a term that may differ does to them
            return None if bound is None else _unless_exact(_combined(node, bound, "maximum"))


def _unless_exact(bound: Array) -> Array:
    return np.where(bound > 0, np.inf, 0).astype(bound.dtype)


def _leaves_range(node: Node, x: Array, dtype: DType) -> Array:
    """Where some order of multiplying overflows, or comes to subnormal numbers."""
    held = np.finfo(precision(dtype))
    size = np.log2(magnitude(x, dtype))
    size = np.where(np.isfinite(size), size, 0)
    up, down = (_combined(node, np.maximum(sign * size, 0), "add") for sign in (1, -1))
    return (up > np.log2(held.max) - 1) | (down > -np.log2(held.tiny) - 1)


def _combined(node: Node, values: Array, combiner: str) -> Array:
    attrs = {**node.attrs, "combiner": combiner}
    return lookup(node.op).evaluate([values], attrs, ())[0]


def _sizes(node: Node, x: Array, dtype: DType) -> Array:
    """The reduced absolute values, a block at a time where the op allows it."""
    if role_of(node) is not Role.REDUCE or x.size <= 2 * BLOCK or x.shape[0] == 1:
        return _combined(node, magnitude(x, dtype), "add")
    rows = max(1, BLOCK * x.shape[0] // x.size)
    blocks = (x[begin : begin + rows] for begin in range(0, x.shape[0], rows))
    parts = [_combined(node, magnitude(block, dtype), "add") for block in blocks]
    return np.sum(parts, axis=0) if 0 in node.attrs["dimensions"] else np.concatenate(parts)


def _terms(node: Node) -> int:
    x = node.inputs[0].type
    match role_of(node):
        case Role.REDUCE:
            return math.prod(x.shape[axis] for axis in node.attrs["dimensions"])
        case Role.SCAN:
            return x.shape[node.attrs["dimension"]]
        case _:
            return math.prod(node.attrs["window_dimensions"])


def position(node: Node, operands: Sequence[Array], bounds: Sequence[Bound]) -> Bound:
    """`argmin` and `argmax`: any position where a second element is within reach of the best."""
    (x,), (bound,), axis = operands, bounds, node.attrs["dimension"]
    if bound is None:
        return None
    wide = x.astype(np.float64) * (1.0 if node.op == "argmax" else -1.0)
    best = np.max(wide - bound, axis=axis, keepdims=True)
    within = np.count_nonzero(~(wide + bound < best), axis=axis)
    return np.where((within > 1) & np.any(bound > 0, axis=axis), np.inf, 0.0)


def sort(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], results: Sequence[Array]) -> tuple[Bound, ...]:
    """Sorted keys are off by no more than the worst of them; what moves with a key in reach of the next may be any."""
    axis, keys = node.attrs["dimension"], bounds[0]
    moved = _carried(node, operands, bounds)
    if not node.attrs["stable"]:
        moved = (moved[0], *(summed(*both) for both in zip(moved[1:], _among_equals(results, axis), strict=True)))
    if keys is None or not keys.size:
        return moved
    worst = np.broadcast_to(np.max(keys, axis=axis, keepdims=True), keys.shape)
    near = np.abs(np.diff(results[0].astype(np.float64), axis=axis)) <= 2 * np.max(keys, axis=axis, keepdims=True)
    edge = np.zeros((*near.shape[:axis], 1, *near.shape[axis + 1 :]), np.bool_)
    unsure = np.concatenate([near, edge], axis) | np.concatenate([edge, near], axis)
    others = [np.where(unsure, np.inf, 0.0 if bound is None else bound) for bound in moved[1:]]
    return (worst, *others)


def _among_equals(results: Sequence[Array], axis: int) -> list[Bound]:
    """What moves with equal keys may stand in any order, if that is not asked for; equal to the bit elsewhere."""
    keys, *others = (np.moveaxis(result, axis, -1) for result in results)
    before, after = keys[..., :-1], keys[..., 1:]
    ties = (before == after) | ((before != before) & (after != after))
    if not others or not ties.any():
        return [None] * len(others)
    starts = np.concatenate([np.ones((*keys.shape[:-1], 1), np.bool_), ~ties], -1)
    return [np.moveaxis(spread_of_runs(other, starts), -1, axis) for other in others]


def _carried(node: Node, operands: Sequence[Array], bounds: Sequence[Bound]) -> tuple[Bound, ...]:
    """The bounds in the order of the keys."""
    given = [
        operands[0],
        *(filled(b, value.type.shape, value.type.dtype) for b, value in zip(bounds, node.inputs, strict=True)),
    ]
    found = lookup(node.op).evaluate(given, node.attrs, ())[1:]
    return tuple(None if bound is None else moved for bound, moved in zip(bounds, found, strict=True))
