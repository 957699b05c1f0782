"""A loop over time taken apart: what each of many rows has for itself, and what all rows share.

key, h = scan of { key, sub = split(key); h = tanh(h @ u) + uniform(sub) }

-> a loop by itself, of what has no rows:   key, subs = scan of { key, sub = split(key); stack sub }
a loop of rows, for which that is rows that come in:   h = scan of { h = tanh(h @ u) + uniform(subs[t]) }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate, part_of
from autofuse.fusion.dimensions import Dimensions
from autofuse.fusion.domain import grid_factors, is_contraction
from autofuse.fusion.loops import MAX_HELD
from autofuse.fusion.nodeaxes import dot_axes
from autofuse.fusion.regionprograms import behind_node, control_node, reshaped_results
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.straightbodies import straight_body


class State(NamedTuple):
    """A part of the state."""

    given: Value
    """What an iteration gets."""
    made: Value
    """What the next one gets."""
    initial: Value
    result: Value | None
    """What the kernel writes of it behind the last iteration."""


class Stacked(NamedTuple):
    """Rows that go out."""

    made: Value
    result: Value
    """What the kernel writes."""
    type: TensorType
    """Of all rows; the result has as many elements, maybe in another shape."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all rows share: a loop by itself, before that of the rows."""

    kernel: KernelCandidate
    results: Mapping[Value, Value]
    """By output of that loop, what the whole kernel writes."""
    tables: tuple[Value, ...]
    """Outputs that rows read, one row for each iteration; some may be results, too."""


@dataclass(frozen=True, slots=True)
class RowLoop:
    """A kernel that is such a loop."""

    whole: KernelCandidate
    length: int
    reverse: bool
    body: KernelCandidate
    """What an iteration does for its rows, and the views before the loop. Its graph's inputs are the kernel's, the
    state, and the rows that come in."""
    states: tuple[State, ...]
    arrays: Mapping[Value, Value]
    """By row that comes in, the array that it is of."""
    stacked: tuple[Stacked, ...]
    shared: Shared | None

    @property
    def given(self) -> tuple[Value, ...]:
        """What an iteration gets."""
        return (*(state.given for state in self.states), *self.arrays)


def row_loop(kernel: KernelCandidate) -> RowLoop:
    """Take a kernel apart. Raises LegalityError, with the reason, where it is no loop of such a kind."""
    loop = control_node(kernel)
    if loop is None or role_of(loop) is not Role.COUNTED_LOOP:
        raise LegalityError("only loops whose number of iterations is known run in blocks of rows")
    if loop.attrs["length"] == 1:
        raise LegalityError("it has one iteration")
    region = straight_body(loop.regions[0])
    _check(region)
    behind = behind_node(kernel.nodes, loop)
    before = [node for node in kernel.nodes if node is not loop and node not in behind]
    shapes = reshaped_results(kernel.nodes, loop)
    written = {shapes.get(value, value): value for value in kernel.outputs}
    parts = loop.attrs["carries"]
    ends = zip(region.inputs, region.outputs[:parts], loop.inputs, loop.outputs, strict=False)
    states = tuple(State(given, made, first, written.get(last)) for given, made, first, last in ends)
    rows = zip(region.outputs[parts:], loop.outputs[parts:], strict=True)
    stacked = tuple(Stacked(made, written[all_], all_.type) for made, all_ in rows if all_ in written)
    arrays = dict(zip(region.inputs[parts:], loop.inputs[parts:], strict=True))
    nodes = tuple(_with_rows(region))
    common, alone = _common_values(states, stacked, nodes)
    dependent = changing_values([s.given for s in states if s.given not in common], nodes)
    of_all, apart = ([s for s in states if s.given in common], [s for s in stacked if s.made in alone])
    own = tuple(s for s in states if s not in of_all), tuple(s for s in stacked if s not in apart)
    needed = _needed([s.made for part in own for s in part], nodes, common)
    is_closed = any(map(is_contraction, needed)) and not any(s.made in dependent for s in of_all)
    if not is_closed or not (of_all or apart):  # where something has no rows, it is refused with a reason
        return _of_rows(kernel, loop, before, nodes, states, arrays, stacked, None)
    read = [*(value for node in needed for value in node.inputs), *(s.made for part in own for s in part)]
    frontier = tuple(dict.fromkeys(value for value in read if value in common))
    shared, tables = _shared(kernel, loop, before, nodes, of_all, arrays, apart, frontier)
    return _of_rows(kernel, loop, before, needed, own[0], {**arrays, **tables}, own[1], shared)


def _check(region: Graph) -> None:
    if not any(is_contraction(node) for node in region.nodes):
        raise LegalityError("there is no product in its body")
    if any(0 in value.type.shape for node in region.nodes for value in node.outputs):
        raise LegalityError("its body has values without elements")


def _of_rows(
    kernel: KernelCandidate,
    loop: Node,
    before: Sequence[Node],
    nodes: Sequence[Node],
    states: tuple[State, ...],
    arrays: Mapping[Value, Value],
    stacked: tuple[Stacked, ...],
    shared: Shared | None,
) -> RowLoop:
    made = {value for node in nodes for value in node.outputs}
    outputs = tuple(dict.fromkeys(s.made for part in (states, stacked) for s in part if s.made in made))
    inputs = (*kernel.inputs, *(state.given for state in states), *arrays)
    graph = Graph(loop.regions[0].name, inputs, (*before, *nodes), outputs)
    body = KernelCandidate(graph, graph.nodes, outputs)
    return RowLoop(kernel, loop.attrs["length"], loop.attrs["reverse"], body, states, arrays, stacked, shared)


