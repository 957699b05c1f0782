"""Ops done for all iterations of a loop at once: on arrays that have one more axis in front, one position for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.ir.graph import Attrs, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass

Emit = Callable[..., Value]
"""Adds a node of one result: the op, its operands, its attributes by name."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of all iterations."""

    value: Value
    stacked: bool
    """Whether it has the axis of iterations; else it is the same in all of them."""


def can_batch(node: Node, stacked: Sequence[bool]) -> bool:
    """Whether a node can be done for all iterations at once. `stacked`: which of its operands have their axis."""
    if role_of(node) is Role.ELEMENTWISE:
        return True
    if node.op == "pad":
        return stacked[0] and not stacked[1]
    return node.op == "dot_general" or node.op == "concatenate" or node.op in _SHIFTED


def batched(node: Node, operands: Sequence[Operand], length: int, emit: Emit) -> Value:
    """A node's results of `length` iterations, stacked; at least one operand is, and `can_batch` holds."""
    if node.op == "dot_general":
        return _product(node, operands, emit)
    if role_of(node) is Role.ELEMENTWISE or node.op == "concatenate":
        values = [_stacked(operand, length, emit) for operand in operands]
        return emit(node.op, *values, **(_shifted(node.attrs) if node.op == "concatenate" else node.attrs))
    rule = _SHIFTED[node.op]
    return emit(node.op, *(operand.value for operand in operands), **rule(node.attrs, length))


def _stacked(operand: Operand, length: int, emit: Emit) -> Value:
    if operand.stacked:
        return operand.value
    shape = operand.value.type.shape
    axes = tuple(range(1, len(shape) + 1))
    return emit("broadcast_in_dim", operand.value, shape=(length, *shape), broadcast_dimensions=axes)


# ---- what moves elements, and what reduces them ----------------------------------------------------------------------


def _shifted(attrs: Attrs, length: int = 0) -> dict[str, Any]:  # the rules have one signature
    """One axis further back."""
    moved = {"dimension": attrs["dimension"] + 1} if "dimension" in attrs else {}
    return {**attrs, **moved, **({"dimensions": _behind(attrs["dimensions"])} if "dimensions" in attrs else {})}


def _behind(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


_SHIFTED: dict[str, Callable[[Attrs, int], dict[str, Any]]] = {
    **dict.fromkeys(("reverse", "reduce", "argmin", "argmax", "cumulative"), _shifted),
    "broadcast_in_dim": lambda attrs, length: {
        "shape": (length, *attrs["shape"]),
        "broadcast_dimensions": (0, *_behind(attrs["broadcast_dimensions"])),
    },
    "reshape": lambda attrs, length: {"shape": (length, *attrs["shape"])},
    "transpose": lambda attrs, _: {"permutation": (0, *_behind(attrs["permutation"]))},
    "slice": lambda attrs, length: {
        "start_indices": (0, *attrs["start_indices"]),
        "limit_indices": (length, *attrs["limit_indices"]),
        "strides": (1, *attrs["strides"]),
    },
    "pad": lambda attrs, _: {key: (0, *attrs[key]) for key in attrs},
}
"""The attributes of a node with the axis of `length` iterations, by op; the first operand has it."""


# ---- products --------------------------------------------------------------------------------------------------------


def _product(node: Node, operands: Sequence[Operand], emit: Emit) -> Value:
    """Where both operands are stacked, iterations are a batching dimension; else they are rows of the left operand."""
    left, right = operands
    swaps = right.stacked and not left.stacked
    if swaps:
        left, right = right, left
    sides = ("rhs", "lhs") if swaps else ("lhs", "rhs")
    shifts = (left.stacked, right.stacked)
    batching, contracting = (
        [
            tuple(axis + shift for axis in node.attrs[f"{side}_{kind}_dimensions"])
            for side, shift in zip(sides, shifts, strict=True)
        ]
        for kind in ("batching", "contracting")
    )
    both = left.stacked and right.stacked
    front = (0,) if both else ()
    attrs = {
        **node.attrs,
        "lhs_batching_dimensions": (*front, *batching[0]),
        "rhs_batching_dimensions": (*front, *batching[1]),
        "lhs_contracting_dimensions": contracting[0],
        "rhs_contracting_dimensions": contracting[1],
    }
    product = emit("dot_general", left.value, right.value, **attrs)
    order = _order(node, swaps=swaps, both=both)
    return product if order == tuple(range(len(order))) else emit("transpose", product, permutation=order)


def _order(node: Node, *, swaps: bool, both: bool) -> tuple[int, ...]:
    """Where the axes of the result are in the product: iterations, then those of the node's own result."""
    count = len(node.attrs["lhs_batching_dimensions"])
    frees = [
        value.type.rank - count - len(node.attrs[f"{side}_contracting_dimensions"])
        for side, value in zip(("lhs", "rhs"), node.inputs, strict=True)
    ]
    if both:
        return tuple(range(1 + count + sum(frees)))
    batch = range(count)
    first = range(count + 1, count + 1 + frees[swaps])
    second = range(count + 1 + frees[swaps], count + 1 + sum(frees))
    return (count, *batch, *second, *first) if swaps else (count, *batch, *first, *second)
