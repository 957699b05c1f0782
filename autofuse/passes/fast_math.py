"""Rules of the fast numerics: equal over the real numbers, not for every NaN, infinity, zero sign or rounding."""

from __future__ import annotations

import math

from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import computed, filled, is_float, is_number, number_of, numbered_sides
from autofuse.passes.rewriting import Call, Rules, call
from autofuse.passes.sums import merge_numbers, product_power


def add_any_zero(node: Node, facts: Facts) -> Value | None:
    """x + 0. = x."""
    return next((x for x, _, number in numbered_sides(node, facts) if number == 0), None)


def subtract_any_zero(node: Node, facts: Facts) -> Value | Call | None:
    """x - 0. = x and 0. - x = -x."""
    x, y = node.inputs
    if number_of(facts, y) == 0:
        return x
    return call("negate", y) if number_of(facts, x) == 0 else None


def subtract_itself(node: Node, facts: Facts) -> Call | None:
    """x - x = 0."""
    x, y = node.inputs
    return filled(0, node.output.type) if x is y else None


def multiply_by_zero(node: Node, facts: Facts) -> Call | None:
    """x * 0. = 0."""
    found = any(number == 0 for _, _, number in numbered_sides(node, facts))
    return filled(0, node.output.type) if found else None


def subtract_number(node: Node, facts: Facts) -> Call | None:
    """x - a = x + -a, so that sums of numbers meet."""
    x, y = node.inputs
    known = facts.splat(y) is not None and facts.splat(x) is None
    return call("add", x, computed("negate", facts, y)) if known else None


def divide_by_number(node: Node, facts: Facts) -> Call | None:
    """x / a = x * (1 / a) for finite a that is not 0."""
    divisor = number_of(facts, node.inputs[1])
    if not is_float(node) or not divisor or not math.isfinite(divisor):
        return None
    return call("multiply", node.inputs[0], filled(1 / divisor, node.output.type))


def divide_by_repeated(node: Node, facts: Facts) -> Call | None:
    """x / y = x * (1 / y) where y repeats elements: one division for all that share it."""
    x, y = node.inputs
    repeated = facts.producer(y, "broadcast_in_dim")
    if repeated is None or not is_float(node) or facts.splat(y) is not None:
        return None
    (divisor,) = repeated.inputs
    if divisor.type.size >= y.type.size:
        return None
    inverse = call("divide", filled(1, divisor.type), divisor)
    return call("multiply", x, call("broadcast_in_dim", inverse, **repeated.attrs))


def divide_by_root(node: Node, facts: Facts) -> Call | None:
    """x / sqrt(y) = x * rsqrt(y); 1 / sqrt(y) = rsqrt(y)."""
    x, y = node.inputs
    root = facts.producer(y, "sqrt")
    if root is None:
        return None
    inverse = call("rsqrt", *root.inputs)
    return inverse if is_number(facts, x, 1) else call("multiply", x, inverse)


def power_by_product(node: Node, facts: Facts) -> Call | None:
    """x**2, x**3, x**4 by products, x**.5 = sqrt(x), x**-.5 = rsqrt(x)."""
    x, y = node.inputs
    exponent = number_of(facts, y)
    if exponent in (2, 3, 4):
        return product_power(x, int(exponent))
    root = {0.5: "sqrt", -0.5: "rsqrt"}.get(exponent or 0)
    return None if root is None else call(root, x)


def log_of_sum(node: Node, facts: Facts) -> Call | None:
    """log(1 + x) = log1p(x)."""
    inner = facts.producer(node.inputs[0], "add")
    if inner is None:
        return None
    return next((call("log1p", x) for x, _, number in numbered_sides(inner, facts) if number == 1), None)


def add_minus_one(node: Node, facts: Facts) -> Call | None:
    """exp(x) + -1 = expm1(x)."""
    for x, _, number in numbered_sides(node, facts):
        exp = facts.producer(x, "exp")
        if exp is not None and number == -1:
            return call("expm1", *exp.inputs)
    return None


RULES: Rules = {
    "add": (add_any_zero, add_minus_one, merge_numbers),
    "subtract": (subtract_any_zero, subtract_itself, subtract_number),
    "multiply": (multiply_by_zero, merge_numbers),
    "divide": (divide_by_number, divide_by_root, divide_by_repeated),
    "power": (power_by_product,),
    "log": (log_of_sum,),
}
