"""Constant folding: nodes whose operands are known become constants, computed by the op table's own evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.interpreter import evaluate_node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, lookup, role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import SMALL_BYTES, Facts, repeated
from autofuse.passes.rewriting import Call, Rules, call, rewrite, splat_call

Array = NDArray[Any]


LARGE_BYTES = 4 << 20
"""A table that is worth reading rather than computing in every call may be this large."""
_MOST_FLOPS = 1e8


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replaces what can be computed ahead of time by constants.

    A constant that repeats one value becomes a scalar constant, broadcast; elementwise and index ops keep that form,
    which fusion inlines for nothing. Other constants are computed if the result has at most `limit_bytes`, or no more
    bytes than the constants it is computed from. Never folded: a plain iota or a view of one (readers compute it),
    a broadcast of an array (the same), contractions of over a hundred million operations, custom calls and nodes with
    regions. Exact: the interpreter computes.
    """

    name: ClassVar[str] = "constant-folding"
    limit_bytes: int = SMALL_BYTES

    def apply(self, graph: Graph) -> Graph:
        """The graph with constants folded; the same object if there was nothing to fold."""
        return rewrite(graph, self._rules)

    def _rules(self) -> Rules:
        return {"constant": (_as_splat,), "iota": (_only_zero,), "*": (_fold_splats, self._fold)}

    def _fold(self, node: Node, facts: Facts) -> Call | None:
        if not node.inputs or not _is_computed(node, facts):
            return None
        held = self._known_operands(node, facts)
        if held is None or not self._is_small(node, held):
            return None
        (result,) = evaluate_node(node, dict(zip(node.inputs, held, strict=True)))
        return call("constant", value=_owned(result))

    def _is_small(self, node: Node, operands: Sequence[Array]) -> bool:
        stored = max(array.nbytes for array in operands)
        work = lookup(node.op).flops
        flops = work([v.type for v in node.inputs], [node.output.type], node.attrs) if work else 0.0
        return node.output.type.nbytes <= max(self.limit_bytes, stored) and flops <= _MOST_FLOPS

    def _known_operands(self, node: Node, facts: Facts) -> list[Array] | None:
        held: list[Array] = []
        for value in node.inputs:
            array = self._known(value, facts)
            if array is None:
                return None
            held.append(array)
        return held

    def _known(self, value: Value, facts: Facts) -> Array | None:
        """The elements of a value; those of iotas and of broadcasts too, up to the limit."""
        array = facts.known(value)
        node = facts.producer(value, "broadcast_in_dim", "iota")
        if array is not None or node is None or value.type.nbytes > self.limit_bytes:
            return array
        sources = {operand: facts.known(operand) for operand in node.inputs}
        held = {operand: source for operand, source in sources.items() if source is not None}
        return evaluate_node(node, held)[0] if len(held) == len(sources) else None


def _is_computed(node: Node, facts: Facts) -> bool:
    """Whether the node does work that is worth storing the result of."""
    if len(node.outputs) != 1 or node.op in ("broadcast_in_dim", "custom_call"):
        return False
    if role_of(node).is_view:
        return facts.constant(node.inputs[0]) is not None and node.output.type.nbytes <= SMALL_BYTES
    return not role_of(node).is_control


def _as_splat(node: Node, facts: Facts) -> Call | None:
    array = node.attrs["value"]
    number = repeated(array) if array.ndim else None
    return None if number is None else splat_call(number, node.output.type)


def _only_zero(node: Node, facts: Facts) -> Call | None:
    shape, dtype = node.attrs["shape"], node.attrs["dtype"]
    return splat_call(np.zeros((), dtype.numpy), node.output.type) if shape[node.attrs["iota_dimension"]] == 1 else None


def _fold_splats(node: Node, facts: Facts) -> Call | None:
    """Elementwise ops on repeated values compute one; index ops on one repeated value give it again."""
    if len(node.outputs) != 1 or not node.inputs or node.output.type.size == 0:
        return None
    match role_of(node):
        case Role.ELEMENTWISE:
            splats = _splats(node.inputs, facts)
            return None if splats is None else _repeated_result(node, splats)
        case role if role.moves:
            return _moved_splat(node, facts)
        case Role.REDUCE if node.attrs["combiner"] in ("minimum", "maximum", "and", "or"):
            splats = _splats(node.inputs, facts)
            return None if splats is None else splat_call(splats[0], node.output.type)
        case _:
            return None


def _moved_splat(node: Node, facts: Facts) -> Call | None:
    if node.op == "broadcast_in_dim" and not node.inputs[0].type.shape:
        return None  # the form splats have
    splats = _splats(node.inputs[: index_op(node).data], facts)
    if splats is None or any(splat.tobytes() != splats[0].tobytes() for splat in splats):
        return None
    return splat_call(splats[0], node.output.type)


def _splats(values: Sequence[Value], facts: Facts) -> list[Array] | None:
    found = [facts.splat(value) for value in values]
    held = [splat for splat in found if splat is not None]
    return held if len(held) == len(found) else None


def _repeated_result(node: Node, splats: Sequence[Array]) -> Call:
    """The op on scalars: elementwise rules depend on no shape."""
    return splat_call(lookup(node.op).evaluate(splats, node.attrs, ())[0], node.output.type)


def _owned(array: Array) -> Array:
    held = np.array(array, order="C", copy=True)
    held.setflags(write=False)
    return held
