"""Exact rules for bits, comparisons and choices."""

from __future__ import annotations

from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import filled, is_float, limits, number_of, numbered_sides
from autofuse.passes.ranges import integer_range
from autofuse.passes.rewriting import Call, Expression, Rules, call
from autofuse.passes.sums import number_last

_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")


def not_not(node: Node, facts: Facts) -> Value | None:
    """not not x = x."""
    inner = facts.producer(node.inputs[0], "not")
    return None if inner is None else inner.inputs[0]


def not_compared(node: Node, facts: Facts) -> Call | None:
    """not (x < y) = x >= y where there is no NaN; not (x == y) = x != y always."""
    inner = facts.producer(node.inputs[0], "compare")
    if inner is None or (is_float(inner) and inner.attrs["direction"] not in ("EQ", "NE")):
        return None
    return call("compare", *inner.inputs, direction=_OPPOSITE[inner.attrs["direction"]])


def and_or_itself(node: Node, facts: Facts) -> Value | None:
    """x & x = x | x = x."""
    x, y = node.inputs
    return x if x is y else None


def and_or_opposite(node: Node, facts: Facts) -> Call | None:
    """x & ~x = 0, x | ~x = ~0."""
    x, y = node.inputs
    for value, other in ((x, y), (y, x)):
        inner = facts.producer(other, "not")
        if inner is not None and inner.inputs[0] is value:
            return filled(_all_ones(node) if node.op == "or" else 0, node.output.type)
    return None


def bits_with_number(node: Node, facts: Facts) -> Expression | None:
    """With 0 and with all ones: & gives 0 and x, | gives x and all ones, ^ gives x and ~x."""
    ones = _all_ones(node)
    for x, repeated, number in numbered_sides(node, facts):
        if number not in (0, ones):
            continue
        match node.op:
            case "and":
                return repeated if number == 0 else x
            case "or":
                return x if number == 0 else repeated
            case _:
                return x if number == 0 else call("not", x)
    return None


def xor_itself(node: Node, facts: Facts) -> Call | None:
    """x ^ x = 0."""
    x, y = node.inputs
    return filled(0, node.output.type) if x is y else None


def _all_ones(node: Node) -> int:
    dtype = node.output.type.dtype
    return -1 if dtype.kind == "int" else limits(dtype)[1]


def shift_by_number(node: Node, facts: Facts) -> Expression | None:
    """A shift by 0 is x; a shift left or logically right by the width or more, or by a negative number, is 0."""
    x, y = node.inputs
    amount = number_of(facts, y)
    if amount == 0:
        return x
    if amount is None or node.op == "shift_right_arithmetic" or 0 < amount < node.output.type.dtype.bits:
        return None
    return filled(0, node.output.type)


def shift_nothing(node: Node, facts: Facts) -> Value | None:
    """Shifting 0 gives 0."""
    return node.inputs[0] if number_of(facts, node.inputs[0]) == 0 else None


def compare_itself(node: Node, facts: Facts) -> Call | None:
    """x < x, x > x are false; x == x, x <= x, x >= x true and x != x false where there is no NaN."""
    x, y = node.inputs
    direction = node.attrs["direction"]
    if x is not y or (is_float(node) and direction not in ("LT", "GT")):
        return None
    return filled(direction in ("EQ", "LE", "GE"), node.output.type)


def compare_ranges(node: Node, facts: Facts) -> Call | None:
    """Integers whose ranges do not meet compare the same everywhere; none is below the least of its dtype."""
    if is_float(node):
        return None
    (low, high), (least, greatest) = (integer_range(value, facts) for value in node.inputs)
    below, not_above = high < least, high <= least
    above, not_below = low > greatest, low >= greatest
    apart = below or above
    known = {
        "LT": (below, not_below),
        "LE": (not_above, above),
        "GT": (above, not_above),
        "GE": (not_below, below),
        "EQ": (False, apart),
        "NE": (apart, False),
    }
    always, never = known[node.attrs["direction"]]
    return filled(always, node.output.type) if always or never else None


def compare_bool(node: Node, facts: Facts) -> Expression | None:
    """b == true is b, b == false is not b; != the other way round."""
    if node.inputs[0].type.dtype.kind != "bool" or node.attrs["direction"] not in ("EQ", "NE"):
        return None
    for b, _, number in numbered_sides(node, facts):
        return b if bool(number) == (node.attrs["direction"] == "EQ") else call("not", b)
    return None


def select_known(node: Node, facts: Facts) -> Value | None:
    """A known predicate chooses; equal branches need none."""
    pred, on_true, on_false = node.inputs
    chosen = number_of(facts, pred)
    if chosen is not None:
        return on_true if chosen else on_false
    return on_true if on_true is on_false else None


def select_equal_numbers(node: Node, facts: Facts) -> Value | None:
    """Branches that repeat one value, bit for bit."""
    left, right = (facts.splat(value) for value in node.inputs[1:])
    same = left is not None and right is not None and left.tobytes() == right.tobytes()
    return node.inputs[1] if same else None


def select_bool(node: Node, facts: Facts) -> Expression | None:
    """select(p, true, false) = p and select(p, false, true) = not p."""
    if node.output.type.dtype.kind != "bool":
        return None
    match [number_of(facts, value) for value in node.inputs[1:]]:
        case [1, 0]:
            return node.inputs[0]
        case [0, 1]:
            return call("not", node.inputs[0])
        case _:
            return None


def select_not(node: Node, facts: Facts) -> Call | None:
    """select(not p, x, y) = select(p, y, x)."""
    pred, on_true, on_false = node.inputs
    inner = facts.producer(pred, "not")
    return None if inner is None else call("select", inner.inputs[0], on_false, on_true)


def select_nested(node: Node, facts: Facts) -> Call | None:
    """A branch that asks the same predicate again knows the answer."""
    pred, on_true, on_false = node.inputs
    inner = facts.producer(on_true, "select")
    if inner is not None and inner.inputs[0] is pred:
        return call("select", pred, inner.inputs[1], on_false)
    inner = facts.producer(on_false, "select")
    if inner is not None and inner.inputs[0] is pred:
        return call("select", pred, on_true, inner.inputs[2])
    return None


RULES: Rules = {
    "not": (not_not, not_compared),
    "and": (number_last, and_or_itself, and_or_opposite, bits_with_number),
    "or": (number_last, and_or_itself, and_or_opposite, bits_with_number),
    "xor": (number_last, xor_itself, bits_with_number),
    **dict.fromkeys(_SHIFTS, (shift_by_number, shift_nothing)),
    "compare": (compare_itself, compare_ranges, compare_bool),
    "select": (select_known, select_equal_numbers, select_bool, select_not, select_nested),
}
