"""Ops that own regions: while and if. Evaluation receives the operands, then each region's captures in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.interpreter import Routine, run
from autofuse.ir.optable import Family, OpDef, lookup, register
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


def _while(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    condition, body = regions
    count, taken = len(body.inputs), len(condition.captures)
    state, captured = tuple(operands[:count]), operands[count:]
    goes_on, step = Routine(condition), Routine(body)
    while goes_on.run(state, captured[:taken], operands)[0]:
        state = step.run(state, captured[taken:], operands)
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


def _if(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    on_true, on_false = regions
    pred, captured = operands[0], operands[1:]
    taken = len(on_true.captures)
    return run(on_true, (), captured[:taken]) if pred else run(on_false, (), captured[taken:])


def region_flops(region: Graph) -> float:
    """Scalar operations of one run of a region; a loop inside counts as one trip."""
    total = 0.0
    for node in region.nodes:
        entry = lookup(node.op)
        if entry.family is Family.CONTROL:
            total += sum(map(region_flops, node.regions))
        elif entry.flops is None:
            total += node.outputs[0].type.size
        else:
            total += entry.flops(_types(node.inputs), _types(node.outputs), node.attrs)
    return total


register(
    OpDef(
        "while",
        "Runs the body on the state while the condition holds. Regions: condition (state -> bool[]), body (state -> "
        "state); both may read values of the enclosing graph. The cost of its regions is `region_flops` per trip.",
        Family.CONTROL,
        _infer_while,
        _while,
        flops=lambda *_: 0.0,
    )
)
register(
    OpDef(
        "if",
        "The results of the first region if pred holds, else of the second. Regions take no arguments; they read "
        "values of the enclosing graph.",
        Family.CONTROL,
        _infer_if,
        _if,
        arity=1,
        flops=lambda *_: 0.0,
    )
)
