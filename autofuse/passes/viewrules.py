"""Rules for reshape, transpose and broadcast_in_dim: merged, and put in the order reshape, transpose, broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.graph import Node, Value
from autofuse.passes.axismaps import ascending, inverse, runs, unit_moves
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Expression, Rules, call


def broadcast(x: Expression, shape: Sequence[int], dims: Sequence[int]) -> Call:
    """The expression `broadcast_in_dim(x)`."""
    return call("broadcast_in_dim", x, shape=tuple(shape), broadcast_dimensions=tuple(dims))


def same_type(node: Node, facts: Facts) -> Value | None:
    """A reshape to the shape that is there."""
    (x,) = node.inputs
    return x if x.type == node.output.type else None


def reshape_reshaped(node: Node, facts: Facts) -> Call | None:
    """Two reshapes are one."""
    inner = facts.producer(node.inputs[0], "reshape")
    return None if inner is None else call("reshape", *inner.inputs, shape=node.attrs["shape"])


def reshape_scalar(node: Node, facts: Facts) -> Call | None:
    """A scalar is broadcast to its shape: the form numbers have everywhere."""
    (x,) = node.inputs
    return None if x.type.shape else broadcast(x, node.attrs["shape"], ())


def reshape_broadcast(node: Node, facts: Facts) -> Call | None:
    """A reshaped broadcast is a broadcast of the reshaped operand, where no run of axes mixes both."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None or node.output.type.size == 0:
        return None
    (x,), dims = inner.inputs, inner.attrs["broadcast_dimensions"]
    return broadcast_in_shape(x, node.inputs[0].type.shape, dims, node.output.type.shape)


def broadcast_in_shape(x: Value, shape: Sequence[int], dims: Sequence[int], new_shape: Sequence[int]) -> Call | None:
    """`x`, broadcast to `shape` along `dims`, then reshaped to `new_shape`: written as a broadcast of a reshape.

    None if there is no such broadcast. Sizes must not be 0.
    """
    held_at = [dim for axis, dim in enumerate(dims) if x.type.shape[axis] != 1]
    if not ascending(held_at):
        return None
    own_shape: list[int] = []
    new_dims: list[int] = []
    for old, new in runs(shape, new_shape):
        held = [dim for dim in old if dim in held_at]
        if held and len(held) < len(old):
            return None
        if held:
            own_shape += [new_shape[dim] for dim in new]
            new_dims += new
    return broadcast(call("reshape", x, shape=tuple(own_shape)), new_shape, new_dims)


def reshape_iota(node: Node, facts: Facts) -> Call | None:
    """An iota with unit axes added or dropped counts along the axis that its own became."""
    inner = facts.producer(node.inputs[0], "iota")
    moves = None if inner is None else unit_moves(inner.output.type.shape, node.output.type.shape)
    if inner is None or moves is None or inner.attrs["iota_dimension"] not in moves:
        return None
    return call(
        "iota",
        shape=node.output.type.shape,
        dtype=inner.attrs["dtype"],
        iota_dimension=moves[inner.attrs["iota_dimension"]],
    )


def transpose_nothing(node: Node, facts: Facts) -> Expression | None:
    """A transpose that leaves the order of the wide axes is a reshape, or nothing."""
    (x,), permutation = node.inputs, node.attrs["permutation"]
    if ascending(permutation):
        return x
    if ascending([axis for axis in permutation if x.type.shape[axis] != 1]):
        return call("reshape", x, shape=node.output.type.shape)
    return None


def transpose_transposed(node: Node, facts: Facts) -> Call | None:
    """Two transposes are one."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation = tuple(inner.attrs["permutation"][axis] for axis in node.attrs["permutation"])
    return call("transpose", *inner.inputs, permutation=permutation)


def transpose_broadcast(node: Node, facts: Facts) -> Call | None:
    """A transposed broadcast is a broadcast to other axes."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None:
        return None
    places = inverse(node.attrs["permutation"])
    dims = [places[dim] for dim in inner.attrs["broadcast_dimensions"]]
    return broadcast(inner.inputs[0], node.output.type.shape, dims)


