"""`sort`: operands reordered together by the first of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import numerics, require
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if not operands:
        raise GraphError("sort: needs at least one operand, the keys")
    for number, type_ in enumerate(operands):
        if type_.shape != operands[0].shape:
            raise GraphError(f"sort: operand {number} must have the shape of the keys ({operands[0]}), got {type_}")
    require.real("sort", "0 (the keys)", operands[0])
    require.axis("sort", "dimension", attrs["dimension"], operands[0].rank)
    return tuple(operands)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    results = tuple(np.empty_like(x, order="C") for x in operands)
    _evaluate_into(operands, attrs, results)
    return results


def _evaluate_into(operands: Sequence[Array], attrs: Attrs, targets: Sequence[Array | None]) -> None:
    axis, kind = attrs["dimension"], "stable" if attrs["stable"] else None
    if len(operands) == 1:
        if targets[0] is not None:
            _sort_values(operands[0], targets[0], axis, kind, attrs["descending"])
        return
    keys = numerics.widen(operands[0])
    order = np.argsort(_ascending(keys) if attrs["descending"] else keys, axis=axis, kind=kind)
    for x, target in zip(operands, targets, strict=True):
        if target is not None:
            target[...] = order if _counts(x, axis) else np.take_along_axis(x, order, axis)


def _sort_values(x: Array, target: Array, axis: int, kind: Literal["stable"] | None, descending: bool) -> None:
    """Keys alone: NumPy's sort, in the memory of the result. Equal integers are one and the same, in any order."""
    if x.dtype.kind in "iub":
        kind = None
    wide = numerics.widen(x)
    values = target if wide.dtype == x.dtype else np.empty(x.shape, wide.dtype)
    values[...] = _ascending(wide) if descending else wide
    values.sort(axis=axis, kind=kind)
    if descending or values is not target:
        target[...] = _ascending(values) if descending else values


def _ascending(keys: Array) -> Array:
    """Keys that ascend where these descend, NaN last all the same; the same function takes them back."""
    return -keys if keys.dtype.kind == "f" else ~keys


def _counts(x: Array, axis: int) -> bool:
    """Whether `x` is 0, 1, 2, ... along `axis`: sorted together with the keys it is their order itself."""
    extent = x.shape[axis]
    if x.dtype.kind not in "iu" or not x.size or extent - 1 > np.iinfo(x.dtype).max:
        return False
    lines = np.moveaxis(x, axis, -1)
    if lines.flat[0] != 0 or lines[..., -1].flat[0] != extent - 1:
        return False
    return bool((lines == np.arange(extent, dtype=x.dtype)).all())


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    extent = operands[0].shape[attrs["dimension"]]
    return float(operands[0].size * math.ceil(math.log2(max(extent, 2))))


OPS = (
    OpDef(
        name="sort",
        doc="All operands in the order of the first along a dimension. NaN comes last in both directions; -0. equals "
        "0.; equal keys keep their order if stable, and come in NumPy's order otherwise.",
        role=Role.SORT,
        infer=_infer,
        evaluate=_evaluate,
        code=1,
        attrs={
            "dimension": AttrSpec("int", "the dimension that is sorted"),
            "descending": AttrSpec("bool", "greatest first"),
            "stable": AttrSpec("bool", "equal keys keep their order"),
        },
        flops=_flops,
        evaluate_into=_evaluate_into,
    ),
)
