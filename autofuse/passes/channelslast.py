"""Convolutions with channels last, whatever layout a program gives them.

    y = convolution(x, w)          x, y [n, c, h, w], w [o, i, h, w]
 -> y' = convolution(x', w')       x', y' [n, h, w, c], w' [h, w, i, o], each the transpose of its own

Between two convolutions the transposes meet, behind and before what is elementwise, and are gone: a chain has one at
each end. Those that are left are stored, the kernel's once in a call: patches are then copied in long pieces, and
columns of the kernel are vectors.
"""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir.graph import Attrs, Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.editing import Editor
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, call, rewrite

_MOVED = frozenset(("transpose", "reverse", "slice", "reshape"))
_LEAST_BYTES = 4096
"""Anything smaller is in the nearest cache, in whatever order it is read."""
_Orders = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TurnConvolutions:
    """Writes convolutions without groups as ones with channels last. Exact, but for the order of sums."""

    name: ClassVar[str] = "convolution-layouts"

    def apply(self, graph: Graph) -> Graph:
        """The graph with such convolutions alone; the same object if it has no others."""
        return rewrite(graph, lambda: {"convolution": (channels_last,)}) if _has_others(graph) else graph


@dataclass(frozen=True, slots=True)
class StoreLayouts:
    """Gives what convolutions read transposed a place of its own, as a conversion to the type that it has.

    Runs last: clean-up takes such conversions for nothing. The search may still leave one to the convolution. Exact.
    """

    name: ClassVar[str] = "stored-layouts"

    def apply(self, graph: Graph) -> Graph:
        """The graph with stored operands; the same object if none is transposed."""
        editor = Editor(graph)
        stored: dict[Value, Value] = {}
        for node in graph.nodes:
            if role_of(node) is not Role.CONVOLUTION:
                continue
            found = {value for value in node.inputs if _is_turned(value, graph)}
            for value in found - stored.keys():
                stored[value] = editor.emit("convert", value, like=node, dtype=value.type.dtype)
            if found:
                operands = (stored[value] if value in found else value for value in node.inputs)
                editor.define(node, node.op, *operands, **node.attrs)
        return editor.finish()


def channels_last(node: Node, facts: Facts) -> Call | None:
    """A convolution by one with channels last; None for one that is so, or has groups."""
    del facts
    attrs, (lhs, rhs, out) = node.attrs, _orders(node.attrs)
    if not _is_other(node):
        return None
    spatial = tuple(range(1, len(lhs) - 1))
    within = tuple(range(len(lhs) - 2))
    own = {
        **attrs,
        "input_batch_dimension": 0,
        "input_feature_dimension": len(lhs) - 1,
        "input_spatial_dimensions": spatial,
        "kernel_spatial_dimensions": within,
        "kernel_input_feature_dimension": len(rhs) - 2,
        "kernel_output_feature_dimension": len(rhs) - 1,
        "output_batch_dimension": 0,
        "output_feature_dimension": len(out) - 1,
        "output_spatial_dimensions": spatial,
    }
    x, w = node.inputs
    made = call("convolution", call("transpose", x, permutation=lhs), call("transpose", w, permutation=rhs), **own)
    return call("transpose", made, permutation=tuple(out.index(d) for d in range(len(out))))


def _orders(attrs: Attrs) -> _Orders:
    """The dimensions of operands and result, in the order that they have where channels are last."""
    return (
        (attrs["input_batch_dimension"], *attrs["input_spatial_dimensions"], attrs["input_feature_dimension"]),
        (
            *attrs["kernel_spatial_dimensions"],
            attrs["kernel_input_feature_dimension"],
            attrs["kernel_output_feature_dimension"],
        ),
        (attrs["output_batch_dimension"], *attrs["output_spatial_dimensions"], attrs["output_feature_dimension"]),
    )


def _is_other(node: Node) -> bool:
    attrs = node.attrs
    plain = attrs["feature_group_count"] == attrs["batch_group_count"] == 1
    return plain and any(order != tuple(range(len(order))) for order in _orders(attrs))


def _has_others(graph: Graph) -> bool:
    return any(role_of(node) is Role.CONVOLUTION and _is_other(node) for node in graph.nodes) or any(
        _has_others(region) for node in graph.nodes for region in node.regions
    )


def _is_turned(value: Value, graph: Graph) -> bool:
    """Whether a value is what memory has in another order, and worth storing."""
    if value.type.nbytes < _LEAST_BYTES:
        return False
    node = graph.producers.get(value)
    while node is not None and node.op in _MOVED:
        if node.op == "transpose":
            return True
        node = graph.producers.get(node.inputs[0])
    return False
