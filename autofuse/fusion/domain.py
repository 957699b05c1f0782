"""The loop domain of a kernel: which axis factors are its grid. This is where fusion is legal or not.

The grid is what all parts of a kernel have in common: its points are independent, and at each of them one worker does
everything. A reduction must deliver one value per grid point, a dot one row per grid row; what does not fit is refused
with the reason that `explain` and the lint show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import AxisFactor, Dimensions
from autofuse.fusion.loops import MAX_HELD, loop_factors, refusal, too_much_held
from autofuse.fusion.nodeaxes import dot_axes, is_loop, whole_axes
from autofuse.fusion.prologues import may_be_around, takes_prologues
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass

MAX_WINDOW = 128
"""Largest window that is unrolled into a kernel; a larger one is a call of its own."""
_ELEMENTWISE = Role.ELEMENTWISE
_MOST_TIED = 8
"""Values that are tried one by one where not all may be tied."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The loops of a kernel."""

    dimensions: Dimensions
    grid: tuple[AxisFactor, ...]
    """Grid factors, slowest first; the rows of dots last."""
    rows: tuple[AxisFactor, ...]
    """The grid factors that are rows of every dot: a row block walks the last loop made of them. Empty without dots."""
    groups: tuple[tuple[Value, ...], ...]
    """Outputs that share a loop nest. One group, unless the kernel has only loops and nothing in common: then each
    group is a phase with a grid of its own and `grid` is ()."""


def choose_domain(candidate: KernelCandidate) -> Domain | None:
    """Find the grid. None for a kernel that is one opaque call. Raises LegalityError with the reason."""
    if any(is_opaque(node) for node in candidate.nodes):
        _check_opaque_alone(candidate)
        return None
    loops = [node for node in candidate.nodes if is_loop(node)]
    reducing = [node for node in candidate.nodes if role_of(node).is_reduction_like or node in loops]
    dims = Dimensions(candidate.nodes)
    if not dims.has_conflict():
        return _reducing_domain(candidate, reducing, dims) if reducing else _loop_domain(candidate, dims)
    way: _Way = partial(Dimensions, candidate.nodes)
    dims = way(())
    if not reducing:
        return _loop_domain(candidate, dims)
    if dims.has_conflict() and not loops:
        way = partial(Dimensions.apart, candidate.nodes, candidate.outputs)
        dims = way(())
    if dims.has_conflict():
        raise LegalityError("two axes of one value would be the same loop, as in x + x.T")
    try:
        return _reducing_domain(candidate, reducing, dims)
    except LegalityError:
        more = _partly_tied(way, dims)
        if more is None:
            raise
    return _reducing_domain(candidate, reducing, more)


def body_domain(candidate: KernelCandidate) -> Domain | None:
    """The same for what an iteration of a loop does: `h @ u + h`, again and again, keeps its rows.

    Products then walk the depth by loops of their own, so that their columns may be those of the left operand.
    """
    if any(is_opaque(node) for node in candidate.nodes):
        return choose_domain(candidate)
    reducing = [node for node in candidate.nodes if role_of(node).is_reduction_like]
    dims = Dimensions(candidate.nodes, in_body=True)
    if dims.has_conflict() or not reducing:
        return choose_domain(candidate)
    return _reducing_domain(candidate, reducing, dims)


_Way = Callable[[Sequence[Value]], Dimensions]
"""The dimensions of a kernel in which certain values share their axes between uses."""


def _partly_tied(way: _Way, untied: Dimensions) -> Dimensions | None:
    """As many of the largest values as possible share their axes between uses; None if none may.

    Of `x[i] - x[j]` the two uses walk two loops, but what else the kernel reads may be walked together.
    """
    tied: list[Value] = []
    dims = None
    for value in untied.read_often()[:_MOST_TIED]:
        try:
            attempt = way((*tied, value))
        except LegalityError:  # too many copies
            break
        if not attempt.has_conflict():
            tied.append(value)
            dims = attempt
    return dims


