"""Branches, reductions and products in the body of a loop: both sides, and one element after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.loops import MAX_HELD
from autofuse.fusion.nodeaxes import dot_axes, reduced_axes
from autofuse.ir import dtypes
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lower.phasedrafts import Demand, Instance, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.reducing import BOOL_COMBINERS
from autofuse.lower.statements import Scalar


def chosen(
    frame: PhaseFrame, stage: StageDraft, node: Node, instance: Instance, guard: Scalar | None
) -> Demand[Scalar]:
    """A result of a branch: of both sides the one that the condition chooses."""
    value, at = instance
    number = node.outputs.index(value)
    condition = yield Wanted(stage, node.inputs[0], (), guard)
    sides: list[Scalar] = []
    for side in node.regions:
        sides.append((yield Wanted(stage, side.outputs[number], at, guard)))
    return frame.map(stage, value.type.dtype, "select", condition, *sides)


def unrolled(
    frame: PhaseFrame, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None
) -> Demand[Scalar]:
    """A reduction or a product in a body, one element after the other."""
    terms = _reduced(node, at) if role_of(node) is Role.REDUCE else _multiplied(node, at)
    dtype = node.output.type.dtype
    wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
    combiner = node.attrs.get("combiner", "add")
    if dtype.kind == "bool":
        combiner = BOOL_COMBINERS[combiner]
    total: Scalar | None = None
    for places in terms:
        scalars: list[Scalar] = []
        for operand, where in zip(node.inputs, places, strict=True):
            scalar = yield Wanted(stage, operand, where, guard)
            converts = frame.draft.dtypes[scalar] != wide
            scalars.append(frame.map(stage, wide, "convert", scalar) if converts else scalar)
        term = scalars[0] if len(scalars) == 1 else frame.map(stage, wide, _product(wide), *scalars)
        total = term if total is None else frame.map(stage, wide, combiner, total, term)
    if total is None:
        total = frame.constant(stage, wide, combiner_identity(combiner, wide))
    return total if wide == dtype else frame.map(stage, dtype, "convert", total)


def _product(dtype: DType) -> str:
    return "and" if dtype.kind == "bool" else "multiply"


def _reduced(node: Node, at: tuple[Affine, ...]) -> list[tuple[tuple[Affine, ...]]]:
    """The places of a reduction's operand that one of its elements is made of."""
    gone, shape = reduced_axes(node), node.inputs[0].type.shape
    _check_few(node, [shape[axis] for axis in gone])
    found: list[tuple[tuple[Affine, ...]]] = []
    for offsets in itertools.product(*(range(shape[axis]) for axis in sorted(gone))):
        inner, kept = dict(zip(sorted(gone), offsets, strict=True)), iter(at)
        found.append((tuple(Affine(inner[axis]) if axis in inner else next(kept) for axis in range(len(shape))),))
    return found


def _multiplied(node: Node, at: tuple[Affine, ...]) -> list[tuple[tuple[Affine, ...], tuple[Affine, ...]]]:
    """The places of a product's operands that one of its elements is made of."""
    axes = dot_axes(node)
    batch, free = at[: len(axes.lhs_batch)], at[len(axes.lhs_batch) :]
    own = dict(zip((*axes.lhs_batch, *axes.lhs_free), (*batch, *free), strict=False))
    other = dict(zip((*axes.rhs_batch, *axes.rhs_free), (*batch, *free[len(axes.lhs_free) :]), strict=True))
    extents = [node.inputs[0].type.shape[axis] for axis in axes.lhs_contracting]
    _check_few(node, extents)
    found: list[tuple[tuple[Affine, ...], tuple[Affine, ...]]] = []
    for offsets in itertools.product(*map(range, extents)):
        left = {**own, **{axis: Affine(k) for axis, k in zip(axes.lhs_contracting, offsets, strict=True)}}
        right = {**other, **{axis: Affine(k) for axis, k in zip(axes.rhs_contracting, offsets, strict=True)}}
        found.append(tuple(tuple(side[axis] for axis in range(len(side))) for side in (left, right)))  # type: ignore[arg-type]
    return found


def _check_few(node: Node, extents: Sequence[int]) -> None:
    if math.prod(extents) > MAX_HELD:
        raise LegalityError(
            f"{node.op} %{node.name} is in a loop, and adds {math.prod(extents)} terms: more than {MAX_HELD} are not "
            "unrolled"
        )
