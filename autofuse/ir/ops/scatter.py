"""`scatter`: updates combined into an operand at positions read at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.combiners import COMBINERS
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.ops import require
from autofuse.ir.ops.indexing import Roles
from autofuse.ir.optable import AttrSpec, Family, OpDef, register
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_NAMES = (
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
    "index_vector_dim",
)


def _roles(attrs: Attrs, operand_rank: int, indices_rank: int) -> Roles:
    return Roles.of("scatter", _NAMES, attrs, operand_rank, indices_rank)


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x, indices, updates = operands
    require.same_dtype("scatter", ("x", "updates"), (x, updates))
    if attrs["combiner"] != "set":
        require.combiner_fits("scatter", attrs["combiner"], x)
    roles = _roles(attrs, x.rank, indices.rank)
    roles.check(x, indices)
    if updates.rank != roles.windowed_rank:
        raise GraphError(
            f"scatter: operand updates must have {roles.windowed_rank} dimensions ({len(roles.batch)} of the indices, "
            f"{len(roles.window)} of windows), got {updates}"
        )
    for dim, source in zip(roles.batch, roles.indices_dims, strict=True):
        if updates.shape[dim] != indices.shape[source]:
            raise GraphError(
                f"scatter: dimension {dim} of updates ({updates}) must have the extent of dimension {source} of the "
                f"indices ({indices})"
            )
    for dim, target in zip(roles.window, roles.window_operand, strict=True):
        if updates.shape[dim] > x.shape[target]:
            raise GraphError(
                f"scatter: dimension {dim} of updates ({updates}) must not exceed dimension {target} of operand x ({x})"
            )
    return (x,)


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    x, indices, updates = operands
    result = x.copy(order="C")
    if updates.size == 0 or x.size == 0:
        return (result,)
    positions = _roles(attrs, x.ndim, indices.ndim).positions(indices, updates.shape, None)
    inside = np.ones(updates.shape, np.bool_)
    flat = np.zeros(updates.shape, np.int64)
    for position, extent in zip(positions, x.shape, strict=True):
        inside &= (position >= 0) & (position < extent)
        flat = flat * extent + np.clip(position, 0, extent - 1)
    _apply(result.reshape(-1), flat[inside], updates[inside], attrs["combiner"])
    return (result,)


def _apply(target: Array, where: Array, updates: Array, combiner: str) -> None:
    if combiner != "set":
        COMBINERS[combiner].at(target, where, updates)
        return
    last, position = np.unique(where[::-1], return_index=True)
    target[last] = updates[::-1][position]


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    return 0.0 if attrs["combiner"] == "set" else float(operands[2].size)


register(
    OpDef(
        "scatter",
        "x with updates combined in at the positions that the indices give. Elements of updates that fall outside x "
        "are dropped one by one; repeated positions combine in row-major order of the updates, so the last `set` wins.",
        Family.OPAQUE,
        _infer,
        _evaluate,
        {
            "update_window_dims": AttrSpec("ints", "dimensions of updates that walk a window"),
            "inserted_window_dims": AttrSpec("ints", "operand dimensions that a window has one element of"),
            "input_batching_dims": AttrSpec("ints", "operand dimensions that are walked together with the indices"),
            "scatter_indices_batching_dims": AttrSpec("ints", "their partners in the indices"),
            "scatter_dims_to_operand_dims": AttrSpec("ints", "the operand dimension of each index component"),
            "index_vector_dim": AttrSpec("int", "dimension of the indices that holds index vectors; the rank if none"),
            "combiner": AttrSpec(
                "str", "how an update meets the element", ("set", "add", "multiply", "minimum", "maximum")
            ),
        },
        arity=3,
        flops=_flops,
    )
)
