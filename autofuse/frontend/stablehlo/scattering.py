"""The rule of `scatter`, by the combiner that its body is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.frontend.stablehlo.bodies import body_of, combiner_of
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value

_NAMES: Mapping[str, str] = {
    "update_window_dims": "update_window_dims",
    "inserted_window_dims": "inserted_window_dims",
    "input_batching_dims": "input_batching_dims",
    "scatter_indices_batching_dims": "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims": "scattered_dims_to_operand_dims",
}
"""Attributes of the op table, and what the bindings call them."""
_OF_BOOL: Mapping[str, str] = {"or": "maximum", "and": "minimum"}


def _scatter(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    count = len(operation.operands) // 2
    arrays, indices, updates = operation.operands[:count], operation.operands[count], operation.operands[count + 1 :]
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in (*arrays, *updates)])
    numbers = operation.dimensions("scatter_dimension_numbers", "ScatterDimensionNumbers")
    attrs = {name: tuple(getattr(numbers, theirs)) for name, theirs in _NAMES.items()}
    results: list[Value] = []
    for number, (x, update) in enumerate(zip(arrays, updates, strict=True)):
        combiner = _combiner(body, number, count, x.type.dtype)
        index_vector_dim = int(numbers.index_vector_dim)
        results.append(
            emitter.emit("scatter", x, indices, update, **attrs, index_vector_dim=index_vector_dim, combiner=combiner)
        )
    return results


def _combiner(body: Graph, number: int, count: int, dtype: DType) -> str:
    """How an update meets the element. Raises UnsupportedOperation for a body that the op table has no name for."""
    if body.outputs[number] is body.inputs[number + count]:
        return "set"
    combiner = combiner_of(body, dtype, number)
    combiner = _OF_BOOL.get(combiner or "", combiner) if dtype.kind == "bool" else combiner
    if combiner in ("add", "multiply", "minimum", "maximum"):
        return combiner
    raise UnsupportedOperation(
        "has a body that is neither the update alone nor a sum, product, minimum or maximum of both",
        "gather the elements, combine them, and scatter the results",
    )


RULES: Mapping[str, Rule] = {"stablehlo.scatter": _scatter}
