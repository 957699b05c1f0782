"""Keys that are drawn from twice: the same numbers come out again, which is seldom meant.

Looked for in traced functions, where values can be followed. Two keys are one if the same operations make them of the
same values. In a loop that is traced, a key that is the same in every iteration is drawn from as often as it runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from autofuse.errors import KeyReuseWarning
from autofuse.frontend.cells import Storage
from autofuse.frontend.drawnkeys import Use
from autofuse.frontend.location import source_of
from autofuse.frontend.tracecontext import Tracing, current
from autofuse.frontend.tracer import TracerArray
from autofuse.ir.graph import Location, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of

_DEPTH = 64
"""How many operations a key is followed back for."""


def noted(key: TracerArray, function: str) -> Value:
    """The value of a key that a function draws from. Warns where it was drawn from before, or is again in a loop."""
    tracing = current()
    known = _bytes_of(key)
    value = key.value
    record = tracing.drawn_keys
    if known is not None:
        record.classes[value] = record.number(known)
    kind, use = _class_of(value), Use(function, tracing.builder.location)
    for around in _outwards(tracing):
        earlier = around.drawn_keys.uses.get(kind)
        if earlier is not None:
            _warn_of_second(earlier, use)
            break
    for around in _outwards(tracing):
        if around.repeats and _stays(value, around, {}):
            _warn_of_loop(around, use)
            break
    record.uses.setdefault(kind, use)
    return value


def check_carried(body: Tracing, carried: Iterable[tuple[Value, Value]]) -> None:
    """Warn of keys that a loop's body draws from and returns as they came. `carried`: (what it gets, what it gives)."""
    for given, result in carried:
        use = body.drawn_keys.uses.get(body.drawn_keys.classes.get(given, -1))
        if given is result and use is not None:
            _warn_of_loop(body, use)


def _outwards(tracing: Tracing | None) -> Iterator[Tracing]:
    while tracing is not None:
        yield tracing
        tracing = tracing.parent


def _bytes_of(key: TracerArray) -> Hashable:
    """The bytes of a constant of the program; None of what is computed."""
    is_constant = isinstance(key.cell, Storage) and not key.cell.has_value and key.known is not None
    return _frozen(np.asarray(key.known())) if is_constant and key.known is not None else None


def _producer(value: Value) -> Node | None:
    nodes = (around.builder.producer(value) for around in _outwards(current()))
    return next((node for node in nodes if node is not None), None)


def _class_of(value: Value, depth: int = _DEPTH) -> int:
    """A number that equal computations share."""
    record = current().drawn_keys
    found = record.classes.get(value)
    if found is None:
        node = _producer(value) if depth else None
        found = record.number(value if node is None or node.regions else _description(node, value, depth))
        record.classes[value] = found
    return found


def _description(node: Node, value: Value, depth: int) -> Hashable:
    attrs = tuple((name, _frozen(item)) for name, item in sorted(node.attrs.items()))
    operands = tuple(_class_of(operand, depth - 1) for operand in node.inputs)
    if role_of(node) is Role.CONSTANT:
        return _frozen(node.attrs["value"])
    return node.op, attrs, operands, node.outputs.index(value)


def _frozen(attribute: Any) -> Hashable:
    if isinstance(attribute, np.ndarray):
        return attribute.dtype.str, attribute.shape, attribute.tobytes()
    return attribute


def _stays(value: Value, loop: Tracing, found: dict[Value, bool], depth: int = _DEPTH) -> bool:
    """Whether a value is the same in every iteration. `found`: what is known of others, as keys share their makings."""
    if value not in found:
        found[value] = _is_made_of_what_stays(value, loop, found, depth)
    return found[value]


def _is_made_of_what_stays(value: Value, loop: Tracing, found: dict[Value, bool], depth: int) -> bool:
    for around in _outwards(current()):
        if value in around.builder.inputs:
            return False
        node = around.builder.producer(value)
        if node is not None:
            return depth > 0 and not node.regions and all(_stays(one, loop, found, depth - 1) for one in node.inputs)
        if around is loop:
            return True
    return True


def _warn_of_second(earlier: Use, use: Use) -> None:
    _warn(
        use.location,
        f"{use.function} draws from a key that {earlier.function} drew from before:\n"
        f"    before: {source_of(earlier.location)}\n"
        f"    again:  {source_of(use.location)}\n"
        "  the numbers depend on one another; instead: key, sub = af.random.split(key), and draw from sub",
    )


def _warn_of_loop(loop: Tracing, use: Use) -> None:
    begun = None if loop.parent is None else loop.parent.builder.location
    _warn(
        use.location,
        f"{use.function} draws from the same key in every iteration of a loop:\n"
        f"    loop: {source_of(begun)}\n"
        f"    draw: {source_of(use.location)}\n"
        "  every iteration has the same numbers; instead: af.random.fold_in(key, i), or carry what split gives",
    )


def _warn(location: Location | None, message: str) -> None:
    """Once in a trace: bodies of loops are traced more than once."""
    said = current().drawn_keys.said
    if message not in said:
        said.add(message)
        file, line = ("<unknown>", 0) if location is None else (location.file, location.line)
        warnings.warn_explicit(f"autofuse: {message}", KeyReuseWarning, file, line)
