"""The op table: the record of every op, by its name and by the scalar opcodes it is emitted as.

Adding an op means adding one record to the `OPS` of a module of `autofuse.ir.ops`; docs/ops.md says what else it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autofuse.errors import BackendError, GraphError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import ElementwiseOp, IndexOp, OpDef, Role
from autofuse.ir.ops import (
    calls,
    complexparts,
    control,
    convolution,
    dot,
    dynamic,
    elementwise,
    gather,
    joins,
    leaves,
    randombits,
    reduce,
    scatter,
    sort,
    views,
    windows,
)

FAMILIES = (
    *(calls, complexparts, control, convolution, dot, dynamic, elementwise, gather),
    *(joins, leaves, randombits, reduce, scatter, sort, views, windows),
)
"""The modules that hold the records."""
_TABLE: Mapping[str, OpDef] = {op.name: op for family in FAMILIES for op in family.OPS}
_ROLES: Mapping[str, Role] = {name: op.role for name, op in _TABLE.items()}
_OPCODES: Mapping[str, ElementwiseOp] = {
    opcode: op for op in _TABLE.values() if isinstance(op, ElementwiseOp) for opcode in op.opcodes
}


def lookup(name: str) -> OpDef:
    """The record of the op called `name`. Raises GraphError listing near names."""
    known = _TABLE.get(name)
    if known is not None:
        return known
    near = [other for other in _TABLE if other[:3] == name[:3]]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise GraphError(f"unknown op {name!r}{hint}")


def role_of(node: Node) -> Role:
    """What a node is to fusion and lowering. Raises GraphError for an unknown op."""
    try:
        return _ROLES[node.op]
    except KeyError:
        return lookup(node.op).role


def values_of(graph: Graph, role: Role) -> list[Value]:
    """The values that nodes of a role make, in order; those of regions are left out."""
    return [value for node in graph.nodes if role_of(node) is role for value in node.outputs]


def has_calls(graph: Graph) -> bool:
    """Whether a graph calls a function of a library or of a user, in a region or not."""
    return any(role_of(node) is Role.CALL or any(map(has_calls, node.regions)) for node in graph.nodes)


def elementwise_op(node: Node) -> ElementwiseOp:
    """The record of a node's op. Raises GraphError unless it is elementwise."""
    op = lookup(node.op)
    if not isinstance(op, ElementwiseOp):
        raise GraphError(f"%{node.name}: {op.name} is not elementwise")
    return op


def index_op(node: Node) -> IndexOp:
    """The record of a node's op. Raises GraphError unless it moves elements."""
    op = lookup(node.op)
    if not isinstance(op, IndexOp):
        raise GraphError(f"%{node.name}: {op.name} moves no elements")
    return op


def scalar_op(opcode: str) -> ElementwiseOp:
    """The op that is emitted as a scalar opcode. Raises BackendError for a name that no op is emitted as."""
    op = _OPCODES.get(opcode)
    if op is None:
        raise BackendError(f"unknown scalar opcode {opcode!r}; see docs/ops.md for the opcodes")
    return op


def all_ops() -> Iterator[OpDef]:
    """Every record, by name."""
    yield from sorted(_TABLE.values(), key=lambda op: op.name)
