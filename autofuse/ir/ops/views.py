"""Index ops that only rename positions: broadcast_in_dim, reshape, transpose, slice, reverse; and one that does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import index
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import AttrSpec, IndexOp, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.pieces import Piece
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer_broadcast(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    op, x = "broadcast_in_dim", operands[0]
    shape, dims = attrs["shape"], attrs["broadcast_dimensions"]
    require.at_least(op, "shape", shape, 0)
    require.length(op, "broadcast_dimensions", dims, x.rank, "dimension of the operand")
    require.axes(op, "broadcast_dimensions", dims, len(shape), "the result")
    for extent, dim in zip(x.shape, dims, strict=True):
        if extent not in (1, shape[dim]):
            raise GraphError(
                f"{op}: operand x ({x}) has extent {extent} where the result {shape} has {shape[dim]} "
                f"(dimension {dim}); it must be 1 or equal"
            )
    return (TensorType(shape, x.dtype),)


def _broadcast(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    (x,), shape, dims = operands, attrs["shape"], attrs["broadcast_dimensions"]
    order = sorted(range(x.ndim), key=lambda axis: dims[axis])
    extents = [1] * len(shape)
    for axis in order:
        extents[dims[axis]] = x.shape[axis]
    return (np.broadcast_to(x.transpose(order).reshape(extents), shape),)


def _access_broadcast(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    pairs = zip(operands[0].shape, attrs["broadcast_dimensions"], strict=True)
    return (Piece(0, tuple(Affine() if extent == 1 else at[dim] for extent, dim in pairs)),)


def _infer_reshape(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x, shape = operands[0], attrs["shape"]
    require.at_least("reshape", "shape", shape, 0)
    if math.prod(shape) != x.size:
        raise GraphError(
            f"reshape: attribute shape must hold {x.size} elements like operand x ({x}), "
            f"got {shape} with {math.prod(shape)}"
        )
    return (TensorType(shape, x.dtype),)


def _reshape(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (operands[0].reshape(attrs["shape"]),)


def _access_reshape(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    shape = operands[0].shape
    if result.size == 0:
        return (Piece(0, (Affine(),) * len(shape)),)
    where: list[Affine] = []
    for left, right in equal_products(shape, result.shape):
        where += index.delinearize(index.linearize(at[right], result.shape[right]), shape[left])
    return (Piece(0, tuple(where)),)


def equal_products(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Cut two shapes of equal, nonzero size into the finest runs of axes with equal products."""
    i = j = 0
    while i < len(left) or j < len(right):
        first = i, j
        a = b = 1
        while a != b or (i, j) == first:
            if j == len(right) or (i < len(left) and a <= b):
                a *= left[i]
                i += 1
            else:
                b *= right[j]
                j += 1
        yield slice(first[0], i), slice(first[1], j)


def _infer_transpose(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x, permutation = operands[0], attrs["permutation"]
    require.length("transpose", "permutation", permutation, x.rank, "dimension of the operand")
    require.axes("transpose", "permutation", permutation, x.rank)
    return (TensorType(tuple(x.shape[axis] for axis in permutation), x.dtype),)


def _transpose(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (operands[0].transpose(attrs["permutation"]),)


def _access_transpose(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    where = [Affine()] * operands[0].rank
    for position, axis in zip(at, attrs["permutation"], strict=True):
        where[axis] = position
    return (Piece(0, tuple(where)),)


def _infer_slice(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x = operands[0]
    starts, limits, strides = attrs["start_indices"], attrs["limit_indices"], attrs["strides"]
    for name in ("start_indices", "limit_indices", "strides"):
        require.length("slice", name, attrs[name], x.rank, "dimension of the operand")
    require.at_least("slice", "strides", strides, 1)
    for axis, (start, limit, extent) in enumerate(zip(starts, limits, x.shape, strict=True)):
        if not 0 <= start <= limit <= extent:
            raise GraphError(
                f"slice: in dimension {axis} required is 0 <= start <= limit <= {extent} (operand x is {x}), "
                f"got start {start}, limit {limit}"
            )
    shape = tuple(-(-(limit - start) // stride) for start, limit, stride in zip(starts, limits, strides, strict=True))
    return (TensorType(shape, x.dtype),)


def _slice(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    ranges = zip(attrs["start_indices"], attrs["limit_indices"], attrs["strides"], strict=True)
    return (operands[0][(*(slice(*r) for r in ranges), ...)],)


def _access_slice(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    steps = zip(at, attrs["start_indices"], attrs["strides"], strict=True)
    return (Piece(0, tuple(i * stride + start for i, start, stride in steps)),)


def _infer_reverse(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.axes("reverse", "dimensions", attrs["dimensions"], operands[0].rank)
    return (operands[0],)


def _reverse(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.flip(operands[0], attrs["dimensions"]),)


def _access_reverse(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    gone = attrs["dimensions"]
    return (Piece(0, tuple(i * -1 + (result.shape[d] - 1) if d in gone else i for d, i in enumerate(at))),)


def _infer_same(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    return (operands[0],)


def _same(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (operands[0],)


def _access_same(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    return (Piece(0, at),)


_view = partial(IndexOp, code=0, arity=1, data=1)

OPS = (
    _view(
        name="broadcast_in_dim",
        role=Role.VIEW,
        doc="Operand dimension i becomes result dimension broadcast_dimensions[i]; extents of 1 are repeated.",
        infer=_infer_broadcast,
        evaluate=_broadcast,
        access=_access_broadcast,
        attrs={
            "shape": AttrSpec("ints", "the result's shape"),
            "broadcast_dimensions": AttrSpec("ints", "the result dimension of each operand dimension"),
        },
        once=0,
    ),
    _view(
        name="reshape",
        role=Role.RESHAPE,
        doc="The same elements in row-major order under another shape.",
        infer=_infer_reshape,
        evaluate=_reshape,
        access=_access_reshape,
        attrs={"shape": AttrSpec("ints", "the result's shape, of equal size")},
        once=1,
    ),
    _view(
        name="transpose",
        role=Role.VIEW,
        doc="Result dimension i is operand dimension permutation[i].",
        infer=_infer_transpose,
        evaluate=_transpose,
        access=_access_transpose,
        attrs={"permutation": AttrSpec("ints", "the operand dimension of each result dimension")},
        once=1,
    ),
    _view(
        name="slice",
        role=Role.SLICE,
        doc="Elements start, start + stride, ... below limit in each dimension.",
        infer=_infer_slice,
        evaluate=_slice,
        access=_access_slice,
        attrs={
            "start_indices": AttrSpec("ints", "first index per dimension"),
            "limit_indices": AttrSpec("ints", "end (exclusive) per dimension"),
            "strides": AttrSpec("ints", "step per dimension, at least 1"),
        },
        once=0,
    ),
    _view(
        name="reverse",
        role=Role.VIEW,
        doc="The order of elements reversed in the given dimensions.",
        infer=_infer_reverse,
        evaluate=_reverse,
        access=_access_reverse,
        attrs={"dimensions": AttrSpec("ints", "dimensions to reverse")},
        once=1,
    ),
    _view(
        name="optimization_barrier",
        role=Role.VIEW,
        doc="The operand. What is computed of it is not merged with what is computed of the operand itself.",
        infer=_infer_same,
        evaluate=_same,
        access=_access_same,
        attrs={},
        once=1,
    ),
)
