"""Rules of `custom_call`, by the name of its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.frontend.stablehlo import elementwise
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.linearalgebra import is_lapack, lapack_call
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import OUTSIDE, UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.frontend.stablehlo.sorting import first_by_comparator
from autofuse.ir.graph import Value

_PLACEMENT = frozenset(("Sharding", "annotate_device_placement", "LayoutConstraint"))
"""Annotations: on one device the operand as it is."""
_APPROXIMATE = "ApproxTopK"
_SEVERAL_DEVICES = frozenset(("SPMDFullToShardShape", "SPMDShardToFullShape"))


def _custom_call(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    target = operation.word("call_target_name")
    if target in _PLACEMENT:
        return operation.operands[:1]
    if target in elementwise.RULES:  # `mhlo.erf`, as artifacts write operations that are not StableHLO's own
        return elementwise.RULES[target](operation, emitter)
    if target == _APPROXIMATE:
        return first_by_comparator(operation, emitter)
    computed = lapack_call(target, operation, emitter)
    if computed is not None:
        return computed
    if target in _SEVERAL_DEVICES:
        raise UnsupportedOperation(f"@{target} divides arrays over several devices", "export the program for one")
    if "callback" in target:
        raise UnsupportedOperation(f"@{target} calls back into Python, and a plan does not", OUTSIDE)
    raise UnsupportedOperation(f"calls @{target}, which autofuse does not have", OUTSIDE)


def is_known(target: str) -> bool:
    """Whether calls of a target are translated."""
    return target in _PLACEMENT or target in elementwise.RULES or target == _APPROXIMATE or is_lapack(target)


RULES: Mapping[str, Rule] = {"stablehlo.custom_call": _custom_call}
