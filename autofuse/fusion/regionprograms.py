"""Loops and branches that are no kernel: the programs inside them, each of which can be planned like a whole one.

A kernel that is such a loop has programs for what stands before it (the views and numbers that it reads), and one for
each region of its node. They are graphs of the same values as the kernel's: what a region captures is an input there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.loops import refusal
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """One of the programs."""

    graph: Graph
    """Without regions' captures: they are inputs. Its outputs are what it computes, each once."""
    writebacks: tuple[int, ...] = ()
    """Inputs that may be overwritten by the last outputs: parts of the state, by what the next iteration gets."""


def control_node(kernel: KernelCandidate) -> Node | None:
    """The loop or branch that a kernel is, if it is one and computes nothing else.

    What it writes is the results of that, in their own shapes or others, each once.
    """
    real = [node for node in kernel.nodes if role_of(node).computes]
    if len(real) != 1 or not role_of(real[0]).is_control:
        return None
    (node,) = real
    shapes, behind = reshaped_results(kernel.nodes, node), behind_node(kernel.nodes, node)
    written = [shapes.get(value, value) for value in kernel.outputs]
    made = {value for other in behind for value in other.outputs}
    return node if made.isdisjoint(written) and len(set(written)) == len(written) else None


def behind_node(nodes: Sequence[Node], node: Node) -> list[Node]:
    """The nodes that depend on a node's results."""
    after, found = set(node.outputs), list[Node]()
    for other in nodes:
        if other is not node and not after.isdisjoint(other.inputs):
            after.update(other.outputs)
            found.append(other)
    return found


def reshaped_results(nodes: Sequence[Node], node: Node) -> Mapping[Value, Value]:
    """Values that are a node's results in another shape, and which of them."""
    found: dict[Value, Value] = {}
    for other in nodes:
        if role_of(other) is Role.RESHAPE:
            source = other.inputs[0]
            if source in node.outputs or source in found:
                found[other.output] = found.get(source, source)
    return found


def why_opaque(kernel: KernelCandidate) -> str:
    """Why a kernel that is a loop or a branch is no generated code; empty for any other one."""
    node = control_node(kernel)
    if node is None:
        return ""
    match role_of(node):
        case Role.COUNTED_LOOP | Role.LOOP:
            return refusal(node) or ""
        case _:
            return "a branch is part of a kernel only inside of loops"


def region_programs(kernel: KernelCandidate) -> tuple[RegionProgram, ...]:
    """What stands before a kernel's loop or branch, then its regions in order; () for a kernel that is neither."""
    node = control_node(kernel)
    if node is None:
        return ()
    return (_before(kernel, node), *(region_program(node, number) for number in range(len(node.regions))))


def _before(kernel: KernelCandidate, node: Node) -> RegionProgram:
    behind = behind_node(kernel.nodes, node)
    others = [other for other in kernel.nodes if other is not node and other not in behind]
    return RegionProgram(_closed(node.name, others, (*kernel.graph.reads(node), *kernel.outputs)))


def region_program(node: Node, number: int) -> RegionProgram:
    """One region of a loop or branch."""
    region = node.regions[number]
    if role_of(node) is Role.BRANCH or (role_of(node) is Role.LOOP and number == 0):
        return RegionProgram(_closed(region.name, region.nodes, region.outputs))
    carries = node.attrs["carries"] if role_of(node) is Role.COUNTED_LOOP else len(node.inputs)
    after, rows = region.outputs[:carries], region.outputs[carries:]
    read = set(_closed(region.name, region.nodes, region.outputs).inputs)
    handed_on = set(after).intersection(region.inputs)
    replaced = {
        value: place
        for place, value in zip(region.inputs, after, strict=False)
        if _is_computed(region, value) and value not in rows and after.count(value) == 1
        if place in read and place not in handed_on
    }
    graph = _closed(region.name, region.nodes, [*(v for v in region.outputs if v not in replaced), *replaced])
    return RegionProgram(graph, tuple(graph.inputs.index(place) for place in replaced.values()))


def _is_computed(graph: Graph, value: Value) -> bool:
    return value in graph.producers and role_of(graph.producers[value]) is not Role.CONSTANT


def _closed(name: str, nodes: Sequence[Node], results: Sequence[Value]) -> Graph:
    """A graph of the nodes that `results` need; its outputs are those of them that nodes compute, each once."""
    producers = {value: node for node in nodes for value in node.outputs}
    outputs = tuple(dict.fromkeys(v for v in results if v in producers and role_of(producers[v]) is not Role.CONSTANT))
    wanted: set[Node] = set()
    todo = list(outputs)
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node not in wanted:
            wanted.add(node)
            todo += (*node.inputs, *(value for region in node.regions for value in region.captures))
    kept = tuple(node for node in nodes if node in wanted)
    reads = (value for node in kept for value in (*node.inputs, *(c for r in node.regions for c in r.captures)))
    return Graph(name, tuple(dict.fromkeys(value for value in reads if value not in producers)), kept, outputs)
