"""Exact rules for sums, products, quotients and powers. Each says why it changes no bit (NaN payloads apart)."""

from __future__ import annotations

import math

import numpy as np

from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import computed, filled, is_float, is_number, is_wide_float, number_of, numbered_sides
from autofuse.passes.rewriting import Call, Expression, Rules, call

_SMALL_POWERS = (2, 3, 4)


def add_nothing(node: Node, facts: Facts) -> Value | None:
    """x + 0 = x for integers; for floats x + -0. = x (x + 0. is not: -0. + 0. is 0.)."""
    nothing = -0.0 if is_float(node) else 0
    return next((x for x, zero, _ in numbered_sides(node, facts) if is_number(facts, zero, nothing)), None)


def add_negated(node: Node, facts: Facts) -> Call | None:
    """x + -y = x - y: IEEE defines one by the other."""
    left, right = node.inputs
    for x, y in ((left, right), (right, left)):
        negation = facts.producer(y, "negate")
        if negation is not None:
            return call("subtract", x, negation.inputs[0])
    return None


def add_bools(node: Node, facts: Facts) -> Call | None:
    """The sum of bools is their or."""
    return call("or", *node.inputs) if node.output.type.dtype.kind == "bool" else None


def merge_integer_numbers(node: Node, facts: Facts) -> Call | None:
    """(x + a) + b = x + (a + b), and so for products: integers wrap."""
    return None if is_float(node) else merge_numbers(node, facts)


def merge_numbers(node: Node, facts: Facts) -> Call | None:
    """(x + a) + b = x + (a + b), (x * a) * b = x * (a * b)."""
    for inner, outer_number, _ in numbered_sides(node, facts):
        producer = facts.producer(inner, node.op)
        if producer is None:
            continue
        for x, inner_number, _ in numbered_sides(producer, facts):
            return call(node.op, x, computed(node.op, facts, inner_number, outer_number))
    return None


def number_last(node: Node, facts: Facts) -> Call | None:
    """a + x = x + a: numbers stand on the right, so that equal expressions look alike."""
    x, y = node.inputs
    return call(node.op, y, x) if facts.splat(x) is not None and facts.splat(y) is None else None


def subtract_nothing(node: Node, facts: Facts) -> Value | None:
    """x - 0 = x; for floats only with 0. (x - -0. is not: -0. - -0. is 0.)."""
    return node.inputs[0] if is_number(facts, node.inputs[1], 0.0 if is_float(node) else 0) else None


def subtract_from_nothing(node: Node, facts: Facts) -> Call | None:
    """0 - x = -x for integers; for floats -0. - x = -x (0. - 0. is 0., not -0.)."""
    x, y = node.inputs
    return call("negate", y) if is_number(facts, x, -0.0 if is_float(node) else 0) else None


def subtract_negated(node: Node, facts: Facts) -> Call | None:
    """x - -y = x + y."""
    negation = facts.producer(node.inputs[1], "negate")
    return None if negation is None else call("add", node.inputs[0], negation.inputs[0])


def subtract_itself(node: Node, facts: Facts) -> Call | None:
    """x - x = 0 for integers (not for NaN and infinities)."""
    x, y = node.inputs
    return filled(0, node.output.type) if x is y and not is_float(node) else None


def subtract_number(node: Node, facts: Facts) -> Call | None:
    """x - a = x + -a for integers, so that sums of numbers meet."""
    x, y = node.inputs
    if is_float(node) or facts.splat(y) is None or facts.splat(x) is not None:
        return None
    return call("add", x, computed("negate", facts, y))


def multiply_by_one(node: Node, facts: Facts) -> Value | None:
    """x * 1 = x."""
    return next((x for x, _, number in numbered_sides(node, facts) if number == 1), None)


def multiply_by_minus_one(node: Node, facts: Facts) -> Call | None:
    """x * -1 = -x."""
    return next((call("negate", x) for x, _, number in numbered_sides(node, facts) if number == -1), None)


def multiply_by_nothing(node: Node, facts: Facts) -> Value | None:
    """x * 0 = 0 for integers (for floats NaN, infinities and negative numbers give others)."""
    if is_float(node):
        return None
    return next((zero for _, zero, number in numbered_sides(node, facts) if number == 0), None)


def multiply_bools(node: Node, facts: Facts) -> Call | None:
    """The product of bools is their and."""
    return call("and", *node.inputs) if node.output.type.dtype.kind == "bool" else None


def multiply_negated(node: Node, facts: Facts) -> Call | None:
    """-x * -y = x * y and -x * a = x * -a: the sign of a product is apart from its magnitude."""
    left, right = (facts.producer(value, "negate") for value in node.inputs)
    if left is not None and right is not None:
        return call(node.op, left.inputs[0], right.inputs[0])
    for x, repeated, _ in numbered_sides(node, facts):
        negation = facts.producer(x, "negate")
        if negation is not None:
            return call("multiply", negation.inputs[0], computed("negate", facts, repeated))
    return None


def square_magnitude(node: Node, facts: Facts) -> Call | None:
    """|x| * |x| = x * x; integers wrap alike."""
    x, y = node.inputs
    magnitude = facts.producer(x, "abs")
    return call("multiply", *magnitude.inputs * 2) if x is y and magnitude is not None else None