def _reducing_domain(candidate: KernelCandidate, reducing: list[Node], dims: Dimensions) -> Domain:
    if len(reducing) == 1 and [n for n in candidate.nodes if role_of(n).computes] == reducing and is_loop(reducing[0]):
        groups = _loop_groups(candidate, reducing[0], dims)
        if len(groups) > 1:
            return Domain(dims, (), (), groups)
    own = {node: grid_factors(node, dims) for node in reducing}
    grid, limiting = _common_grid(candidate, own, dims)
    for node, factors in own.items():
        _check_reducing(node, factors - grid, grid, dims, limiting)
    rows = _rows(reducing, grid, dims)
    order = _order(candidate.outputs, grid, dims)
    ordered = tuple(a for a in order if a not in rows) + tuple(a for a in order if a in rows)
    return Domain(dims, ordered, tuple(a for a in order if a in rows), (candidate.outputs,))


def is_contraction(node: Node) -> bool:
    """Whether the node is a dot or a convolution."""
    return role_of(node).is_contraction


def is_opaque(node: Node) -> bool:
    """Whether the node is one call into a library: nothing can be computed inside it."""
    role = role_of(node)
    if role is _ELEMENTWISE:  # most are
        return False
    match role:
        case Role.WINDOW:
            return math.prod(node.attrs["window_dimensions"]) > MAX_WINDOW
        case Role.CONVOLUTION:
            return (node.attrs["batch_group_count"], node.attrs["feature_group_count"]) != (1, 1)
        case Role.COUNTED_LOOP | Role.LOOP:
            return refusal(node) is not None
        case _:
            return role.is_opaque


def _check_opaque_alone(candidate: KernelCandidate) -> None:
    """Beside an opaque node, only what a scatter or sort reads, or gives, element by element."""
    real = [node for node in candidate.nodes if role_of(node).computes]
    if len(real) > 1:
        node = next(node for node in real if is_opaque(node))
        if not takes_prologues(node) or not may_be_around(candidate.nodes, node, candidate.outputs):
            raise LegalityError(f"{node.op} is an opaque call: nothing can be computed inside it")
    if len(real) == 1 and role_of(real[0]).is_control:
        _check_nothing_behind(candidate, real[0])


def _check_nothing_behind(candidate: KernelCandidate, control: Node) -> None:
    """A loop or branch that is no code may have views before it, which a driver computes first, and none behind it."""
    made = set(control.outputs)
    for node in candidate.nodes:
        if not made.isdisjoint(candidate.graph.reads(node)):
            made.update(node.outputs)
    behind = [value.name for value in candidate.outputs if value in made.difference(control.outputs)]
    if behind:
        raise LegalityError(f"%{behind[0]} is a view of what {control.op} %{control.name} gives: a kernel of its own")


def _loop_domain(candidate: KernelCandidate, dims: Dimensions) -> Domain:
    if dims.has_conflict():
        return Domain(dims, (), (), tuple((value,) for value in candidate.outputs))
    groups: dict[frozenset[AxisFactor], list[Value]] = {}
    for value in candidate.outputs:
        groups.setdefault(dims.factors(value), []).append(value)
    if len(groups) == 1:
        return Domain(dims, _order(candidate.outputs, next(iter(groups)), dims), (), (candidate.outputs,))
    return Domain(dims, (), (), tuple(tuple(values) for values in groups.values()))


def _loop_groups(candidate: KernelCandidate, loop: Node, dims: Dimensions) -> tuple[tuple[Value, ...], ...]:
    """The results of a loop that is a kernel alone, by the grid of each, if they have none in common.

    What a group needs of the loop it computes for itself: a chain of keys beside states of many lanes is little work.
    """
    independent = loop_factors(loop, dims)
    groups: dict[frozenset[AxisFactor], list[Value]] = {}
    for value in candidate.outputs:
        groups.setdefault(dims.factors(value) & independent, []).append(value)
    common = frozenset.intersection(*groups)
    if common and all(math.prod(map(dims.extent, grid - common)) <= MAX_HELD for grid in groups):
        return (candidate.outputs,)
    return tuple(map(tuple, groups.values()))


