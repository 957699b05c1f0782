"""Elements of what a library kernel reads through views: where in its buffers they lie, or which number they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autofuse.errors import BackendError
from autofuse.ir import index
from autofuse.ir.dtypes import I64, DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.offsets import scalar_index
from autofuse.targets.cpu.codegen.values import Group
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.scalars import emit_constant, emit_load_conversion, emit_map, emit_splat


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


@dataclass(frozen=True, slots=True)
class Reader:
    """Emits reads of sources in one function."""

    fn: FunctionText
    bases: Mapping[Value, str]
    """Pointers to element 0 of the buffers."""

    def address(self, source: Stored, group: Group) -> str:
        """Pointer to the element."""
        element = Vec(source.dtype, 1).memory_element
        offset = scalar_index(self.fn, source.offset, group)
        return self.fn.emit(f"getelementptr {element}, ptr {self.bases[source.buffer]}, i64 {offset}")

    def read(self, source: Source, group: Group) -> str:
        """One element, as a register holds it."""
        match source:
            case Fixed(dtype, value):
                return emit_constant(dtype, value)
            case Counted(dtype, value):
                position = scalar_index(self.fn, value, group)
                return position if dtype == I64 else emit_map(self.fn, "convert", (position,), (I64,), dtype, 1)
            case Stored(dtype):
                return self.load(self.address(source, group), dtype, 1)

    def lanes(self, source: Source, group: Group, symbol: Symbol, lanes: int) -> str:
        """`lanes` elements that follow each other along `symbol`, which stands for the first; see `has_lanes`."""
        if isinstance(source, Stored) and follows(source.offset, symbol):
            return self.load(self.address(source, group), source.dtype, lanes)
        return emit_splat(self.fn, self.read(source, group), source.dtype, lanes)

    def load(self, address: str, dtype: DType, lanes: int) -> str:
        """What lies at an address, as a register holds it."""
        loaded = self.fn.emit(f"load {Vec(dtype, lanes).memory}, ptr {address}, align {dtype.itemsize}")
        return emit_load_conversion(self.fn, loaded, dtype, lanes)


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
