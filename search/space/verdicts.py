"""Which kernels are settled by their loops: what needs no lowering to be known as a kernel.

Lowering refuses what has no loops in common, and what would compute too much anew. The first is told by the loops
alone, and where few elements are read at several positions, the second cannot be. The few other reasons show when such
a kernel is lowered after all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.domain import Domain, choose_domain
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lower.overwriting import overwritings

_MORE = 2
"""How many times as many elements as its parts a kernel may compute for each of its results: the limit in lowering is
higher."""
_ENDLESS = 10_000
"""Elements that are as good as any larger number."""


def loops_of(kernel: KernelCandidate) -> Domain | None:
    """The loops that all of a kernel fits, where those decide whether it is one; None where lowering must tell.

    Raises LegalityError with the reason for one that has no loops in common.
    """
    roles = [role_of(node) for node in kernel.nodes]
    if any(role.is_opaque for role in roles) or overwritings(kernel):
        return None
    if Role.CONVOLUTION in roles and sum(role.is_contraction for role in roles) > 1:
        return None  # a convolution reads rows around its own, which another product may not have yet
    return choose_domain(kernel)


def repeats_little(kernel: KernelCandidate, parts: int) -> bool:
    """Whether a kernel computes few elements anew. `parts`: elements that its atoms compute, each alone."""
    return elements(kernel, _MORE * parts) <= _MORE * parts


def elements(kernel: KernelCandidate, most: int = _ENDLESS) -> int:
    """At most how many elements of values a kernel computes for one of each of its results.

    Where that is more than `most`, some number above it.

    `x[1:] - x[:-1]` of an `x` that the kernel computes needs two.
    """
    if not any(role.moves or role is Role.WINDOW for role in map(role_of, kernel.nodes)):
        return len(kernel.nodes)
    places = _Places()
    read: dict[Value, set[int]] = {value: {0} for value in kernel.outputs}
    total = 0
    for node in reversed(kernel.nodes):
        own = set[int]().union(*(read.get(value, ()) for value in node.outputs))
        total += len(own)
        if total > most:
            return total
        for operand, value in enumerate(node.inputs):
            read.setdefault(value, set()).update(places.read_at(node, operand, own))
    return total


class _Places:
    """Numbers for the positions at which elements are asked for: equal ones have one, and some have several."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Node, int], int] = {}

    def read_at(self, node: Node, operand: int, own: Iterable[int]) -> Iterable[int]:
        """Where a node reads an operand, from where it is asked for itself."""
        role = role_of(node)
        if role is Role.ELEMENTWISE:
            return own
        if role is Role.WINDOW:
            size = math.prod(node.attrs["window_dimensions"])
            return [self._number(place, node, element) for place in own for element in range(size)]
        if role.moves:
            return [self._number(place, node, operand) for place in own]
        return (self._number(0, node, operand),)  # a loop of its own, at the point of the grid

    def _number(self, place: int, node: Node, which: int) -> int:
        return self._numbers.setdefault((place, node, which), len(self._numbers) + 1)
