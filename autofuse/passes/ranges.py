"""Between which numbers an integer value lies, as far as its expression tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import limits, number_of

Range = tuple[int, int]
"""The least and the greatest number, both included."""

_DEPTH = 6  # operands of operands looked at: the work per question is bounded


def integer_range(value: Value, facts: Facts, depth: int = _DEPTH) -> Range:
    """The numbers `value` can hold: those of its dtype, or fewer. `value` must have an integer dtype or bool."""
    whole = limits(value.type.dtype)
    number = number_of(facts, value)
    if number is not None:
        return int(number), int(number)
    node = facts.producer(value)
    rule = None if node is None else _RULES.get(node.op)
    if node is None or rule is None or depth == 0:
        return whole
    found = rule(node, [_operand_range(operand, facts, depth - 1) for operand in node.inputs])
    inside = found is not None and whole[0] <= found[0] and found[1] <= whole[1]
    return found if found is not None and inside else whole


def _operand_range(value: Value, facts: Facts, depth: int) -> Range | None:
    return None if value.type.dtype.is_float else integer_range(value, facts, depth)


Operands = Sequence[Range | None]


def _positions(node: Node, operands: Operands) -> Range:
    return 0, max(node.attrs["shape"][node.attrs["iota_dimension"]] - 1, 0)


def _found(node: Node, operands: Operands) -> Range:
    return 0, max(node.inputs[0].type.shape[node.attrs["dimension"]] - 1, 0)


def _first(node: Node, operands: Operands) -> Range | None:
    return operands[0]


def _union(node: Node, operands: Operands) -> Range | None:
    """Of all data operands: select's branches, concatenate's parts, pad's array and value."""
    data = operands[1:] if node.op == "select" else operands
    held = [r for r in data if r is not None]
    return (min(a for a, _ in held), max(b for _, b in held)) if held and len(held) == len(data) else None


def _corners(combine: Callable[[int, int], int]) -> Callable[[Node, Operands], Range | None]:
    """For an op whose extremes lie at extremes of its operands."""

    def found(node: Node, operands: Operands) -> Range | None:
        x, y = operands
        if x is None or y is None:
            return None
        corners = [combine(a, b) for a in x for b in y]
        return min(corners), max(corners)

    return found


def _clamped(node: Node, operands: Operands) -> Range | None:
    low, x, high = operands
    if low is None or x is None or high is None:
        return None
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])


def _remainder(node: Node, operands: Operands) -> Range | None:
    """With the sign of the dividend; x % 0 is x."""
    x, y = operands
    if x is None or y is None or y[0] <= 0:
        return None
    most = y[1] - 1
    return (0 if x[0] >= 0 else -most), (0 if x[1] <= 0 else min(most, x[1]))


_RULES: Mapping[str, Callable[[Node, Operands], Range | None]] = {
    "iota": _positions,
    "argmin": _found,
    "argmax": _found,
    **dict.fromkeys(("broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "convert"), _first),
    "optimization_barrier": _first,
    **dict.fromkeys(("select", "concatenate", "pad"), _union),
    "dynamic_slice": _first,
    "gather": _first,
    "add": _corners(lambda a, b: a + b),
    "subtract": _corners(lambda a, b: a - b),
    "multiply": _corners(lambda a, b: a * b),
    "minimum": _corners(min),
    "maximum": _corners(max),
    "clamp": _clamped,
    "remainder": _remainder,
}
