"""Storing what is read transposed more than once: transposed one time, read in order afterwards."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.editing import Editor

_LEAST_BYTES = 4096
"""Anything smaller is in the nearest cache, in whatever order it is read."""
_TURNED = (1, 0)


@dataclass(frozen=True, slots=True)
class StoreTransposes:
    """Gives transposed values that have several readers a place of their own, as a conversion to the type they have.

    So a kernel can store them, and the search may also leave the conversion to the readers, as if it were not there.
    A matrix that several products read along its rows is stored in the order in which its blocks are packed; one that
    is a constant is transposed now, for a single product too. Runs last: clean-up takes such conversions for nothing.
    Exact: elements are copied.
    """

    name: ClassVar[str] = "stored-transposes"

    def apply(self, graph: Graph) -> Graph:
        """The graph with stored transposes; the same object if none has several readers."""
        editor = Editor(graph)
        matrices: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            if node.op == "transpose" and _is_worth_storing(node, graph):
                transposed = editor.emit("transpose", *node.inputs, like=node, **node.attrs)
                editor.define(node, "convert", transposed, dtype=transposed.type.dtype)
            elif _reads_rows(node):
                matrices.setdefault(node.inputs[1], []).append(node)
        for matrix, dots in matrices.items():
            _store_matrix(matrix, dots, graph, editor)
        return editor.finish()


def _is_worth_storing(node: Node, graph: Graph) -> bool:
    value = node.output
    return len(graph.users[value]) > 1 and value not in graph.outputs and value.type.nbytes >= _LEAST_BYTES


def _reads_rows(node: Node) -> bool:
    """Whether a product reads its right operand, a matrix, along the depth."""
    if node.op != "dot_general" or node.inputs[1].type.rank != 2 or node.inputs[1].type.nbytes < _LEAST_BYTES:
        return False
    return node.attrs["rhs_contracting_dimensions"] == (1,) and not node.attrs["rhs_batching_dimensions"]


def _store_matrix(matrix: Value, dots: list[Node], graph: Graph, editor: Editor) -> None:
    maker = graph.producers.get(matrix)
    if maker is not None and maker.op == "constant":
        transposed = editor.emit("constant", like=dots[0], value=np.ascontiguousarray(maker.attrs["value"].T))
    elif len(dots) > 1:
        moved = editor.emit("transpose", matrix, like=dots[0], permutation=_TURNED)
        transposed = editor.emit("convert", moved, like=dots[0], dtype=matrix.type.dtype)
    else:
        return
    for dot in dots:
        attrs = {**dot.attrs, "rhs_contracting_dimensions": (0,)}
        editor.define(dot, "dot_general", dot.inputs[0], transposed, **attrs)