def loop_grid(group: Sequence[Value], loop: Node, dims: Dimensions) -> tuple[AxisFactor, ...]:
    """The grid of one group of `Domain.groups` whose results a loop makes."""
    return _order(group, dims.factors(group[0]) & loop_factors(loop, dims), dims)


def _common_grid(
    candidate: KernelCandidate, reducing: Mapping[Node, frozenset[AxisFactor]], dims: Dimensions
) -> tuple[frozenset[AxisFactor], dict[AxisFactor, str]]:
    """Factors that every output and every reduction-like op has; and for each factor left out, who lacks it.

    `reducing`: such ops, and what each can have as a grid.
    """
    parts = [(f"output %{value.name}", dims.factors(value)) for value in candidate.outputs]
    parts += [(f"{node.op} %{node.name}", factors) for node, factors in reducing.items()]
    grid = parts[0][1]
    everything: frozenset[AxisFactor] = frozenset()
    for _, factors in parts:
        grid &= factors
        everything |= factors
    limiting = {factor: next(who for who, factors in parts if factor not in factors) for factor in everything - grid}
    return grid, limiting


def grid_factors(node: Node, dims: Dimensions) -> frozenset[AxisFactor]:
    """The factors of a result that can be grid: all of a reduction's, the batch and rows of a dot."""
    if is_loop(node):
        return loop_factors(node, dims)
    whole = whole_axes(node)
    return frozenset(f for axis, factors in enumerate(dims.axes(node.output)) if axis not in whole for f in factors)


def _check_reducing(
    node: Node,
    extra: frozenset[AxisFactor],
    grid: frozenset[AxisFactor],
    dims: Dimensions,
    limiting: Mapping[AxisFactor, str],
) -> None:
    """Raises LegalityError where a node has too much to hold, or gives values at points of loops that are no grid."""
    if is_loop(node):
        held = too_much_held(node, dims, grid)
        if held is not None:
            raise LegalityError(f"{node.op} %{node.name}: {held}")
        return
    if extra:
        factor = min(extra)
        what = "row" if is_contraction(node) else "value"
        raise LegalityError(
            f"{node.op} %{node.name} gives one {what} per point of a loop of {dims.extent(factor)} that "
            f"{limiting[factor]} does not have: it would be nested inside another reduction"
        )


def _rows(reducing: list[Node], grid: frozenset[AxisFactor], dims: Dimensions) -> frozenset[AxisFactor]:
    """Grid factors that are lhs rows in every contraction (and batch in none)."""
    rows: frozenset[AxisFactor] | None = None
    for node in reducing:
        if is_contraction(node):
            own = _row_factors(node, dims)
            rows = own if rows is None else rows & own
    return (rows or frozenset()) & grid


def _row_factors(node: Node, dims: Dimensions) -> frozenset[AxisFactor]:
    axes = dims.axes(node.output)
    if role_of(node) is Role.CONVOLUTION:
        spatial = node.attrs["output_spatial_dimensions"]
        keep: Iterable[int] = (node.attrs["output_batch_dimension"], *spatial)
    else:
        parts = dot_axes(node)
        first = len(parts.lhs_batch)
        keep = range(first, first + len(parts.lhs_free))
    return frozenset(factor for axis in keep for factor in axes[axis])


def _order(outputs: Iterable[Value], factors: frozenset[AxisFactor], dims: Dimensions) -> tuple[AxisFactor, ...]:
    """The factors in the order in which the largest output stores them."""
    largest = max(outputs, key=lambda value: value.type.size)
    flat = [factor for axis in dims.axes(largest) for factor in axis]
    return tuple(factor for factor in flat if factor in factors)
