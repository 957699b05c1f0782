"""Loops that run inside one kernel: which of their axes are independent of one another.

The state of such a loop lives in registers: at each grid point one worker runs all iterations. So the grid has only
axes along which an iteration reads each part of the state at its own position. Along all other axes of the state the
worker holds every element, which must be few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from autofuse.fusion.conditions import ending
from autofuse.fusion.dimensions import AxisFactor, Dimensions, Use
from autofuse.fusion.memorystate import in_memory
from autofuse.fusion.nodeaxes import body_of, inner_nodes, is_loop, kept_axes, loop_nodes, nested_loops, parts_of_state
from autofuse.fusion.viewchains import is_long
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of

MAX_HELD = 64
"""Most elements of one part of the state, or of one value of the body, that a worker holds or computes."""
_ROLES = (Role.ELEMENTWISE, Role.REDUCE, Role.DOT, Role.BRANCH)
"""What a body may be made of, beside constants, positions and what moves elements. Reductions and products unroll, and
of a branch both sides are computed, or where that costs much, the side that is taken."""


def refusal(node: Node) -> str | None:
    """Why a loop cannot run inside one kernel; None if it can."""
    if node not in _refusals:
        _refusals[node] = _refusal(node)
    return _refusals[node]


_refusals: WeakKeyDictionary[Node, str | None] = WeakKeyDictionary()


def _refusal(node: Node) -> str | None:
    nodes = loop_nodes(node)
    nested = nested_loops(node)
    for loop in (node, *nested):
        if role_of(loop) is Role.LOOP and any(map(is_loop, inner_nodes(loop.regions[0].nodes))):
            return f"there is a loop in the condition of {loop.op} %{loop.name}"
    for inner in nodes:
        role = role_of(inner)
        if not (is_loop(inner) or role in _ROLES or role.is_leaf or role.moves):
            return f"{inner.op} %{inner.name} in its body is no scalar code"
    if any(0 in value.type.shape for inner in nodes for value in inner.outputs):
        return "its body has values without elements"
    if any(is_long(region.nodes) for inner in (node, *nodes) for region in inner.regions):
        return "the indices at which its body reads through views are too long"
    dims = Dimensions([node])
    if dims.has_conflict():
        return "two axes of one value in its body would be the same loop"
    return too_much_held(node, dims, loop_factors(node, dims))


def too_much_held(node: Node, dims: Dimensions, grid: frozenset[AxisFactor]) -> str | None:
    """What a loop carries, or stacks, with more elements at a point of a grid than a worker holds; None for nothing."""
    times = _all_times(node, dims)
    stored = {value for part in in_memory(node) for value in part.versions}
    for value in (*node.outputs, *(value for loop in nested_loops(node) for value in loop.outputs)):
        if value in stored:
            continue
        held = math.prod(dims.extent(factor) for factor in dims.factors(value) - times - grid)
        if held > MAX_HELD:
            return (
                f"an iteration depends on {held} elements of %{value.name} at once: more than {MAX_HELD} do not fit "
                "registers"
            )
    return None


def time_factors(node: Node, dims: Dimensions) -> frozenset[AxisFactor]:
    """The factors that count a loop's iterations."""
    count = parts_of_state(node)
    arrays: list[Use] = [dims.use(node, number) for number in range(count, len(node.inputs))]
    return frozenset(factor for use in (*arrays, *node.outputs[count:]) for factor in dims.axes(use)[0])


def _all_times(node: Node, dims: Dimensions) -> frozenset[AxisFactor]:
    """The factors that count the iterations of a loop, and of those in its body."""
    return frozenset(factor for loop in (node, *nested_loops(node)) for factor in time_factors(loop, dims))


def loop_factors(node: Node, dims: Dimensions) -> frozenset[AxisFactor]:
    """The factors along which iterations are independent: those that the loop can have as a grid."""
    values = (*body_of(node).inputs, *(value for inner in loop_nodes(node) for value in inner.outputs))
    everything = frozenset(factor for value in values for factor in _factors(value, dims))
    return everything - _all_times(node, dims) - frozenset(_mixed(node, dims))


def _mixed(node: Node, dims: Dimensions) -> Iterator[AxisFactor]:
    """Factors of the state that a body, or a condition, reads at other positions than that of the result."""
    depends = {value for region in node.regions for value in region.inputs[: parts_of_state(node)]}
    nested = nested_loops(node)
    depends.update(value for loop in nested for region in loop.regions for value in region.inputs)
    for part in in_memory(node):
        yield from _factors(body_of(node).inputs[part.part], dims)
    asked = [end.reduction for loop in (node, *nested) if (end := ending(loop)) is not None]
    for inner in loop_nodes(node):
        if inner in asked:
            continue
        state = [number for number, value in enumerate(inner.inputs) if value in depends]
        if not depends.isdisjoint(value for side in inner.regions for value in side.outputs):
            depends.update(inner.outputs)
        if state:
            depends.update(inner.outputs)
            yield from () if is_loop(inner) else _moved(inner, state, dims)


def _moved(node: Node, operands: Sequence[int], dims: Dimensions) -> Iterator[AxisFactor]:
    """Factors of some operands that a result's element reads at other positions than its own."""
    if role_of(node) is Role.RESHAPE and _flat(dims, dims.use(node, 0)) == _flat(dims, node.output):
        return
    kept = kept_axes(node)
    for number in operands:
        for axis, factors in enumerate(dims.axes(dims.use(node, number))):
            if (number, axis) not in kept:
                yield from factors


def _flat(dims: Dimensions, use: Use) -> list[AxisFactor]:
    return [factor for axis in dims.axes(use) for factor in axis]


def _factors(value: Value, dims: Dimensions) -> frozenset[AxisFactor]:
    """The factors of a value of a body; none of constants, which every reader makes anew, and captured values."""
    return dims.factors(value) if dims.has_axes(value) else frozenset()
