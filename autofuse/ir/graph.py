"""The graph: immutable SSA over typed tensors, nodes that may own regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field

Attrs = Mapping[str, Any]
"""Attribute name to value: int, float, bool, str, tuple of those, `DType`, or (constants only) a read-only array."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's source a node came from."""

    file: str
    line: int
    function: str
    instruction: int = field(default=-1, compare=False)
    """Offset of the instruction in the function's code: tells the calls of one line apart. -1 if it is not known."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One SSA value. Compared by identity; the name is unique within its graph."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class _Described:
    """Keeps what `autofuse.ir.digest` says of it, which is no part of its value: it is asked for very often."""

    __slots__ = ("description",)
    description: tuple[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Node(_Described):
    """One operation. Compared by identity; reported under the name of its first output."""

    op: str
    """Name in the op table."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Attrs
    regions: tuple[Graph, ...] = ()
    location: Location | None = None
    reads: tuple[Value, ...] = field(init=False, repr=False)
    """All values it needs, each once: its inputs and what its regions capture."""

    def __post_init__(self) -> None:
        reads = self.inputs
        if self.regions or len(reads) > 2:
            reads = tuple(dict.fromkeys(_reads(self)))
        elif len(reads) == 2 and reads[0] is reads[1]:
            reads = reads[:1]
        object.__setattr__(self, "reads", reads)

    @property
    def name(self) -> str:
        return self.outputs[0].name

    @property
    def output(self) -> Value:
        """The only output. Nodes with several are read through `outputs`."""
        (value,) = self.outputs
        return value


@dataclass(frozen=True, eq=False)
class Graph:
    """A function: inputs, nodes in topological order, outputs. An output may be an input, or appear twice."""

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    captures: tuple[Value, ...] = field(default=())
    """Values of the enclosing graph that a region reads; empty at top level. They are not inputs."""

    @cached_property
    def producers(self) -> Mapping[Value, Node]:
        """The node that makes each value; inputs and captures are absent."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value, each once, in order. A value read by no node maps to ()."""
        found: dict[Value, list[Node]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for value in self.reads(node):
                found.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def positions(self) -> Mapping[Node, int]:
        """Where each node stands in `nodes`."""
        return {node: number for number, node in enumerate(self.nodes)}

    @cached_property
    def node_by_name(self) -> Mapping[str, Node]:
        """Nodes by the name of each of their outputs."""
        return {value.name: node for node in self.nodes for value in node.outputs}

    @cached_property
    def value_by_name(self) -> Mapping[str, Value]:
        return {value.name: value for value in self.values()}

    def values(self) -> Iterator[Value]:
        """Inputs, captures, then node outputs in order."""
        yield from self.inputs
        yield from self.captures
        for node in self.nodes:
            yield from node.outputs

    def reads(self, node: Node) -> tuple[Value, ...]:
        """All values `node` needs: its inputs and what its regions capture."""
        return node.reads


def _reads(node: Node) -> Iterator[Value]:
    yield from node.inputs
    for region in node.regions:
        yield from region.captures
