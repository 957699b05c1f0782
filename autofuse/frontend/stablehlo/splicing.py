"""A graph, written into the trace under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.frontend.tracecontext import Tracing
from autofuse.ir.graph import Graph, Value
from autofuse.ir.substitution import replaced, substituted


def spliced(tracing: Tracing, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
    """The outputs of `graph` for these arguments, computed by nodes of the trace. Nodes keep their locations."""
    here = tracing.builder.location
    held = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        tracing.builder.location = node.location or here
        inputs = replaced(node.inputs, held)
        if node.regions or len(node.outputs) != 1:
            regions = [substituted(region, held | _anew(region)) for region in node.regions]
            outputs = tracing.builder.emit_many(node.op, inputs, regions=regions, **node.attrs)
        else:
            outputs = (tracing.emit(node.op, inputs, **node.attrs),)
        held.update(zip(node.outputs, outputs, strict=True))
    tracing.builder.location = here
    return [held[value] for value in graph.outputs]


def _anew(region: Graph) -> dict[Value, Value]:
    """Other values for those that a region defines: a program may be called twice in one trace."""
    return {value: Value(value.name, value.type) for value in _defined(region)}


def _defined(region: Graph) -> Iterator[Value]:
    yield from region.inputs
    for node in region.nodes:
        yield from node.outputs
        for inner in node.regions:
            yield from _defined(inner)
