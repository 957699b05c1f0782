"""Scatters and sorts that code is generated for: they call nothing, and may compute what they read and what reads them.

Where an element that is only seen through views lies in a buffer, or which number it is, is a `Source`.
"""

from __future__ import annotations

import numpy as np

from autofuse.errors import BackendError
from autofuse.fusion.candidate import is_inlined, is_view
from autofuse.fusion.prologues import may_be_around, takes_prologues
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram, Space

_SHORT_ROW, _SOON_DONE = 64, 1 << 14
"""Elements of rows, and of all of them."""
_MOST_ROW = 1 << 32
"""The number of an element of a row has 32 bits."""


def scatter_in(graph: Graph) -> Node | None:
    """The node of a graph that is one scatter, of views of inputs and of repeated numbers; None for any other graph."""
    node = coded_in(graph)
    computes = sum(role_of(other).computes for other in graph.nodes if not is_inlined(other))
    return node if node is not None and role_of(node) is Role.SCATTER and computes == 1 else None


def coded_in(graph: Graph) -> Node | None:
    """The scatter or sort of a graph that is one, with elementwise work around it, and moves before it.

    None for any other graph, and where more is asked for than its results and what is made of them.
    """
    found = [node for node in graph.nodes if takes_prologues(node)]
    if len(found) != 1 or not may_be_around(graph.nodes, found[0], graph.outputs):
        return None
    if role_of(found[0]) is Role.SORT and found[0].inputs[0].type.shape[found[0].attrs["dimension"]] >= _MOST_ROW:
        return None
    return found[0]


def results_needed(graph: Graph, node: Node) -> tuple[Value, ...]:
    """The results of a scatter or sort that a kernel writes, or makes something else of."""
    needed = {*graph.outputs, *(value for other in graph.nodes for value in other.inputs)}
    return tuple(value for value in node.outputs if value in needed)


def holder_of(graph: Graph, node: Node) -> Value | None:
    """The output in whose memory a scatter is done: its result, or one of its type; None where there is neither.

    What is made of an element takes its place.
    """
    (result,) = node.outputs
    if result in graph.outputs:
        return result
    return next((value for value in graph.outputs if value.type == result.type), None)


def held_in(program: OpaqueProgram, node: Node) -> str:
    """The name of the buffer in which a scatter is done."""
    graph = program.graph
    holder = holder_of(graph, node)
    if holder is None:
        return next(buffer.name for buffer in program.buffers if buffer.space is Space.WORKSPACE)
    return program.buffers[len(graph.inputs) + graph.outputs.index(holder)].name


def why_not_coded(graph: Graph) -> str | None:
    """Why a scatter or sort cannot be one kernel with the other nodes of a graph; None if it can be."""
    node = next((node for node in graph.nodes if takes_prologues(node)), None)
    if node is None:
        return "nothing here is a scatter or a sort"
    if coded_in(graph) is None:
        return f"{node.op} %{node.name} can be one kernel with elementwise work alone, and with what moves its operands"
    if role_of(node) is Role.SCATTER and not _is_viewed(graph, node.inputs[0]):
        return f"scatter %{node.name} updates %{node.inputs[0].name}, which another kernel has to write first"
    return None


def is_numpys(graph: Graph, node: Node) -> bool:
    """Whether NumPy sorts faster than code on one core after another: long rows, whose equal keys come in any order.

    Its sorts of 32 and 64 bits are vectorised. Many that are short, or one that is soon done, are not worth the call.
    """
    keys = node.inputs[0].type
    extent, is_alone = keys.shape[node.attrs["dimension"]], results_needed(graph, node) == node.outputs[:1]
    is_free = not node.attrs["stable"] or (is_alone and keys.dtype.is_integer)
    is_long = extent > _SHORT_ROW and keys.size >= _SOON_DONE
    return is_free and is_long and (keys.dtype.bits == 64 or (keys.dtype.bits == 32 and is_alone))


def _is_viewed(graph: Graph, value: Value) -> bool:
    """Whether a value is an input, seen through views, or a repeated number."""
    node = graph.producers.get(value)
    while node is not None and is_view(node):
        node = graph.producers.get(node.inputs[0])
    return node is None or is_inlined(node)


@dataclass(frozen=True, slots=True)
class Stored:
    """An element of a buffer."""

    dtype: DType
    buffer: Value
    offset: Affine
    """In elements."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A number that follows from the position (an iota)."""

    dtype: DType
    value: Affine


@dataclass(frozen=True, slots=True)
class Fixed:
    """One number, everywhere."""

    dtype: DType
    value: np.generic


Source = Stored | Counted | Fixed


def source_of(graph: Graph, value: Value, at: tuple[Affine, ...]) -> Source:
    """Where the element `at` of a value comes from, through the views and leaves of `graph`.

    Raises BackendError if something else makes it.
    """
    node = graph.producers.get(value)
    if node is None:
        return Stored(value.type.dtype, value, index.linearize(at, value.type.shape))
    role = role_of(node)
    if role is Role.IOTA:
        return Counted(value.type.dtype, at[node.attrs["iota_dimension"]])
    if role is Role.CONSTANT:
        return Fixed(value.type.dtype, node.attrs["value"].reshape(-1)[0])
    if not role.is_view:
        raise BackendError(f"%{value.name} is made by {node.op}, which is no view; a library kernel computes nothing")
    (piece,) = index_op(node).access([node.inputs[0].type], value.type, node.attrs, at)
    return source_of(graph, node.inputs[0], piece.index)
