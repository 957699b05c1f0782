"""The work of kernels that are no stages: loops of scatters and sorts that code is generated for, calls of the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autofuse.cost_models.features import OpaqueFeatures, Visits
from autofuse.cost_models.regions import LINE_BYTES
from autofuse.ir.graph import Graph, Node
from autofuse.ir.index import Element
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import lookup, role_of
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.looptree import GUESSED_TRIPS
from autofuse.lower.statements import Load
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.layers import NS_PER_VECTOR
from autofuse.targets.cpu.codegen.scatterloops import ScatterLoops
from autofuse.targets.cpu.codegen.sortloops import SortLoops

_SCATTERS = 0.2
"""Part of the estimate that a scatter takes: 0.6 ns for an index and its update, where they are one element."""
_COMPUTES = 1.0
"""The same of what is computed for vectors of updates."""
_AHEAD_NS = 0.4
"""Of an update that was computed in a vector before: it is stored and read again."""
_CONVOLUTION_CALLS, _CONVOLUTION_COPIES = 15, 6
"""Calls of NumPy that interpret a convolution, whose windows become rows of a matrix; copies of its result."""


def opaque_features(program: OpaqueProgram, vector_bits: int) -> OpaqueFeatures:
    """Describe the work of a kernel without stages."""
    node = coded_in(program.graph) if program.is_coded else None
    return _called(program) if node is None else _coded(program, node, vector_bits)


def _coded(program: OpaqueProgram, node: Node, vector_bits: int) -> OpaqueFeatures:
    """A scatter or sort in loops of its own, with what it computes around it.

    What the code generator estimates decides what is worth sharing. Of scatters it is on the safe side.
    """
    graph = program.graph
    moved = sum(value.type.nbytes for value in (*graph.inputs, *graph.outputs))
    visits = Visits(0, 0, 0, 0)
    if role_of(node) is Role.SCATTER:
        scatter = ScatterLoops(program, node, vector_bits)
        ns, shares, copied = _scatter_ns(scatter), scatter.split().blocks, 2 * node.outputs[0].type.nbytes
        visits = _visits(scatter, max(moved - copied, 0))
        behind = scatter.epilogue()
        if behind is not None:
            ns += behind.ns
            moved += behind.is_apart * node.outputs[0].type.nbytes
    else:
        sort = SortLoops(program, node, vector_bits)
        ns, shares, copied = sort.row_ns * sort.blocks, sort.blocks, 0
    return OpaqueFeatures(
        nodes=0,
        moved_bytes=max(moved - copied, 0),
        sort_steps=0.0,
        scattered=0,
        elements=0,
        multiply_adds=0.0,
        coded_ns=ns,
        shares=max(shares, 1),
        copied_bytes=copied,
        visits=visits,
    )


def _scatter_ns(scatter: ScatterLoops) -> float:
    """Of all updates on one core. What is computed ahead is in vectors; the estimate counts single elements."""
    updates = math.prod(symbol.extent for symbol in scatter.symbols)
    lanes = max(scatter.lanes, scatter.ahead)
    computing = updates * NS_PER_VECTOR * scatter.layers.weight(len(scatter.symbols))
    if lanes == 1:
        return _SCATTERS * scatter.ns
    others = scatter.ns - computing / scatter.lanes
    return _SCATTERS * others + _COMPUTES * computing / lanes + _AHEAD_NS * updates * (scatter.ahead > 1)


def _visits(scatter: ScatterLoops, once: int) -> Visits:
    """Each update visits a row of the operand, and rows of what is read at run-time positions."""
    updates = math.prod(symbol.extent for symbol in scatter.symbols)
    row = scatter.symbols[-1].extent if scatter.is_run else 1
    lines = -(-row * scatter.dtype.itemsize // LINE_BYTES) * LINE_BYTES
    written = updates // max(row, 1) * lines
    read, held = written, scatter.node.outputs[0].type.nbytes
    buffers = {buffer.name: buffer.type for buffer in scatter.program.buffers}
    for load in scatter.elements.statements:
        if isinstance(load, Load) and any(isinstance(variable, Element) for variable, _ in load.offset.terms):
            read += updates // max(row, 1) * -(-row * load.dtype.itemsize // LINE_BYTES) * LINE_BYTES
            held += buffers[load.buffer].nbytes
    return Visits(held, once, read, written)


def _called(program: OpaqueProgram) -> OpaqueFeatures:
    moved = nodes = scattered = elements = 0
    sort_steps = multiply_adds = 0.0
    for node, times in _interpreted(program.graph, 1):
        nodes += times
        moved += times * sum(value.type.nbytes for value in (*node.inputs, *node.outputs))
        size = sum(value.type.size for value in node.outputs)
        match role_of(node):
            case Role.SORT:
                length = node.inputs[0].type.shape[node.attrs["dimension"]]
                sort_steps += times * size * math.log2(max(length, 2))
            case Role.SCATTER:
                scattered += times * node.inputs[-1].type.size
            case Role.CONVOLUTION:
                nodes += times * (_CONVOLUTION_CALLS - 1)
                elements += times * size * _CONVOLUTION_COPIES
            case _:
                elements += times * size
        if role_of(node).is_contraction:
            multiply_adds += times * _flops(node) / 2
    return OpaqueFeatures(nodes, moved, sort_steps, scattered, elements, multiply_adds)


def _flops(node: Node) -> float:
    rule = lookup(node.op).flops
    types = [value.type for value in node.inputs], [value.type for value in node.outputs]
    return 0.0 if rule is None else rule(*types, node.attrs)


def _interpreted(graph: Graph, times: int) -> Iterator[tuple[Node, int]]:
    """Every node with the number of its evaluations."""
    for node in graph.nodes:
        yield node, times
        for region in node.regions:
            yield from _interpreted(region, times * _trips(node))


def _trips(node: Node) -> int:
    """How often the regions of a node are evaluated; a guess where only the run knows."""
    match role_of(node):
        case Role.COUNTED_LOOP:
            return node.attrs["length"]
        case Role.LOOP:
            return GUESSED_TRIPS
        case _:
            return 1
