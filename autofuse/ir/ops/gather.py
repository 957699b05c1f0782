"""`gather`: windows of an operand at positions read at run time. Starts are clamped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import index
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import AttrSpec, IndexOp, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.ops.windowroles import Roles
from autofuse.ir.pieces import Piece, start
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_NAMES = (
    "offset_dims",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "start_index_map",
    "index_vector_dim",
)


def _roles(attrs: Attrs, operand_rank: int, indices_rank: int) -> Roles:
    return Roles.of("gather", _NAMES, attrs, operand_rank, indices_rank)


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    (x, indices), sizes = operands, attrs["slice_sizes"]
    roles = _roles(attrs, x.rank, indices.rank)
    roles.check(x, indices)
    require.length("gather", "slice_sizes", sizes, x.rank, "dimension of the operand")
    for axis, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)):
        single = axis in roles.collapsed or axis in roles.operand_batching
        if not 0 <= size <= min(extent, 1 if single else extent):
            why = f" and at most 1 ({_NAMES[1]} or {_NAMES[2]} holds it)" if single else ""
            raise GraphError(
                f"gather: attribute slice_sizes[{axis}] must lie in 0..{extent}{why} (operand x is {x}), got {size}"
            )
    shape = [0] * roles.windowed_rank
    for dim, source in zip(roles.window, roles.window_operand, strict=True):
        shape[dim] = sizes[source]
    for dim, source in zip(roles.batch, roles.indices_dims, strict=True):
        shape[dim] = indices.shape[source]
    return (TensorType(tuple(shape), x.dtype),)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    x, indices = operands
    roles = _roles(attrs, x.ndim, indices.ndim)
    shape = [0] * roles.windowed_rank
    for dim, source in zip(roles.window, roles.window_operand, strict=True):
        shape[dim] = attrs["slice_sizes"][source]
    for dim, source in zip(roles.batch, roles.indices_dims, strict=True):
        shape[dim] = indices.shape[source]
    if 0 in shape:
        return (np.empty(shape, x.dtype),)
    limits = [extent - size for extent, size in zip(x.shape, attrs["slice_sizes"], strict=True)]
    return (np.broadcast_to(x[tuple(roles.positions(indices, shape, limits))], shape),)


def _access(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    x, indices = operands
    roles = _roles(attrs, x.rank, indices.rank)
    batch = [at[d] for d in roles.batch]
    where = [Affine()] * x.rank
    for component, d in enumerate(roles.index_map):
        vector = list(batch)
        if roles.index_vector_dim < indices.rank:
            vector.insert(roles.index_vector_dim, index.of(component))
        where[d] = start(1, tuple(vector), x.shape[d] - attrs["slice_sizes"][d])
    for d, result_dim in roles.batching_result.items():
        where[d] = where[d] + at[result_dim]
    for d, result_dim in zip(roles.window_operand, roles.window, strict=True):
        where[d] = where[d] + at[result_dim]
    return (Piece(0, tuple(where)),)


OPS = (
    IndexOp(
        name="gather",
        doc="For every index vector a window of slice_sizes of x that begins there; starts are clamped so that the "
        "window lies inside x. Dimension numbers as in StableHLO.",
        role=Role.INDEX,
        infer=_infer,
        evaluate=_evaluate,
        code=1,
        attrs={
            "offset_dims": AttrSpec("ints", "result dimensions that walk a window"),
            "collapsed_slice_dims": AttrSpec("ints", "operand dimensions whose window extent of 1 is dropped"),
            "operand_batching_dims": AttrSpec("ints", "operand dimensions that are walked together with the indices"),
            "start_indices_batching_dims": AttrSpec("ints", "their partners in the indices"),
            "start_index_map": AttrSpec("ints", "the operand dimension of each component of an index vector"),
            "index_vector_dim": AttrSpec("int", "dimension of the indices that holds index vectors; the rank if none"),
            "slice_sizes": AttrSpec("ints", "the window's extents in x"),
        },
        arity=2,
        access=_access,
        data=1,
        once=0,
    ),
)
