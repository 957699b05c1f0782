"""The rule of `scatter`: by the combiner that its body is, or by reading, combining and writing for any other body."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.stablehlo.bodies import body_of, combiner_of
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.frontend.stablehlo.updating import updated
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.ops.scatter import roles_of

_NAMES: Mapping[str, str] = {
    "update_window_dims": "update_window_dims",
    "inserted_window_dims": "inserted_window_dims",
    "input_batching_dims": "input_batching_dims",
    "scatter_indices_batching_dims": "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims": "scattered_dims_to_operand_dims",
}
"""Attributes of the op table, and what the bindings call them."""
_FEW = 64
"""Elements of an array that a loop holds in registers."""
_OF_BOOL: Mapping[str, str] = {"or": "maximum", "and": "minimum"}


def _scatter(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    count = len(operation.operands) // 2
    arrays, indices, updates = operation.operands[:count], operation.operands[count], operation.operands[count + 1 :]
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in (*arrays, *updates)])
    numbers = operation.dimensions("scatter_dimension_numbers", "ScatterDimensionNumbers")
    attrs: dict[str, Any] = {name: tuple(getattr(numbers, theirs)) for name, theirs in _NAMES.items()}
    attrs["index_vector_dim"] = int(numbers.index_vector_dim)
    combiners = [_combiner(body, number, count, x.type.dtype) for number, x in enumerate(arrays)]
    results: list[Value] = []
    for x, update, combiner in zip(arrays, updates, combiners, strict=True):
        if combiner is None:
            unique = operation.flag("unique_indices", default=False)
            return updated(body, arrays, indices, updates, attrs, emitter, unique=unique)
        added = emitter.emit("negate", update) if combiner == "subtract" else update
        named = "add" if combiner == "subtract" else combiner
        made = _of_few(x, indices, added, attrs, named, emitter)
        results.append(made or emitter.emit("scatter", x, indices, added, **attrs, combiner=named))
    return results


def _of_few(
    x: Value, indices: Value, updates: Value, attrs: Mapping[str, Any], combiner: str, emitter: Emitter
) -> Value | None:
    """One update of whole rows of a small array, as a choice between elements; None for any other scatter.

    So a loop whose steps fill such an array (the stages of a Runge-Kutta method) is scalar code.
    """
    shape, roles = x.type.shape, roles_of(attrs, x.type.rank, indices.type.rank)
    rows = tuple(1 if axis in roles.index_map else extent for axis, extent in enumerate(shape))
    is_one = indices.type.size == len(roles.index_map) and updates.type.size == math.prod(rows)
    if not is_one or not 0 < x.type.size <= _FEW or roles.operand_batching:
        return None
    vector = emitter.emit("reshape", indices, shape=(indices.type.size,))
    hit: Value | None = None
    for number, axis in enumerate(roles.index_map):
        at = emitter.emit("slice", vector, start_indices=(number,), limit_indices=(number + 1,), strides=(1,))
        place = emitter.emit("iota", shape=shape, dtype=indices.type.dtype, iota_dimension=axis)
        same = emitter.emit("compare", place, emitter.along(at, axis, shape), direction="EQ")
        hit = same if hit is None else emitter.emit("and", hit, same)
    if hit is None:
        return None
    update = emitter.emit("reshape", updates, shape=rows)
    spread = emitter.emit("broadcast_in_dim", update, shape=shape, broadcast_dimensions=tuple(range(len(shape))))
    met = spread if combiner == "set" else emitter.emit(combiner, x, spread)
    return emitter.emit("select", hit, met, x)


def _combiner(body: Graph, number: int, count: int, dtype: DType) -> str | None:
    """How an update meets the element: a combiner of the op table's, or subtract; None for any other body."""
    element, update = body.inputs[number], body.inputs[number + count]
    if body.outputs[number] is update:
        return "set"
    made = body.producers.get(body.outputs[number])
    if made is not None and made.op == "subtract" and made.inputs == (element, update):
        return "subtract"
    combiner = combiner_of(body, dtype, number)
    combiner = _OF_BOOL.get(combiner or "", combiner) if dtype.kind == "bool" else combiner
    return combiner if combiner in ("add", "multiply", "minimum", "maximum") else None


RULES: Mapping[str, Rule] = {"stablehlo.scatter": _scatter}
