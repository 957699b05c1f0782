"""What records are about, as text: graphs of kernels, from which they are lowered again, programs, and devices.

A record names its kernel by a digest, and its device by a hash of the compared fields. That is enough to find it again,
and not enough to learn from: features of a kernel are derived from its graph, and prices from what the device is.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from autofuse.errors import AutofuseError, MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphtext import parse_graph, print_graph
from autofuse.lazydataclass import dataclass, field
from autofuse.strictjson import Item, parse

SOURCES_TABLES = """
CREATE TABLE sources (
  kernel TEXT PRIMARY KEY, text TEXT NOT NULL, kind TEXT NOT NULL, program TEXT NOT NULL);
CREATE TABLE programs (
  name TEXT PRIMARY KEY, grouped TEXT NOT NULL, family TEXT NOT NULL, text TEXT NOT NULL, bounds TEXT NOT NULL);
CREATE TABLE descriptions (hash TEXT PRIMARY KEY, text TEXT NOT NULL)
"""
"""Kernels by digest, programs by name, devices by `text_hash` of what describes them."""
MOST_TEXT = 1 << 22
"""Characters of the graph of a kernel, or of a program."""
MOST_DESCRIPTION = 1 << 18
"""Characters of what describes a device."""
_READING = (AutofuseError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a graph that nobody vouches for may end in."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One kernel, without the program that it was found in."""

    kernel: str
    """Structural digest, as in its records."""
    text: str
    """Its graph: what it reads are inputs, what it writes outputs; empty if it was not kept."""
    kind: str
    """Kind of fusion."""
    program: str
    """Name of the program that it was first measured in."""


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """One program that kernels were found in."""

    name: str
    """Unique, e.g. `softmax/full`, or the digest of the graph."""
    grouped: str
    """Equal for programs that are the same but for sizes: who learns from one and is tested on another cheats."""
    family: str
    """What made it: `workload`, a family of random programs, or `tuned`."""
    text: str = ""
    """Its graph, if all its kernels were measured; else empty."""
    bounds: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    """How its kernels were enumerated then, by the names of what bounds them."""


def kernel_graph(kernel: KernelCandidate) -> Graph:
    """A kernel as a graph of its own, its values named by number in the order in which they are read and made.

    Equal for kernels that do the same in the same order, whatever program they are part of.
    """
    renamed: dict[Value, Value] = {}

    def named(value: Value) -> Value:
        if value not in renamed:
            renamed[value] = Value(f"v{len(renamed)}", value.type)
        return renamed[value]

    inputs = tuple(named(value) for value in kernel.inputs)
    nodes = tuple(_renamed_node(node, named) for node in kernel.nodes)
    return Graph("kernel", inputs, nodes, tuple(named(value) for value in kernel.outputs))


def _renamed_node(node: Node, named: Any) -> Node:
    regions = tuple(_renamed_region(region, named) for region in node.regions)
    inputs, outputs = tuple(map(named, node.inputs)), tuple(map(named, node.outputs))
    return Node(node.op, inputs, outputs, node.attrs, regions)


def _renamed_region(region: Graph, outer: Any) -> Graph:
    captures = tuple(map(outer, region.captures))
    inputs = tuple(map(outer, region.inputs))
    nodes = tuple(_renamed_node(node, outer) for node in region.nodes)
    return Graph(region.name, inputs, nodes, tuple(map(outer, region.outputs)), captures)


def kernel_text(kernel: KernelCandidate) -> str:
    """The text of `kernel_graph`; empty where it would refer to arrays that it does not hold."""
    text, constants = print_graph(kernel_graph(kernel))
    return "" if constants or len(text) > MOST_TEXT else text


def kernel_from(text: str, what: str) -> KernelCandidate:
    """The kernel of a text. Raises MeasureError that begins with `what` for anything else."""
    graph = graph_from(text, what)
    return KernelCandidate(graph, graph.nodes, graph.outputs)


def graph_from(text: str, what: str) -> Graph:
    """The graph of a text. Raises MeasureError that begins with `what` for anything else."""
    try:
        return parse_graph(text, {})
    except _READING as bad:
        raise MeasureError(f"{what}: is not the text of a graph: {bad}") from bad


