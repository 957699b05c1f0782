"""Rules of `custom_call`, by the name of its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autofuse.frontend.stablehlo import elementwise
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import OUTSIDE, UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret

_PLACEMENT = frozenset(("Sharding", "annotate_device_placement", "LayoutConstraint"))
"""Annotations: on one device the operand as it is."""
_SEVERAL_DEVICES = frozenset(("SPMDFullToShardShape", "SPMDShardToFullShape"))
_ASSERTION = "shape_assertion"


def _custom_call(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    target = operation.word("call_target_name")
    if target in _PLACEMENT:
        return operation.operands[:1]
    if target == _ASSERTION:
        return _asserted(operation, emitter)
    if target in elementwise.RULES:  # `mhlo.erf`, as artifacts write operations that are not StableHLO's own
        return elementwise.RULES[target](operation, emitter)
    if target in _SEVERAL_DEVICES:
        raise UnsupportedOperation(f"@{target} divides arrays over several devices", "export the program for one")
    if "callback" in target:
        raise UnsupportedOperation(f"@{target} calls back into Python, and a plan does not", OUTSIDE)
    raise UnsupportedOperation(f"calls @{target}, which autofuse does not have", OUTSIDE)


def _asserted(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """Nothing, for shapes that are as the program demands."""
    holds = _known(operation.operands[0], emitter)
    if holds is None:
        raise UnsupportedOperation("checks shapes that are not known", "export the program for fixed shapes")
    if not holds:
        message = operation.word("error_message", "the shapes of the arguments do not fit together")
        for number, value in enumerate(operation.operands[1:]):
            message = message.replace(f"{{{number}}}", str(_known(value, emitter)))
        raise UnsupportedOperation(f"demands of the shapes: {message}", "give arguments of other shapes")
    return ()


def _known(value: Value, emitter: Emitter) -> object:
    """The number that a scalar is, where it depends on no argument; else None."""
    graph = emitter.builder.finish([value])
    needed, nodes = {value}, []
    for node in reversed(graph.nodes):
        if any(output in needed for output in node.outputs):
            nodes.append(node)
            needed |= {*graph.reads(node)}
    if needed & {*graph.inputs, *graph.captures}:
        return None
    (array,) = interpret(Graph("assertion", (), tuple(reversed(nodes)), (value,)))
    return np.asarray(array)[()]


RULES: Mapping[str, Rule] = {"stablehlo.custom_call": _custom_call}
