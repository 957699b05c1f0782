"""`dot_general`: batched contraction of two operands over any dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import NUMERICS, AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import numerics, require
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Array = NDArray[Any]
_OP = "dot_general"


@dataclass(frozen=True, slots=True)
class _Side:
    """The dimensions of one operand by role."""

    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    free: tuple[int, ...]


def _side(attrs: Attrs, name: str, rank: int) -> _Side:
    batch, contracting = attrs[f"{name}_batching_dimensions"], attrs[f"{name}_contracting_dimensions"]
    return _Side(batch, contracting, tuple(d for d in range(rank) if d not in batch and d not in contracting))


def _extents(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[d] for d in dims)


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.same_dtype(_OP, ("lhs", "rhs"), operands)
    lhs, rhs = operands
    for name, type_ in (("lhs", lhs), ("rhs", rhs)):
        both = (*attrs[f"{name}_batching_dimensions"], *attrs[f"{name}_contracting_dimensions"])
        require.axes(_OP, f"{name}_batching_dimensions + {name}_contracting_dimensions", both, type_.rank, name)
    left, right = _side(attrs, "lhs", lhs.rank), _side(attrs, "rhs", rhs.rank)
    for role, a, b in (("batching", left.batch, right.batch), ("contracting", left.contracting, right.contracting)):
        if _extents(lhs.shape, a) != _extents(rhs.shape, b):
            raise GraphError(
                f"{_OP}: {role} dimensions must agree in number and extent; lhs ({lhs}) has {role} dimensions {a} of "
                f"extents {_extents(lhs.shape, a)}, rhs ({rhs}) has {b} of {_extents(rhs.shape, b)}"
            )
    shape = (*_extents(lhs.shape, left.batch), *_extents(lhs.shape, left.free), *_extents(rhs.shape, right.free))
    return (TensorType(shape, lhs.dtype),)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    lhs, rhs = map(numerics.widen, operands)
    left, right = _side(attrs, "lhs", lhs.ndim), _side(attrs, "rhs", rhs.ndim)
    batch = _extents(lhs.shape, left.batch)
    rows, columns = _extents(lhs.shape, left.free), _extents(rhs.shape, right.free)
    depth = math.prod(_extents(lhs.shape, left.contracting))
    a = lhs.transpose(left.batch + left.free + left.contracting).reshape(*batch, math.prod(rows), depth)
    b = rhs.transpose(right.batch + right.contracting + right.free).reshape(*batch, depth, math.prod(columns))
    product = np.matmul(a, b).reshape(batch + rows + columns)
    return (product.astype(operands[0].dtype, copy=False),)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    depth = math.prod(_extents(operands[0].shape, attrs["lhs_contracting_dimensions"]))
    return 2.0 * results[0].size * depth


OPS = (
    OpDef(
        name=_OP,
        doc="Sums of products over the contracting dimensions. Result dimensions: batching, then lhs free, then rhs "
        "free. f16 and bf16 accumulate in f32 and round once; integers wrap; bool is the or of ands.",
        role=Role.DOT,
        infer=_infer,
        evaluate=_evaluate,
        code=100,
        attrs={
            "lhs_batching_dimensions": AttrSpec("ints", "dimensions of lhs that index independent products"),
            "rhs_batching_dimensions": AttrSpec("ints", "their partners in rhs, in the same order"),
            "lhs_contracting_dimensions": AttrSpec("ints", "dimensions of lhs that are summed over"),
            "rhs_contracting_dimensions": AttrSpec("ints", "their partners in rhs, in the same order"),
            **NUMERICS,
        },
        arity=2,
        flops=_flops,
    ),
)
