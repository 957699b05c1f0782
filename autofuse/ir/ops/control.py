"""Ops that own regions: scan, while and if."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_BOOL = TensorType((), dtypes.BOOL)


def _types(graph_values: Sequence[Any]) -> tuple[TensorType, ...]:
    return tuple(value.type for value in graph_values)


def _text(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def _check_region(
    op: str, name: str, region: Graph, inputs: Sequence[TensorType], outputs: Sequence[TensorType]
) -> None:
    for what, found, required in (("take", region.inputs, inputs), ("return", region.outputs, outputs)):
        if _types(found) != tuple(required):
            raise GraphError(f"{op}: the {name} region must {what} {_text(required)}, got {_text(_types(found))}")


def _infer_scan(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    length, count = attrs["length"], attrs["carries"]
    if len(regions) != 1:
        raise GraphError(f"scan: needs one region, the body; got {len(regions)}")
    if length < 1:
        raise GraphError(f"scan: attribute length must be at least 1, got {length}; a loop that never runs is no node")
    if not 0 <= count <= len(operands):
        raise GraphError(f"scan: attribute carries must be 0..{len(operands)}, the number of operands; got {count}")
    carries, sequences = tuple(operands[:count]), operands[count:]
    for number, type_ in enumerate(sequences, count):
        if type_.shape[:1] != (length,):
            raise GraphError(f"scan: operand {number} must have {length} rows, one for each iteration; got {type_}")
    (body,) = regions
    rows = tuple(TensorType(type_.shape[1:], type_.dtype) for type_ in sequences)
    _check_region("scan", "body", body, (*carries, *rows), (*carries, *_types(body.outputs[count:])))
    if not body.outputs:
        raise GraphError("scan: the body region must return at least one carry or row, got none")
    return (*carries, *(TensorType((length, *row.shape), row.dtype) for row in _types(body.outputs[count:])))


def _scan(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    (body,) = regions
    length, count = attrs["length"], attrs["carries"]
    state, sequences = tuple(operands[:count]), operands[count:]
    stacked: list[Array] = []
    for i in range(length)[:: -1 if attrs["reverse"] else 1]:
        results = body((*state, *(array[i, ...] for array in sequences)))
        state, rows = results[:count], results[count:]
        if not stacked:
            stacked = [np.empty((length, *row.shape), row.dtype) for row in rows]
        for array, row in zip(stacked, rows, strict=True):
            array[i] = row
    return (*state, *stacked)


def _infer_while(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if len(regions) != 2 or not operands:
        raise GraphError(
            "while: needs at least one state operand and two regions, condition and body; "
            f"got {len(operands)} operands, {len(regions)} regions"
        )
    _check_region("while", "condition", regions[0], operands, (_BOOL,))
    _check_region("while", "body", regions[1], operands, operands)
    return tuple(operands)


def _while(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    goes_on, step = regions
    state = tuple(operands)
    while goes_on(state)[0]:
        state = step(state)
    return state


def _infer_if(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    if operands[0] != _BOOL:
        raise GraphError(f"if: operand pred must be bool[], got {operands[0]}")
    if len(regions) != 2 or not regions[0].outputs:
        raise GraphError(f"if: needs two regions with at least one result, got {len(regions)} regions")
    results = _types(regions[0].outputs)
    _check_region("if", "true", regions[0], (), results)
    _check_region("if", "false", regions[1], (), results)
    return results


def _if(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    on_true, on_false = regions
    return on_true(()) if operands[0] else on_false(())


OPS = (
    OpDef(
        name="scan",
        doc="Runs the body `length` times. The first `carries` operands are the state before the first iteration; of "
        "each other one, iteration i gets row i. Region: body (state, rows -> state, new rows), which may read values "
        "of the enclosing graph. Results: the state after the last iteration, then the new rows of all, stacked.",
        role=Role.COUNTED_LOOP,
        infer=_infer_scan,
        evaluate=_scan,
        code=1,
        attrs={
            "length": AttrSpec("int", "number of iterations, at least 1"),
            "carries": AttrSpec("int", "operands, and results, that are state"),
            "reverse": AttrSpec("bool", "whether the last row comes first"),
            "unrolled": AttrSpec("int", "iterations of the program that are one, if some were joined", optional=True),
        },
    ),
    OpDef(
        name="while",
        doc="Runs the body on the state while the condition holds. Regions: condition (state -> bool[]), body (state "
        "-> state); both may read values of the enclosing graph.",
        role=Role.LOOP,
        infer=_infer_while,
        evaluate=_while,
        code=1,
    ),
    OpDef(
        name="if",
        doc="The results of the first region if pred holds, else of the second. Regions take no arguments; they read "
        "values of the enclosing graph.",
        role=Role.BRANCH,
        infer=_infer_if,
        evaluate=_if,
        code=1,
        arity=1,
    ),
)
