"""Index ops whose elements come from several places: pad and concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import EVERY, AttrSpec, IndexOp, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.pieces import Piece, Test, choose, within
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_PADDING = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _infer_pad(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    x, value = operands
    if value != TensorType((), x.dtype):
        raise GraphError(f"pad: operand 1 (the padding value) must be {x.dtype}[] like operand x ({x}), got {value}")
    for name in _PADDING:
        require.length("pad", name, attrs[name], x.rank, "dimension of the operand")
    require.at_least("pad", "interior_padding", attrs["interior_padding"], 0)
    shape = tuple(
        low + n + max(n - 1, 0) * interior + high
        for n, low, high, interior in zip(x.shape, *(attrs[name] for name in _PADDING), strict=True)
    )
    if any(extent < 0 for extent in shape):
        raise GraphError(f"pad: negative padding removes more than operand x ({x}) has: the result would be {shape}")
    return (TensorType(shape, x.dtype),)


def _pad(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (padded(operands[0], operands[1], *(attrs[name] for name in _PADDING)),)


def padded(x: Array, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """`x` with `value` before, after and between its elements; negative `low` and `high` remove elements."""
    source: list[slice] = []
    target: list[slice] = []
    shape: list[int] = []
    for n, before, after, between in zip(x.shape, low, high, interior, strict=True):
        step = between + 1
        extent = before + n + max(n - 1, 0) * between + after
        first = max(0, -(before // step))
        end = max(first, min(n, -((before - extent) // step)))
        begin = before + first * step
        source.append(slice(first, end))
        target.append(slice(begin, begin + (end - first) * step, step) if end > first else slice(0, 0))
        shape.append(extent)
    result = np.full(shape, value, x.dtype)
    result[tuple(target)] = x[tuple(source)]
    return result


def _access_pad(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    where: list[Affine] = []
    tests: list[Test] = []
    sizes = zip(at, operands[0].shape, attrs["edge_padding_low"], attrs["interior_padding"], strict=True)
    for position, n, low, interior in sizes:
        step = interior + 1
        offset = position - low
        tests.append(within(offset, 0, (n - 1) * step + 1, step) if n else False)
        where.append(offset // step)
    return choose([(0, tuple(where), tuple(tests)), (1, (), ())])


def _infer_concatenate(
    operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]
) -> tuple[TensorType, ...]:
    if not operands:
        raise GraphError("concatenate: needs at least one operand, got none")
    first, axis = operands[0], attrs["dimension"]
    require.axis("concatenate", "dimension", axis, first.rank)
    for number, type_ in enumerate(operands):
        same = type_.dtype == first.dtype and type_.rank == first.rank
        if not same or any(a != b for d, (a, b) in enumerate(zip(type_.shape, first.shape, strict=True)) if d != axis):
            raise GraphError(
                f"concatenate: operand {number} must equal operand 0 ({first}) in dtype and in every dimension "
                f"but {axis}, got {type_}"
            )
    total = sum(type_.shape[axis] for type_ in operands)
    return (TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype),)


def _concatenate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.concatenate(operands, attrs["dimension"]),)


def _access_concatenate(
    operands: Sequence[TensorType], result: TensorType, attrs: Attrs, at: tuple[Affine, ...]
) -> tuple[Piece, ...]:
    axis = attrs["dimension"]
    options: list[tuple[int, tuple[Affine, ...], tuple[Test, ...]]] = []
    begin = 0
    for number, type_ in enumerate(operands):
        extent = type_.shape[axis]
        where = (*at[:axis], at[axis] - begin, *at[axis + 1 :])
        options.append((number, where, (within(at[axis], begin, begin + extent),)))
        begin += extent
    return choose(options)


OPS = (
    IndexOp(
        name="pad",
        doc="x with copies of a scalar before, after and between its elements; negative padding removes elements.",
        role=Role.INDEX,
        infer=_infer_pad,
        evaluate=_pad,
        code=1,
        attrs={
            "edge_padding_low": AttrSpec("ints", "elements added before the first, per dimension; may be negative"),
            "edge_padding_high": AttrSpec("ints", "elements added after the last, per dimension; may be negative"),
            "interior_padding": AttrSpec("ints", "elements added between neighbours, per dimension"),
        },
        arity=2,
        access=_access_pad,
        data=EVERY,
        once=1,
    ),
    IndexOp(
        name="concatenate",
        doc="The operands one after the other along a dimension.",
        role=Role.JOIN,
        infer=_infer_concatenate,
        evaluate=_concatenate,
        code=1,
        attrs={"dimension": AttrSpec("int", "the dimension along which operands are joined")},
        access=_access_concatenate,
        data=EVERY,
        once=EVERY,
    ),
)