def changing_values(given: Sequence[Value], nodes: Sequence[Node]) -> set[Value]:
    """What depends on what an iteration gets."""
    found = set(given)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


# ---- products --------------------------------------------------------------------------------------------------------


def _with_rows(region: Graph) -> Iterator[Node]:
    """The nodes of a body; in `w @ h`, where columns may be what does not depend on one another, they become rows."""
    changing = changing_values(region.inputs, region.nodes)
    for node in region.nodes:
        if role_of(node) is Role.DOT and node.inputs[1] in changing and node.inputs[0] not in changing:
            yield from _reversed_product(node)
        else:
            yield node


def _reversed_product(node: Node) -> tuple[Node, Node]:
    """The same product with its operands the other way round, and what turns its result back."""
    parts, attrs = dot_axes(node), dict(node.attrs)
    for kind in ("batching", "contracting"):
        left, right = f"lhs_{kind}_dimensions", f"rhs_{kind}_dimensions"
        attrs[left], attrs[right] = attrs[right], attrs[left]
    batch, rows, columns = len(parts.lhs_batch), len(parts.lhs_free), len(parts.rhs_free)
    order = (*range(batch), *range(batch + columns, batch + columns + rows), *range(batch, batch + columns))
    shape = node.output.type.shape
    turned = (*shape[:batch], *shape[batch + rows :], *shape[batch : batch + rows])
    product = Value(f"{node.name}.rows", TensorType(turned, node.output.type.dtype))
    first = Node(node.op, node.inputs[::-1], (product,), attrs, (), node.location)
    return first, Node("transpose", (product,), node.outputs, {"permutation": order}, (), node.location)


# ---- what all rows share ---------------------------------------------------------------------------------------------


def _common_values(
    states: Sequence[State], stacked: Sequence[Stacked], nodes: Sequence[Node]
) -> tuple[set[Value], set[Value]]:
    """The state that has none of the rows that products have, with the few numbers made of it that have none either.

    Then what is stacked that has none, nor needs the state of rows.
    """
    dims = Dimensions(nodes, in_body=True)
    products = [node for node in nodes if is_contraction(node)]
    rows = reduce(frozenset.intersection, (grid_factors(node, dims) for node in products))
    if dims.has_conflict() or not rows:
        return set(), set()
    uses = {v: use for node in nodes for n, v in enumerate(node.inputs) if dims.has_axes(use := dims.use(node, n))}

    def is_common(value: Value) -> bool:
        use = value if dims.has_axes(value) else uses.get(value)
        return use is not None and dims.factors(use).isdisjoint(rows)

    found = {state.given for state in states if is_common(state.made)}
    dependent = changing_values([state.given for state in states if state.given not in found], nodes)
    for node in nodes if found else ():
        small = all(is_common(value) and value.type.size <= MAX_HELD for value in node.outputs)
        if small and not found.isdisjoint(node.inputs) and dependent.isdisjoint(node.outputs):
            found.update(node.outputs)
    return found, {s.made for s in stacked if is_common(s.made)} - dependent


def _needed(values: Sequence[Value], nodes: Sequence[Node], known: set[Value]) -> tuple[Node, ...]:
    """The nodes that values need, but for what is known."""
    producers = {value: node for node in nodes for value in node.outputs}
    wanted: set[Node] = set()
    todo = [value for value in values if value not in known]
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node not in wanted:
            wanted.add(node)
            todo += [value for value in node.inputs if value not in known]
    return tuple(node for node in nodes if node in wanted)


def _shared(
    kernel: KernelCandidate,
    loop: Node,
    before: Sequence[Node],
    nodes: Sequence[Node],
    states: Sequence[State],
    arrays: Mapping[Value, Value],
    stacked: Sequence[Stacked],
    frontier: Sequence[Value],
) -> tuple[Shared, Mapping[Value, Value]]:
    """The loop of what all rows share; and by value that rows read of it, the table of that."""
    length = loop.attrs["length"]
    following = tuple(state.made for state in states)
    written = {s.made: s.result for s in stacked}
    more = [s for s in stacked if written[s.made] is not s.result]
    made = (*dict.fromkeys((*frontier, *written)), *(s.made for s in more))
    inner = _needed([*following, *made], nodes, set())
    given = {*(value for node in inner for value in node.inputs), *following, *made}
    coming = [row for row in arrays if row in given]
    inputs = (*(state.given for state in states), *coming)
    outputs = (*following, *made)
    region = Graph(f"{loop.regions[0].name}.shared", inputs, inner, outputs, free_values(inputs, inner, outputs))
    last = [Value(f"{state.given.name}.last", state.given.type) for state in states]
    rows = [
        Value(f"{value.name}.table{number}", TensorType((length, *value.type.shape), value.type.dtype))
        for number, value in enumerate(made)
    ]
    operands = (*(state.initial for state in states), *(arrays[row] for row in coming))
    attrs = {"length": length, "carries": len(states), "reverse": loop.attrs["reverse"]}
    node = Node("scan", operands, (*last, *rows), attrs, (region,), loop.location)
    results = {value: state.result for value, state in zip(last, states, strict=True) if state.result is not None}
    results |= {all_: written[value] for value, all_ in zip(made, rows, strict=True) if value in written}
    results |= {all_: s.result for all_, s in zip(rows[len(made) - len(more) :], more, strict=True)}
    tables = dict(zip(made, rows, strict=False))
    tables = {value: tables[value] for value in frontier}
    wanted = tuple(dict.fromkeys((*results, *tables.values())))
    graph = Graph(region.name, kernel.inputs, (*before, node), wanted)
    alone = part_of(KernelCandidate(graph, graph.nodes, wanted), wanted)
    return Shared(alone, results, tuple(tables.values())), tables
