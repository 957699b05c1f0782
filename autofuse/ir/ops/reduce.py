"""Ops that reduce dimensions away: reduce, argmin, argmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.combiners import COMBINERS
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import numerics, require
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer_reduce(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    (x,), dims, combiner = operands, attrs["dimensions"], attrs["combiner"]
    require.axes("reduce", "dimensions", dims, x.rank)
    require.combiner_fits("reduce", combiner, x)
    _something_to_reduce("reduce", combiner in ("minimum", "maximum"), x, dims)
    return (TensorType(tuple(n for axis, n in enumerate(x.shape) if axis not in dims), x.dtype),)


def _something_to_reduce(op: str, needed: bool, x: TensorType, dims: Sequence[int]) -> None:
    if needed and math.prod(x.shape[axis] for axis in dims) == 0:
        raise GraphError(
            f"{op}: there is no least or greatest of nothing; operand x is {x}, reduced over {tuple(dims)}"
        )


def _reduce(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    (x,), dims, combiner = operands, tuple(attrs["dimensions"]), attrs["combiner"]
    if not dims:
        return (x,)
    wide = numerics.accumulator(x.dtype)
    reduced = COMBINERS[combiner].reduce(x.astype(wide, copy=False), axis=dims, dtype=wide)
    return (np.asarray(reduced).astype(x.dtype, copy=False),)


def _infer_arg(op: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
        (x,), axis, dtype = operands, attrs["dimension"], attrs["dtype"]
        require.axis(op, "dimension", axis, x.rank)
        require.real(op, "x", x)
        require.integer_dtype(op, dtype)
        _something_to_reduce(op, True, x, (axis,))
        return (TensorType((*x.shape[:axis], *x.shape[axis + 1 :]), dtype),)

    return infer


def _arg(function: Callable[..., Any]) -> Callable[..., tuple[Array, ...]]:
    def evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
        found = function(numerics.widen(operands[0]), axis=attrs["dimension"])
        return (np.asarray(found).astype(attrs["dtype"].numpy),)

    return evaluate


def _elements(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    return float(operands[0].size)


def _arg_reduce(name: str, which: str, function: Callable[..., Any]) -> OpDef:
    return OpDef(
        name=name,
        doc=f"The position of the {which} element along a dimension: the first of equals; the first NaN beats all.",
        role=Role.ARG_REDUCE,
        infer=_infer_arg(name),
        evaluate=_arg(function),
        code=1,
        attrs={
            "dimension": AttrSpec("int", "the dimension to reduce away"),
            "dtype": AttrSpec("dtype", "the result's integer dtype"),
        },
        arity=1,
        flops=_elements,
    )


OPS = (
    OpDef(
        name="reduce",
        doc="Reduces dimensions with a combiner, in any order. f16 and bf16 accumulate in f32 and round once; integers "
        "wrap; minimum and maximum give NaN where there is one. Over nothing: the identity; no minimum, maximum.",
        role=Role.REDUCE,
        infer=_infer_reduce,
        evaluate=_reduce,
        code=1,
        attrs={
            "dimensions": AttrSpec("ints", "dimensions to reduce away"),
            "combiner": AttrSpec("str", "how two elements become one", tuple(COMBINERS)),
        },
        arity=1,
        flops=_elements,
    ),
    _arg_reduce("argmin", "least", np.argmin),
    _arg_reduce("argmax", "greatest", np.argmax),
)