def text_hash(text: str) -> str:
    """By what a description goes."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def kernel_to_json(source: KernelSource) -> dict[str, Any]:
    """What an exported record says of its kernel, the digest left out."""
    return {"text": source.text, "kind": source.kind, "program": source.program}


def kernel_source_from(kernel: str, item: Item) -> KernelSource:
    """The reverse. Raises the item's error for anything else."""
    keys = item.fields(("text", "kind", "program"))
    return KernelSource(kernel, keys["text"].text(MOST_TEXT), keys["kind"].text(), keys["program"].text())


def program_to_json(source: ProgramSource) -> dict[str, Any]:
    """What an exported record says of its kernel's program."""
    return {
        "name": source.name,
        "grouped": source.grouped,
        "family": source.family,
        "text": source.text,
        "bounds": dict(source.bounds),
    }


def program_source_from(item: Item) -> ProgramSource:
    """The reverse. Raises the item's error for anything else."""
    keys = item.fields(("name", "grouped", "family", "text", "bounds"))
    bounds = {name: bound.integer(0, 1 << 40) for name, bound in keys["bounds"].members(20).items()}
    return ProgramSource(
        keys["name"].text(), keys["grouped"].text(), keys["family"].text(), keys["text"].text(MOST_TEXT), bounds
    )


def write_kernel(connection: sqlite3.Connection, source: KernelSource) -> None:
    """Keep what a kernel is, unless that is known. Raises MeasureError for what could not be read again."""
    kernel_source_from(source.kernel, Item(kernel_to_json(source), "kernel", MeasureError, f"kernel {source.kernel}"))
    row = (source.kernel, source.text, source.kind, source.program)
    connection.execute("INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?)", row)


def write_program(connection: sqlite3.Connection, source: ProgramSource) -> None:
    """Keep what a program is, unless that is known. Raises MeasureError for what could not be read again."""
    program_source_from(Item(program_to_json(source), "program", MeasureError, f"program {source.name}"))
    row = (source.name, source.grouped, source.family, source.text, json.dumps(dict(source.bounds)))
    connection.execute("INSERT OR IGNORE INTO programs VALUES (?, ?, ?, ?, ?)", row)


def write_description(connection: sqlite3.Connection, text: str) -> None:
    """Keep what describes a device. Raises MeasureError for what could not be read again."""
    Item(text, "", MeasureError, "the device's description").text(MOST_DESCRIPTION)
    connection.execute("INSERT OR IGNORE INTO descriptions VALUES (?, ?)", (text_hash(text), text))


def read_kernels(connection: sqlite3.Connection, what: str) -> dict[str, KernelSource]:
    """All kernels of the file `what`, by digest. Raises MeasureError for a damaged one."""
    found: dict[str, KernelSource] = {}
    for kernel, *row in connection.execute("SELECT kernel, text, kind, program FROM sources ORDER BY kernel"):
        data = dict(zip(("text", "kind", "program"), row, strict=True))
        found[kernel] = kernel_source_from(kernel, Item(data, "", MeasureError, f"{what}: kernel {kernel}"))
    return found


def read_programs(connection: sqlite3.Connection, what: str) -> dict[str, ProgramSource]:
    """All programs of the file `what`, by name. Raises MeasureError for a damaged one."""
    found: dict[str, ProgramSource] = {}
    query = "SELECT name, grouped, family, text, bounds FROM programs ORDER BY name"
    for name, grouped, family, text, bounds in connection.execute(query):
        where = f"{what}: program {name}"
        data = {
            "name": name,
            "grouped": grouped,
            "family": family,
            "text": text,
            "bounds": parse(bounds, MeasureError, where).value,
        }
        found[name] = program_source_from(Item(data, "", MeasureError, where))
    return found


def read_descriptions(connection: sqlite3.Connection, what: str) -> dict[str, str]:
    """What describes the devices of the file `what`, by hash. Raises MeasureError for a damaged one."""
    rows = connection.execute("SELECT hash, text FROM descriptions ORDER BY hash")
    return {name: Item(text, name, MeasureError, f"{what}: description").text(MOST_DESCRIPTION) for name, text in rows}
