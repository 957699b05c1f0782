"""`scatter`: updates combined into an operand at positions read at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.combiners import COMBINERS
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import NUMERICS, AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.ops.windowroles import Roles
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


def roles_of(attrs: Attrs, operand_rank: int, indices_rank: int) -> Roles:
    """Which dimension of the operand, the indices and the updates is which."""
    return Roles.of("scatter", _NAMES, attrs, operand_rank, indices_rank)


def _infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x, indices, updates = operands
    require.same_dtype("scatter", ("x", "updates"), (x, updates))
    if attrs["combiner"] != "set":
        require.combiner_fits("scatter", attrs["combiner"], x)
    roles = roles_of(attrs, x.rank, indices.rank)
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


def _evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    result = np.empty_like(operands[0], order="C")
    _evaluate_into(operands, attrs, (result,))
    return (result,)


def _evaluate_into(operands: Sequence[Array], attrs: Attrs, targets: Sequence[Array | None]) -> None:
    (x, indices, updates), (result,) = operands, targets
    if result is None:
        return
    result[...] = x
    if updates.size == 0 or x.size == 0:
        return
    roles, combiner = roles_of(attrs, x.ndim, indices.ndim), attrs["combiner"]
    lead = _leading(roles, x.shape, updates.shape) if combiner == "set" else None
    rank, shape = (x.ndim, updates.shape) if lead is None else (lead, updates.shape[: len(roles.batch)])
    positions = [p.reshape(p.shape[: len(shape)]) for p in roles.positions(indices, updates.shape, None)[:rank]]
    where, inside = _flat(positions, x.shape[:rank], shape)
    row = (math.prod(x.shape[rank:]),) if rank < x.ndim else ()
    values: Any = updates.flat[0] if not any(updates.strides) else updates.reshape(-1, *row)
    if inside is not None:
        where, values = where[inside], values[inside] if np.ndim(values) else values
    _apply(result.reshape(-1, *row), where, values, combiner)


def _leading(roles: Roles, shape: tuple[int, ...], updates: tuple[int, ...]) -> int | None:
    """How many leading dimensions the indices address, if updates are whole rows of all others; None if they are not.

    A row is then moved at once.
    """
    lead, batch = len(shape) - len(roles.window), len(roles.batch)
    whole = roles.window and roles.window_operand == tuple(range(lead, len(shape))) and updates[batch:] == shape[lead:]
    return lead if whole and roles.window[0] == batch and all(d < lead for d in roles.index_map) else None


def _flat(positions: Sequence[Array], extents: Sequence[int], shape: tuple[int, ...]) -> tuple[Array, Array | None]:
    """Row-major positions, one after the other, and which of them lie inside; None if all do."""
    flat: Array = np.zeros((), np.int64)
    inside: Array | None = None
    for number, (position, extent) in enumerate(zip(positions, extents, strict=True)):
        if position.min() < 0 or position.max() >= extent:
            fits = (position >= 0) & (position < extent)
            inside = fits if inside is None else inside & fits
            position = np.clip(position, 0, extent - 1)
        flat = flat * extent + position if number else position
    spread = np.broadcast_to(flat, shape).reshape(-1)
    return spread, None if inside is None else np.broadcast_to(inside, shape).reshape(-1)


def _apply(target: Array, where: Array, updates: Any, combiner: str) -> None:
    """Combine `updates`, one or as many as positions, into the elements or rows of `target`, in order."""
    if combiner == "set":
        target[where] = updates  # one contiguous index array: NumPy goes through it in order
    elif combiner == "add" and np.ndim(updates) == 0 and target.dtype.kind in "iu" and target.size <= 4 * where.size:
        target += np.bincount(where, minlength=target.size).astype(target.dtype) * updates
    elif combiner == "add" and np.ndim(updates) and target.dtype == np.float64 and not target.view(np.int64).any():
        target[...] = np.bincount(where, updates, target.size)  # the same sums in the same order, from +0.
    else:
        COMBINERS[combiner].at(target, where, updates)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Attrs) -> float:
    return 0.0 if attrs["combiner"] == "set" else float(operands[2].size)


OPS = (
    OpDef(
        name="scatter",
        doc="x with updates combined in at the positions that the indices give. Elements of updates that fall outside "
        "x are dropped one by one; repeated positions combine in row-major order of updates, so the last `set` wins.",
        role=Role.SCATTER,
        infer=_infer,
        evaluate=_evaluate,
        code=1,
        attrs={
            "update_window_dims": AttrSpec("ints", "dimensions of updates that walk a window"),
            "inserted_window_dims": AttrSpec("ints", "operand dimensions that a window has one element of"),
            "input_batching_dims": AttrSpec("ints", "operand dimensions that are walked together with the indices"),
            "scatter_indices_batching_dims": AttrSpec("ints", "their partners in the indices"),
            "scatter_dims_to_operand_dims": AttrSpec("ints", "the operand dimension of each index component"),
            "index_vector_dim": AttrSpec("int", "dimension of the indices that holds index vectors; the rank if none"),
            "combiner": AttrSpec(
                "str", "how an update meets the element", ("set", "add", "multiply", "minimum", "maximum")
            ),
            **NUMERICS,
        },
        arity=3,
        flops=_flops,
        evaluate_into=_evaluate_into,
    ),
)
