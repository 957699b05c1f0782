"""The text form of graphs: one node per line, exact both ways (names, attributes, constants, locations, regions).

graph "softmax"(%x: f32[2,3]) {
  %m = reduce %x {dimensions = [1], combiner = "maximum"} : f32[2] loc "model.py":12 "softmax"
  %k, %v = sort %x, %x {dimension = 0, descending = false, stable = true} : f32[2,3], f32[2,3]
  %n = while %i : i32[] {
    region "condition"(%j: i32[]) captures(%limit) {
      %p = compare %j, %limit {direction = "LT"} : bool[]
      return %p
    }
    region "body"(%j: i32[]) captures() { ... }
  }
  return %k, %v
}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphparser import parse_graph
from autofuse.ir.literals import attribute_text, value_name
from autofuse.lazydataclass import dataclass, field

__all__ = ["NodeLine", "node_line", "parse_graph", "print_graph", "to_text"]

Constants = dict[str, NDArray[Any]]


def print_graph(graph: Graph) -> tuple[str, Constants]:
    """The text of a graph, and the arrays above 1 KB that it refers to by hash: what `parse_graph` takes."""
    constants: Constants = {}
    return to_text(graph, constants), constants


def to_text(graph: Graph, constants: Constants | None = None) -> str:
    """The text of a graph. Arrays above 1 KB are added to `constants`, where given, and referred to by hash."""
    return "\n".join(_graph_lines("graph", graph, constants, "")) + "\n"


@dataclass(slots=True)
class NodeLine:
    """The first line of a node's text, and where its parts stand in it."""

    text: str = ""
    columns: dict[tuple[str, int | str], int] = field(default_factory=dict[tuple[str, "int | str"], int])
    """("output", number), ("op", 0), ("operand", number), ("attribute", name), ("type", number) -> column."""

    def add(self, part: str, key: tuple[str, int | str] | None = None) -> None:
        """Append a part, noting where it begins."""
        if key is not None:
            self.columns[key] = len(self.text)
        self.text += part

    def add_list(self, parts: Sequence[str], key: str) -> None:
        """Append parts separated by commas."""
        for number, part in enumerate(parts):
            self.add(", " if number else "")
            self.add(part, (key, number))


def node_line(node: Node, constants: Constants | None = None) -> NodeLine:
    """The node's text without its regions."""
    line = NodeLine()
    line.add_list([value_name(value.name) for value in node.outputs], "output")
    line.add(" = ")
    line.add(node.op, ("op", 0))
    line.add(" " if node.inputs else "")
    line.add_list([value_name(value.name) for value in node.inputs], "operand")
    if node.attrs:
        line.add(" {")
        for number, (key, value) in enumerate(node.attrs.items()):
            line.add(", " if number else "")
            line.add(f"{key} = {attribute_text(value, constants)}", ("attribute", key))
        line.add("}")
    line.add(" : ")
    line.add_list([str(value.type) for value in node.outputs], "type")
    if node.location is not None:
        where = node.location
        line.add(f" loc {json.dumps(where.file)}:{where.line} {json.dumps(where.function)}")
    return line


def _graph_lines(word: str, graph: Graph, constants: Constants | None, indent: str) -> Iterator[str]:
    captures = "" if word == "graph" and not graph.captures else f" captures({_names(graph.captures)})"
    inputs = ", ".join(f"{value_name(value.name)}: {value.type}" for value in graph.inputs)
    yield f"{indent}{word} {json.dumps(graph.name)}({inputs}){captures} {{"
    inner = indent + "  "
    for node in graph.nodes:
        line = inner + node_line(node, constants).text
        if not node.regions:
            yield line
            continue
        yield line + " {"
        for region in node.regions:
            yield from _graph_lines("region", region, constants, inner + "  ")
        yield inner + "}"
    yield f"{inner}return {_names(graph.outputs)}".rstrip()
    yield indent + "}"


def _names(values: Sequence[Value]) -> str:
    return ", ".join(value_name(value.name) for value in values)
