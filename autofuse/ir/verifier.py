"""Checking whole graphs: what the builder guarantees, for graphs made by passes, front ends or hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import attributes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphtext import node_line
from autofuse.ir.literals import attribute_text, value_name
from autofuse.ir.optable import lookup
from autofuse.lazydataclass import replace

_Place = tuple[str, int | str]


def verify(graph: Graph) -> None:
    """Check the order of definitions, names, operands, attributes, regions, types and outputs of a graph.

    Raises GraphError that shows the offending line with a caret under the offending part.
    """
    if graph.captures:
        raise GraphError(
            f"graph {graph.name}: only regions capture values; at top level {value_name(graph.captures[0].name)} must "
            "be an input"
        )
    _verify(graph, {})


def _verify(graph: Graph, outer: Mapping[Value, str]) -> None:
    """`outer`: what a region may capture, with names."""
    where = f"graph {graph.name}"
    visible: dict[Value, str] = {}
    names: set[str] = set()
    for value in (*graph.inputs, *graph.captures):
        if value.name in names or value in visible:
            raise GraphError(f"{where}: {value_name(value.name)} names two of its inputs and captures; rename one")
        names.add(value.name)
        visible[value] = value.name
    for value in graph.captures:
        if value not in outer:
            raise GraphError(f"{where}: captures {value_name(value.name)}, which the enclosing graph does not define")
    for node in graph.nodes:
        _verify_operands(where, node, visible)
        _verify_regions(where, node, visible)
        _verify_types(where, node)
        _define(where, node, visible, names)
    for number, value in enumerate(graph.outputs):
        if value not in visible:
            raise GraphError(f"{where}: output {number}, {value_name(value.name)}, is not defined in it")


def _fail(where: str, node: Node, place: _Place, message: str) -> NoReturn:
    line = node_line(replace(node, attrs={key: _printable(value) for key, value in node.attrs.items()}))
    raise GraphError(f"{where}: {message}\n  {line.text}\n  {' ' * line.columns.get(place, 0)}^")


def _verify_operands(where: str, node: Node, visible: Mapping[Value, str]) -> None:
    if not node.outputs:
        raise GraphError(f"{where}: a {node.op} node has no results")
    for number, value in enumerate(node.inputs):
        if value in visible:
            continue
        twin = " (a value of that name exists, but it is another object)" if value.name in visible.values() else ""
        name = value_name(value.name)
        _fail(where, node, ("operand", number), f"operand {number}, {name}, is not defined above{twin}")


def _verify_regions(where: str, node: Node, visible: Mapping[Value, str]) -> None:
    for region in node.regions:
        for value in region.captures:
            if value not in visible:
                name = value_name(value.name)
                _fail(where, node, ("op", 0), f"region {region.name} captures {name}, which is not defined above")
        _verify(region, visible)


def _verify_types(where: str, node: Node) -> None:
    try:
        op = lookup(node.op)
        held = attributes.normalized(op, node.attrs)
        if op.arity is not None and len(node.inputs) != op.arity:
            raise GraphError(f"{op.name} takes {op.arity} operands, got {len(node.inputs)}")
        if node.regions and not op.role.is_control:
            raise GraphError(f"{op.name} owns no regions, got {len(node.regions)}")
        found = op.infer([value.type for value in node.inputs], held, node.regions)
    except GraphError as bad:
        _fail(where, node, _place_of(str(bad), node), str(bad))
    for key, value in held.items():
        given = node.attrs[key]
        if not _same(value, given):
            _fail(where, node, ("attribute", key), f"attribute {key} must be held as {value!r:.80}, got {given!r:.80}")
    if len(found) != len(node.outputs):
        _fail(where, node, ("output", 0), f"{node.op} has {len(found)} results, the node {len(node.outputs)}")
    for number, (required, value) in enumerate(zip(found, node.outputs, strict=True)):
        if value.type != required:
            name = value_name(value.name)
            _fail(where, node, ("type", number), f"{name} must have type {required}, as inferred; got {value.type}")


def _same(held: Any, given: Any) -> bool:
    """Whether an attribute already is in normal form. An array is, if it was not copied."""
    return held is given or (type(held) is type(given) and not isinstance(held, np.ndarray) and held == given)


def _printable(value: Any) -> Any:
    try:
        attribute_text(value)
    except TypeError:
        return repr(value)
    return value


def _place_of(message: str, node: Node) -> _Place:
    """The part of the node that an inference error is about: the first attribute it names, else the op."""
    marked = [key for key in node.attrs if f"attribute {key} " in message or f"attribute {key}[" in message]
    return ("attribute", marked[0]) if marked else ("op", 0)


def _define(where: str, node: Node, visible: dict[Value, str], names: set[str]) -> None:
    for number, value in enumerate(node.outputs):
        if value in visible:
            _fail(where, node, ("output", number), f"{value_name(value.name)} is defined twice")
        if value.name in names:
            _fail(where, node, ("output", number), f"the name {value_name(value.name)} is taken; names are unique")
        names.add(value.name)
        visible[value] = value.name
