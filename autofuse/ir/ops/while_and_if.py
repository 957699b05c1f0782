"""Ops that own regions: while and if."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import OpDef, Region, Role
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
