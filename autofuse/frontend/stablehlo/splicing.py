"""A graph, written into the trace under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.frontend.location import trace_error
from autofuse.frontend.tracecontext import Tracing
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.substitution import substituted


def spliced(tracing: Tracing, graph: Graph, arguments: Sequence[Value]) -> Sequence[Value]:
    """The outputs of `graph` for these arguments, computed by nodes of the trace. Nodes keep their locations.

    Raises TraceError for a call that no kernel computes, where those are to be refused.
    """
    _require_calls(tracing, graph)
    here = tracing.builder.location
    held = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        tracing.builder.location = node.location or here
        regions = [substituted(region, held | _anew(region)) for region in node.regions]
        outputs = tracing.adopt(node, [held[value] for value in node.inputs], regions)
        held.update(zip(node.outputs, outputs, strict=True))
    tracing.builder.location = here
    return [held[value] for value in graph.outputs]


def taken_over(tracing: Tracing, graph: Graph) -> Sequence[Value]:
    """The outputs of a graph that was made for this trace and reads its values: its nodes are the trace's as they are.

    Raises TraceError as `spliced` does.
    """
    _require_calls(tracing, graph)
    here = tracing.builder.location
    tracing.take_over([node if node.location else _placed(node, here) for node in graph.nodes])
    return graph.outputs


def _placed(node: Node, here: Location | None) -> Node:
    return Node(node.op, node.inputs, node.outputs, node.attrs, node.regions, here)


def _require_calls(tracing: Tracing, graph: Graph) -> None:
    """Note the calls that no kernel computes, or raise TraceError."""
    for node in _calls(graph):
        place = node.location or tracing.builder.location or "an unknown line"
        label = f"{called(node.attrs['call_target_name'])} at {place}"
        if tracing.on_unsupported == "error":
            raise trace_error(f"{label} is a call that no kernel computes", 'on_unsupported="numpy" leaves it to NumPy')
        tracing.left_to_numpy.append(label)


def called(target: str) -> str:
    """How people call the target of a call."""
    return target.partition("[")[0].removeprefix("autofuse.ir.ops.")


def _calls(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if role_of(node) is Role.CALL:
            yield node
        for region in node.regions:
            yield from _calls(region)


def _anew(region: Graph) -> dict[Value, Value]:
    """Other values for those that a region defines: a program may be called twice in one trace."""
    return {value: Value(value.name, value.type) for value in _defined(region)}


def _defined(region: Graph) -> Iterator[Value]:
    yield from region.inputs
    for node in region.nodes:
        yield from node.outputs
        for inner in node.regions:
            yield from _defined(inner)
