"""`sort`: operands reordered together by the first of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.ops import numerics, require
from autofuse.ir.optable import AttrSpec, Family, OpDef, register
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if not operands:
        raise GraphError("sort: needs at least one operand, the keys")
    for number, type_ in enumerate(operands):
        if type_.shape != operands[0].shape:
            raise GraphError(f"sort: operand {number} must have the shape of the keys ({operands[0]}), got {type_}")
    require.axis("sort", "dimension", attrs["dimension"], operands[0].rank)
    return tuple(operands)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    keys, axis = numerics.widen(operands[0]), attrs["dimension"]
    if attrs["descending"]:
        keys = -keys if keys.dtype.kind == "f" else ~keys
    order = np.argsort(keys, axis=axis, kind="stable")
    return tuple(np.take_along_axis(x, order, axis) for x in operands)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    extent = operands[0].shape[attrs["dimension"]]
    return float(operands[0].size * math.ceil(math.log2(max(extent, 2))))


register(
    OpDef(
        "sort",
        "All operands in the order of the first along a dimension. NaN comes last in both directions; -0. equals 0.; "
        "equal keys keep their order if stable (in any order otherwise; the interpreter keeps it).",
        Family.OPAQUE,
        _infer,
        _evaluate,
        {
            "dimension": AttrSpec("int", "the dimension that is sorted"),
            "descending": AttrSpec("bool", "greatest first"),
            "stable": AttrSpec("bool", "equal keys keep their order"),
        },
        flops=_flops,
    )
)
