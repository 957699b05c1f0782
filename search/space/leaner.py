"""What a kernel may write so that others compute a large value for themselves.

A row's peak and the sum of its exponentials, say, in place of all differences from the peak, of which the reader needs
one a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of


def leaner_outputs(graph: AtomGraph, atoms: frozenset[FusionAtom], outputs: Sequence[Value]) -> tuple[Value, ...]:
    """What a kernel of these atoms writes instead of `outputs`; () if that is nothing smaller, or leaves one idle."""
    spared = {v for v in outputs if v not in graph.returned and _is_light_inside(graph, v, atoms)}
    needed: set[Value] = set()
    todo, seen = list(spared), set(spared)
    while todo:
        maker = graph.maker(todo.pop())
        assert maker is not None
        for value in graph.reads[maker]:
            if graph.maker(value) not in atoms or value in seen:
                continue
            if _is_light_inside(graph, value, atoms):
                seen.add(value)
                todo.append(value)
            else:
                needed.add(value)
    fewer = graph.value_order((set(outputs) - spared) | needed)
    if not needed or _nbytes(fewer) >= _nbytes(outputs) or graph.needed(atoms, fewer) != atoms:
        return ()
    return tuple(fewer)


def is_light(node: Node) -> bool:
    """Whether computing a node's elements again may cost less than keeping them."""
    role = role_of(node)
    return role is Role.ELEMENTWISE or role.moves or role.is_leaf


def _is_light_inside(graph: AtomGraph, value: Value, atoms: Collection[FusionAtom]) -> bool:
    """Whether one of the atoms makes a value, and another kernel may as well compute it from what that reads."""
    maker = graph.maker(value)
    return maker is not None and maker in atoms and all(is_light(node) for node in maker.nodes)


def _nbytes(values: Iterable[Value]) -> int:
    return sum(value.type.nbytes for value in values)
