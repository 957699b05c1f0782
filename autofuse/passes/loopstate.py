"""Loops with less state: what never changes, what nobody reads, and counters leave it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autofuse.ir.graph import Node, Value
from autofuse.ir.types import TensorType
from autofuse.passes.facts import Facts
from autofuse.passes.loopediting import Carry, Loop, Row, reads
from autofuse.passes.matching import limits, number_of


def drop_unchanged(loop: Loop) -> None:
    """A part of the state that every iteration hands on as it came is what it was at first."""
    for carry in list(loop.carries):
        if carry.next in (carry.given, carry.initial):
            loop.results[carry.last] = carry.initial
            loop.drop_carry(carry, always=carry.initial)


def drop_dead(loop: Loop, read: Collection[Value]) -> None:
    """Parts of the state, rows and stacks that no result in `read` needs go."""
    for stack in [stack for stack in loop.stacks if stack.stacked not in read]:
        loop.stacks.remove(stack)
        loop.changed = True
    needed = _needed(loop, read)
    for carry in [carry for carry in loop.carries if carry not in needed]:
        loop.drop_carry(carry)
    inside = _read_by([stack.row for stack in loop.stacks] + [carry.next for carry in loop.carries], loop.nodes)
    for row in [row for row in loop.rows if row.row not in inside]:
        loop.rows.remove(row)
        loop.changed = True


def _needed(loop: Loop, read: Collection[Value]) -> list[Carry]:
    """The parts of the state that results in `read`, or the condition, depend on."""
    tested = _read_by(loop.condition.outputs, loop.condition.nodes) if loop.condition else set[Value]()
    wanted = [carry for carry in loop.carries if carry.last in read or carry.tested in tested]
    while True:
        inside = _read_by([stack.row for stack in loop.stacks] + [carry.next for carry in wanted], loop.nodes)
        grown = [carry for carry in loop.carries if carry in wanted or carry.given in inside]
        if len(grown) == len(wanted):
            return wanted
        wanted = grown


def _read_by(values: Collection[Value], nodes: Collection[Node]) -> set[Value]:
    """These values, and all that they are computed from."""
    needed = set(values)
    for node in reversed(list(nodes)):
        if any(value in needed for value in node.outputs):
            needed.update(reads(node))
    return needed


def count_iterations(loop: Loop) -> None:
    """A `while` whose condition compares a counter to a number runs a known number of times: it becomes a `scan`."""
    count = _trips(loop) if loop.condition is not None else None
    if count is None:
        return
    loop.condition, loop.length = None, count
    loop.changed = True
    for carry in loop.carries:
        carry.tested = None
    if count == 0:
        loop.results.update({carry.last: carry.initial for carry in loop.carries})


def _trips(loop: Loop) -> int | None:
    """How many times a `while` runs, where a counter that steps from a known number decides it."""
    assert loop.condition is not None
    facts = Facts({})
    for node in loop.condition.nodes:
        facts.add(node)
    compare = facts.producer(loop.condition.outputs[0], "compare")
    if compare is None:
        return None
    sides = [
        (*compare.inputs, compare.attrs["direction"]),
        (*compare.inputs[::-1], _SWAPPED[compare.attrs["direction"]]),
    ]
    for counter, limit, direction in sides:
        carry = next((carry for carry in loop.carries if carry.tested is counter), None)
        end = number_of(facts, limit)
        if carry is not None and end is not None and carry.given.type.dtype.kind in ("int", "uint"):
            return _steps(carry, direction, int(end), loop)
    return None


_SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE", "EQ": "EQ"}


def _steps(carry: Carry, direction: str, end: int, loop: Loop) -> int | None:
    """How often `counter DIRECTION end` holds before it first does not; None if that is not known."""
    start, step = number_of(loop.outer, carry.initial), _step(carry, loop.inner())
    if start is None or step is None:
        return None
    start = int(start)
    low, high = limits(carry.given.type.dtype)
    if direction in ("GT", "GE"):
        start, step, end, (low, high) = -start, -step, -end, (-high, -low)
    if direction in ("LE", "GE"):
        end += 1
    if direction == "NE":
        sign = 1 if step > 0 else -1
        start, step, end, (low, high) = sign * start, sign * step, sign * end, sorted((sign * low, sign * high))
        if start > end or step == 0 or (end - start) % step:
            return None
    if direction == "EQ":
        return 0 if start != end else None
    if start >= end:
        return 0
    if step <= 0:
        return None
    count = -((start - end) // step)
    return count if low <= start + count * step <= high else None


def _step(carry: Carry, facts: Facts) -> int | None:
    """What an iteration adds to an integer."""
    node = facts.producer(carry.next, "add", "subtract")
    if node is None:
        return None
    first, second = node.inputs
    if node.op == "add" and second is carry.given:
        first, second = second, first
    number = number_of(facts, second)
    if first is not carry.given or number is None:
        return None
    return int(number) if node.op == "add" else -int(number)


def counters_to_rows(loop: Loop) -> None:
    """In a `scan`, a scalar that a constant is added to becomes the rows of a progression.

    Integers wrap around, so `initial + i * step` is what adding gives.
    """
    if loop.length is None:
        return
    for carry in list(loop.carries):
        step = _step(carry, loop.inner()) if carry.given.type.dtype.kind in ("int", "uint") else None
        if step is None or carry.given.type.shape != ():
            continue
        loop.carries.remove(carry)
        loop.rows.append(Row(_numbers(loop, carry.initial, step), carry.given))
        loop.after("add", carry.initial, _number(loop, loop.length * step, carry.last.type), output=carry.last)


def _numbers(loop: Loop, initial: Value, step: int) -> Value:
    """`initial + i * step` for all iterations, in the order of rows."""
    assert loop.length is not None
    shape, dtype = (loop.length,), initial.type.dtype
    type_ = TensorType(shape, dtype)
    numbers = loop.before("iota", shape=shape, dtype=dtype, iota_dimension=0)
    if loop.reverse:
        numbers = loop.before("reverse", numbers, dimensions=(0,))
    if step != 1:
        numbers = loop.before("multiply", numbers, _number(loop, step, type_))
    if number_of(loop.outer, initial) == 0:
        return numbers
    return loop.before("add", numbers, _wide(loop, initial, shape))


def _number(loop: Loop, number: int, type_: TensorType) -> Value:
    """An integer, wrapped around, in every element of a type; before the loop."""
    low, high = limits(type_.dtype)
    held = np.array((number - low) % (high - low + 1) + low, type_.dtype.numpy)
    held.setflags(write=False)
    return _wide(loop, loop.before("constant", value=held), type_.shape)


def _wide(loop: Loop, scalar: Value, shape: tuple[int, ...]) -> Value:
    return loop.before("broadcast_in_dim", scalar, shape=shape, broadcast_dimensions=()) if shape else scalar