def transpose_iota(node: Node, facts: Facts) -> Call | None:
    """A transposed iota counts along another axis."""
    inner = facts.producer(node.inputs[0], "iota")
    if inner is None:
        return None
    axis = node.attrs["permutation"].index(inner.attrs["iota_dimension"])
    return call("iota", shape=node.output.type.shape, dtype=inner.attrs["dtype"], iota_dimension=axis)


def broadcast_nothing(node: Node, facts: Facts) -> Expression | None:
    """A broadcast that repeats nothing is a transpose and a reshape; of a scalar to unit axes it stays."""
    (x,), dims = node.inputs, node.attrs["broadcast_dimensions"]
    if x.type == node.output.type and ascending(dims):
        return x
    if not x.type.shape or x.type.size != node.output.type.size or x.type.size == 0:
        return None
    order = sorted(range(x.type.rank), key=lambda axis: dims[axis])
    return call("reshape", call("transpose", x, permutation=tuple(order)), shape=node.output.type.shape)


def broadcast_broadcast(node: Node, facts: Facts) -> Call | None:
    """Two broadcasts are one."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None:
        return None
    dims = [node.attrs["broadcast_dimensions"][dim] for dim in inner.attrs["broadcast_dimensions"]]
    return broadcast(inner.inputs[0], node.output.type.shape, dims)


def broadcast_transposed(node: Node, facts: Facts) -> Call | None:
    """A broadcast takes the axes of its operand in any order."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    places = inverse(inner.attrs["permutation"])
    dims = [node.attrs["broadcast_dimensions"][place] for place in places]
    return broadcast(inner.inputs[0], node.output.type.shape, dims)


def broadcast_reshaped(node: Node, facts: Facts) -> Call | None:
    """Unit axes need not be added or dropped before a broadcast, if it has a free axis for each dropped one."""
    inner = facts.producer(node.inputs[0], "reshape")
    moves = None if inner is None else unit_moves(inner.inputs[0].type.shape, inner.output.type.shape)
    if inner is None or moves is None:
        return None
    (x,), given = inner.inputs, node.attrs["broadcast_dimensions"]
    places = {axis: given[moved] for axis, moved in moves.items()}
    dims = _with_unit_axes(x.type.rank, places, node.output.type.rank)
    return None if dims is None else broadcast(x, node.output.type.shape, dims)


def _with_unit_axes(rank: int, places: dict[int, int], result_rank: int) -> list[int] | None:
    """A result axis for every operand axis: the given one, or a free one that keeps the axes in order."""
    dims: list[int] = []
    free = [dim for dim in range(result_rank) if dim not in places.values()]
    for axis in range(rank):
        if axis in places:
            dims.append(places[axis])
            continue
        last = dims[-1] if dims else -1
        following = [places[later] for later in range(axis, rank) if later in places]
        fitting = [dim for dim in free if last < dim < min(following, default=result_rank)]
        if not fitting:
            return None
        dims.append(fitting[0])
        free.remove(fitting[0])
    return dims


def broadcast_iota(node: Node, facts: Facts) -> Call | None:
    """A broadcast iota is an iota of the larger shape."""
    inner = facts.producer(node.inputs[0], "iota")
    if inner is None or inner.output.type.shape[inner.attrs["iota_dimension"]] == 1:
        return None
    axis = node.attrs["broadcast_dimensions"][inner.attrs["iota_dimension"]]
    return call("iota", shape=node.output.type.shape, dtype=inner.attrs["dtype"], iota_dimension=axis)


RULES: Rules = {
    "reshape": (same_type, reshape_scalar, reshape_reshaped, reshape_broadcast, reshape_iota),
    "transpose": (transpose_nothing, transpose_transposed, transpose_broadcast, transpose_iota),
    "broadcast_in_dim": (
        *(broadcast_nothing, broadcast_broadcast, broadcast_transposed, broadcast_reshaped, broadcast_iota),
    ),
}
