"""Library kernels that code is generated for: they call nothing, though nothing is fused with them.

What they read, they read through views: where an element lies in a buffer, or which number it is, is a `Source`.
"""

from __future__ import annotations

import numpy as np

from autofuse.errors import BackendError
from autofuse.fusion.candidate import is_inlined, is_view
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.lazydataclass import dataclass


def scatter_in(graph: Graph) -> Node | None:
    """The node of a graph that is one scatter, of views of inputs and of repeated numbers; None for any other graph."""
    real = [node for node in graph.nodes if not (is_view(node) or is_inlined(node))]
    return real[0] if len(real) == 1 and role_of(real[0]) is Role.SCATTER and graph.outputs == real[0].outputs else None


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


def has_lanes(source: Source, symbol: Symbol) -> bool:
    """Whether elements along `symbol` are neighbours in memory, or all the same."""
    match source:
        case Fixed():
            return True
        case Stored(offset=value) if follows(value, symbol):
            return True
        case Stored(offset=value) | Counted(value=value):
            return symbol not in index.symbols_of(value)


def follows(offset: Affine, symbol: Symbol) -> bool:
    """Whether steps along `symbol` are steps of one element."""
    rest = offset - index.of(symbol)
    return symbol not in index.symbols_of(rest)
