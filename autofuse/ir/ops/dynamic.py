"""Index ops whose start is known at run time: dynamic_slice and dynamic_update_slice. Starts are clamped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph, Node
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import AttrSpec, IndexOp, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.pieces import Piece, Test, choose, start, within
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_SLICE = "dynamic_slice"
_UPDATE = "dynamic_update_slice"


def _check_starts(op: str, x: TensorType, starts: Sequence[TensorType]) -> None:
    if len(starts) != x.rank:
        raise GraphError(f"{op}: needs {x.rank} start scalars, one per dimension of operand x ({x}), got {len(starts)}")
    require.scalar_integers(op, [f"start_{axis}" for axis in range(x.rank)], starts)


def _begin(starts: Sequence[Array], extents: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [
        min(max(int(position), 0), extent - size) for position, extent, size in zip(starts, extents, sizes, strict=True)
    ]


def _infer_slice(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if not operands:
        raise GraphError(f"{_SLICE}: needs an operand and its start scalars, got none")
    x, sizes = operands[0], attrs["slice_sizes"]
    _check_starts(_SLICE, x, operands[1:])
    require.length(_SLICE, "slice_sizes", sizes, x.rank, "dimension of the operand")
    for axis, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)):
        if not 0 <= size <= extent:
            raise GraphError(
                f"{_SLICE}: attribute slice_sizes[{axis}] must lie in 0..{extent} (operand x is {x}), got {size}"
            )
    return (TensorType(sizes, x.dtype),)


def _slice(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    x, sizes = operands[0], attrs["slice_sizes"]
    begin = _begin(operands[1:], x.shape, sizes)
    return (x[(*(slice(b, b + size) for b, size in zip(begin, sizes, strict=True)), ...)],)


def _access_slice(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    sizes = zip(at, operands[0].shape, attrs["slice_sizes"], strict=True)
    return (Piece(0, tuple(i + start(d + 1, (), extent - size) for d, (i, extent, size) in enumerate(sizes))),)


def _infer_update(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if len(operands) < 2:
        raise GraphError(f"{_UPDATE}: needs an operand, an update and start scalars, got {len(operands)} operands")
    x, update = operands[:2]
    _check_starts(_UPDATE, x, operands[2:])
    require.same_dtype(_UPDATE, ("x", "update"), (x, update))
    if update.rank != x.rank or any(u > n for u, n in zip(update.shape, x.shape, strict=True)):
        raise GraphError(f"{_UPDATE}: operand update must fit into operand x ({x}) in every dimension, got {update}")
    return (x,)


def _update(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (_update_over((operands[0].copy(), *operands[1:]), attrs),)


def _update_over(operands: Sequence[Array], attrs: Attrs) -> Array:
    x, update = operands[:2]
    begin = _begin(operands[2:], x.shape, update.shape)
    x[(*(slice(b, b + size) for b, size in zip(begin, update.shape, strict=True)), ...)] = update
    return x


def _access_update(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    x, update = operands[:2]
    where: list[Affine] = []
    tests: list[Test] = []
    for axis, (i, extent, size) in enumerate(zip(at, x.shape, update.shape, strict=True)):
        offset = i - start(axis + 2, (), extent - size)
        where.append(offset)
        tests.append(size == extent or within(offset, 0, size))
    return choose([(1, tuple(where), tuple(tests)), (0, at, ())])


def overwrites(node: Node) -> bool:
    """Whether a node is an update whose result may take the memory of what it updates."""
    return node.op == _UPDATE and bool(node.attrs.get("overwrites"))


OPS = (
    IndexOp(
        name=_SLICE,
        doc="A block of slice_sizes that begins at the start scalars, clamped so that the block lies inside x.",
        role=Role.INDEX,
        infer=_infer_slice,
        evaluate=_slice,
        code=1,
        attrs={"slice_sizes": AttrSpec("ints", "the result's shape")},
        access=_access_slice,
        data=1,
        once=0,
    ),
    IndexOp(
        name=_UPDATE,
        doc="x with a block replaced by update, which begins at the start scalars, clamped so that it lies inside x.",
        role=Role.INDEX,
        infer=_infer_update,
        evaluate=_update,
        code=1,
        attrs={"overwrites": AttrSpec("bool", "whether the result may take the memory of x", optional=True)},
        access=_access_update,
        data=2,
        once=0,
        evaluate_over=_update_over,
    ),
)
