"""Rules of operations that make, place and choose elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Value


def _constant(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.constant(operation.array("value")),)


def _iota(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    type_, dimension = operation.type, operation.integer("iota_dimension")
    part = type_.dtype.part if type_.dtype.is_complex else type_.dtype
    numbers = emitter.emit("iota", shape=type_.shape, dtype=part, iota_dimension=dimension)
    return (emitter.converted(numbers, type_.dtype),)


def _broadcast_in_dim(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    x, dimensions = operation.operands[0], operation.integers("broadcast_dimensions", ())
    shape = operation.type.shape
    return (emitter.emit("broadcast_in_dim", x, shape=shape, broadcast_dimensions=dimensions),)


def _broadcast(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    shape = operation.type.shape
    dimensions = range(len(shape) - x.type.rank, len(shape))
    return (emitter.emit("broadcast_in_dim", x, shape=shape, broadcast_dimensions=tuple(dimensions)),)


def _reshape(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.emit("reshape", operation.operands[0], shape=operation.type.shape),)


def _transpose(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    return (emitter.emit("transpose", x, permutation=operation.integers("permutation")),)


def _reverse(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    return (emitter.emit("reverse", x, dimensions=operation.integers("dimensions")),)


def _slice(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    names = ("start_indices", "limit_indices", "strides")
    return (emitter.emit("slice", x, **{name: operation.integers(name) for name in names}),)


def _pad(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return (emitter.emit("pad", *operation.operands, **{name: operation.integers(name) for name in names}),)


def _concatenate(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.emit("concatenate", *operation.operands, dimension=operation.integer("dimension")),)


def _dynamic_slice(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.emit("dynamic_slice", *operation.operands, slice_sizes=operation.integers("slice_sizes")),)


def _dynamic_update_slice(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.emit("dynamic_update_slice", *operation.operands),)


def _gather(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    numbers = operation.dimensions("dimension_numbers", "GatherDimensionNumbers")
    names = (
        *("offset_dims", "collapsed_slice_dims", "operand_batching_dims"),
        *("start_indices_batching_dims", "start_index_map"),
    )
    held = {name: tuple(getattr(numbers, name)) for name in names}
    sizes = operation.integers("slice_sizes")
    index_vector_dim = int(numbers.index_vector_dim)
    value = emitter.emit("gather", *operation.operands, **held, index_vector_dim=index_vector_dim, slice_sizes=sizes)
    return (value,)


def _dimension_size(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.scalar(operation.operands[0].type.shape[operation.integer("dimension")], dtypes.I32),)


RULES: Mapping[str, Rule] = {
    "stablehlo.broadcast": _broadcast,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    # of those with `dynamic`, the result's type says what the operand for the shape does
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
