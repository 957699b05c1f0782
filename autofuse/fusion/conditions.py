"""What ends a `while`: whether the condition is of any element, so that each element may end by itself.

    while any(p(state)) and n < limit: ...         p of each element, and terms that all elements share
    while any(p(state) & (n < limit)): ...         the same

If an element does not change once its p is false, how often the loop runs for others makes no difference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """A condition that holds as long as any element moves, and other terms do."""

    reduction: Node
    elements: tuple[Value, ...]
    """Of each element, what has to hold all together for it to move."""
    truth: bool
    """What those are of an element that moves."""
    others: tuple[tuple[Value, bool], ...]
    """The terms that are scalars, and what each is while the loop goes on."""


def ending(loop: Node) -> Ending | None:
    """How a `while` ends, if any element keeps it going; None of other conditions, and of loops that are counted."""
    if role_of(loop) is not Role.LOOP:
        return None
    if loop not in _known:
        _known[loop] = _ending(loop)
    return _known[loop]


_known: WeakKeyDictionary[Node, Ending | None] = WeakKeyDictionary()


def _ending(loop: Node) -> Ending | None:
    condition = loop.regions[0]
    makers = {value: node for node in condition.nodes for value in node.outputs}
    uses: dict[Value, int] = {}
    for value in (*condition.outputs, *(v for node in condition.nodes for v in node.inputs)):
        uses[value] = uses.get(value, 0) + 1
    terms = _terms(condition.outputs[0], "and", makers)
    for value in terms:
        node, truth = makers.get(value), True
        if node is not None and node.op == "not":
            node, truth = makers.get(node.inputs[0]), False
        if node is None or role_of(node) is not Role.REDUCE or uses[node.output] != 1 or uses[value] != 1:
            continue
        if node.inputs[0] in condition.captures:
            continue  # it is the same in all iterations
        if node.attrs["combiner"] == ("or" if truth else "and") and node.inputs[0].type.dtype.kind == "bool":
            others = [(other, True) for other in terms if other is not value]
            elements: list[Value] = []
            for part in _terms(node.inputs[0], "and" if truth else "or", makers):
                maker = makers.get(part)
                if maker is not None and maker.op == "broadcast_in_dim" and not maker.inputs[0].type.rank:
                    others.append((maker.inputs[0], truth))
                else:
                    elements.append(part)
            return Ending(node, tuple(elements), truth, tuple(others)) if elements else None
    return None


def _terms(value: Value, op: str, makers: Mapping[Value, Node]) -> list[Value]:
    """What a value joins by `op`."""
    found: list[Value] = []
    todo = [value]
    while todo:
        value = todo.pop(0)
        node = makers.get(value)
        if node is not None and node.op == op:
            todo = [*node.inputs, *todo]
        else:
            found.append(value)
    return found