def merge_doublings(node: Node, facts: Facts) -> Call | None:
    """(x * 2**a) * 2**b = x * 2**(a + b) for floats and a, b >= 0: scaling up rounds nothing."""
    if not is_float(node):
        return None
    for inner, outer_number, factor in numbered_sides(node, facts):
        producer = facts.producer(inner, "multiply")
        if producer is None or not _is_doubling(factor):
            continue
        for x, inner_number, inner_factor in numbered_sides(producer, facts):
            if _is_doubling(inner_factor) and _fits(inner_factor * factor, node):
                return call("multiply", x, computed("multiply", facts, inner_number, outer_number))
    return None


def _is_doubling(factor: float) -> bool:
    return math.isfinite(factor) and abs(factor) >= 1 and math.frexp(factor)[0] in (0.5, -0.5)


def _fits(number: float, node: Node) -> bool:
    """Whether `number` is a normal number of the node's dtype, held exactly."""
    with np.errstate(all="ignore"):
        held = float(np.array(number).astype(node.output.type.dtype.numpy))
    least = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[node.output.type.dtype.name]
    return held == number and math.isfinite(held) and abs(held) >= least


def divide_by_one(node: Node, facts: Facts) -> Expression | None:
    """x / 1 = x and x / -1 = -x."""
    x, y = node.inputs
    match number_of(facts, y):
        case 1:
            return x
        case -1:
            return call("negate", x)
        case _:
            return None


def divide_by_power_of_two(node: Node, facts: Facts) -> Call | None:
    """x / 2**n = x * 2**-n for floats where 2**-n is a normal number: both round the same real number."""
    x, y = node.inputs
    divisor = number_of(facts, y)
    if not isinstance(divisor, float) or not math.isfinite(divisor) or math.frexp(divisor)[0] not in (0.5, -0.5):
        return None
    return call("multiply", x, filled(1 / divisor, node.output.type)) if _fits(1 / divisor, node) else None


def divide_negated(node: Node, facts: Facts) -> Call | None:
    """-x / -y = x / y and -x / a = x / -a for floats."""
    x, y = node.inputs
    left, right = facts.producer(x, "negate"), facts.producer(y, "negate")
    if not is_float(node) or left is None:
        return None
    if right is not None:
        return call("divide", left.inputs[0], right.inputs[0])
    return call("divide", left.inputs[0], computed("negate", facts, y)) if facts.splat(y) is not None else None


def remainder_by_one(node: Node, facts: Facts) -> Call | None:
    """x % 1 = x % -1 = 0 for integers."""
    if is_float(node) or number_of(facts, node.inputs[1]) not in (1, -1):
        return None
    return filled(0, node.output.type)


def power_by_number(node: Node, facts: Facts) -> Expression | None:
    """x**0 = 1, x**1 = x; for f32 and f64 x**2 = x * x, x**-1 = 1 / x, as NumPy computes them.

    x**.5 is no square root: of -0. and of -inf they differ.
    """
    x, y = node.inputs
    exponent = number_of(facts, y)
    if exponent == 0:
        return filled(1, node.output.type)
    if not is_wide_float(node):
        return _narrow_power(node, x, exponent)
    match exponent:
        case 1:
            return x
        case 2:
            return call("multiply", x, x)
        case -1:
            return call("divide", filled(1, node.output.type), x)
        case _:
            return None


def _narrow_power(node: Node, x: Value, exponent: float | int | None) -> Expression | None:
    """Integers: x**1, x**2, x**3, x**4 by products, which wrap alike. 16-bit floats: only x**1."""
    if exponent == 1:
        return x
    return product_power(x, int(exponent)) if not is_float(node) and exponent in _SMALL_POWERS else None


def product_power(x: Value, exponent: int) -> Call:
    """x**2, x**3 or x**4 by repeated squaring."""
    square = call("multiply", x, x)
    return {2: square, 3: call("multiply", square, x), 4: call("multiply", square, square)}[exponent]


def negate_negated(node: Node, facts: Facts) -> Value | None:
    """-(-x) = x."""
    inner = facts.producer(node.inputs[0], "negate")
    return None if inner is None else inner.inputs[0]


def negate_product(node: Node, facts: Facts) -> Call | None:
    """-(x * a) = x * -a, if nobody else reads the product."""
    inner = facts.producer(node.inputs[0], "multiply")
    if inner is None or not facts.read_once(inner.output):
        return None
    sides = numbered_sides(inner, facts)
    return next((call("multiply", x, computed("negate", facts, repeated)) for x, repeated, _ in sides), None)


def negate_difference(node: Node, facts: Facts) -> Call | None:
    """-(x - y) = y - x for integers (for floats the zero of x - x changes its sign)."""
    inner = facts.producer(node.inputs[0], "subtract")
    return None if inner is None or is_float(node) else call("subtract", *reversed(inner.inputs))


RULES: Rules = {
    "add": (add_bools, number_last, add_nothing, add_negated, merge_integer_numbers),
    "subtract": (subtract_nothing, subtract_from_nothing, subtract_negated, subtract_itself, subtract_number),
    "multiply": (
        *(multiply_bools, number_last, multiply_by_one, multiply_by_minus_one, multiply_by_nothing, multiply_negated),
        *(square_magnitude, merge_integer_numbers, merge_doublings),
    ),
    "divide": (divide_by_one, divide_by_power_of_two, divide_negated),
    "remainder": (remainder_by_one,),
    "power": (power_by_number,),
    "negate": (negate_negated, negate_product, negate_difference),
}
