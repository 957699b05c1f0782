"""Loops made simpler: fewer iterations that nobody knows of, less state, less work in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.lazydataclass import dataclass, replace
from autofuse.passes.facts import Facts
from autofuse.passes.loopediting import Loop, reads
from autofuse.passes.loopinvariants import move_invariants
from autofuse.passes.looprows import decide_comparisons, repeated_rows, slices_to_rows
from autofuse.passes.loopstate import count_iterations, counters_to_rows, drop_dead, drop_unchanged
from autofuse.passes.loopwrites import writes_to_stacks
from autofuse.passes.rewriting import Names, live_nodes

_LOOPS = (Role.LOOP, Role.COUNTED_LOOP)


@dataclass(frozen=True, slots=True)
class SimplifyLoops:
    """Rewrites loops so that later stages see what an iteration depends on.

    - A `while` that a counter ends becomes a `scan`; one that never runs goes.
    - What an iteration hands on as it came, and what no result needs, leaves the state; counters become rows.
    - Slices that move with the counter become rows. An array written position by position becomes a stack.
    - What is the same in all iterations is computed before the loop.

    Exact: the same scalars are computed, in the same order. Work that is moved out of a `while` is done though it may
    run no iteration.
    """

    name: ClassVar[str] = "loops"

    def apply(self, graph: Graph) -> Graph:
        """The graph with simpler loops; the same object if there is nothing to do."""
        return _simplified(graph, {}, Names(graph)) if any(node.regions for node in graph.nodes) else graph


def _simplified(graph: Graph, outer: Mapping[Value, Value], names: Names) -> Graph:
    """A graph or region. `outer`: what replaces values that it captures."""
    to = dict(outer)
    facts = Facts({})
    nodes: list[Node] = []
    read = {value for node in graph.nodes for value in reads(node)} | set(graph.outputs)
    for old in graph.nodes:
        node = substituted_node(old, to)
        regions = tuple(_simplified(region, {}, names) for region in node.regions)
        if any(new is not before for new, before in zip(regions, node.regions, strict=True)):
            node = replace(node, regions=regions)
        made, results = _loop(node, facts, names, read) if role_of(node) in _LOOPS else ((node,), {})
        to.update(results)
        for one in made:
            facts.add(one)
        nodes.extend(made)
    outputs = replaced(graph.outputs, to)
    if len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    live = live_nodes(nodes, outputs)
    captures = free_values(graph.inputs, live, outputs) if graph.captures else ()
    return Graph(graph.name, graph.inputs, tuple(live), outputs, captures)


def _loop(node: Node, facts: Facts, names: Names, read: set[Value]) -> tuple[tuple[Node, ...], Mapping[Value, Value]]:
    """What takes the place of a loop, and which of its results are other values."""
    loop = Loop(node, facts, names)
    count_iterations(loop)
    if loop.length != 0:
        drop_unchanged(loop)
        drop_dead(loop, read)
        move_invariants(loop)
        if loop.length is not None:
            counters_to_rows(loop)
            repeated_rows(loop)
            decide_comparisons(loop)
            slices_to_rows(loop)
            writes_to_stacks(loop)
    if not loop.changed:
        return (node,), {}
    nodes, results = loop.finish()
    return tuple(nodes), results
