"""The NumPy interpreter: it defines what a graph means; every backend is tested against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, AutofuseError, GraphError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Region
from autofuse.ir.optable import has_calls, lookup

Array = NDArray[Any]
T = TypeVar("T")


def interpret(graph: Graph, *arrays: Any) -> tuple[Array, ...]:
    """The outputs of `graph` for these inputs, in order; fresh arrays that share no memory with the inputs.

    Raises ArgumentError for inputs of another number, shape or dtype, GraphError where an op cannot be evaluated.
    """
    held = _checked(graph, arrays)
    with np.errstate(all="ignore"):
        results = _run(graph, held)
    return _owned(results, held)


def interpret_values(graph: Graph, arrays: Sequence[Any], wanted_names: Collection[str]) -> dict[str, Array]:
    """The named values of `graph` (inputs, intermediates, outputs) for these inputs.

    Raises ArgumentError for a name that the graph does not have, and as `interpret` does.
    """
    unknown = [name for name in wanted_names if name not in graph.value_by_name]
    if unknown:
        raise ArgumentError(f"wanted_names: graph {graph.name} has no value %{unknown[0]}")
    wanted = [graph.value_by_name[name] for name in wanted_names]
    held = _checked(graph, arrays)
    narrowed = Graph(graph.name, graph.inputs, graph.nodes, tuple(wanted), graph.captures)
    with np.errstate(all="ignore"):
        results = _run(narrowed, held)
    return dict(zip(wanted_names, _owned(results, held), strict=True))


def interpret_into(graph: Graph, arrays: Sequence[Array], targets: Sequence[Array]) -> None:
    """Write the outputs of `graph` into `targets`, C-contiguous arrays that share no memory with `arrays`.

    Inputs and targets have the types of the graph's, unchecked. Results are copied only where an op cannot write them
    where they belong. Raises GraphError where an op cannot be evaluated.
    """
    Routine(graph).run_into(arrays, targets)


def _run(graph: Graph, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of a graph, unchecked. Callers silence NumPy's warnings. Results may be views of operands."""
    return Routine(graph).run(inputs, (), inputs)


class Routine:
    """A graph or region, made ready to be run many times."""

    def __init__(self, graph: Graph) -> None:
        needed, last_use = live_nodes(graph)
        self._graph = graph
        self._owns_results = not has_calls(graph)
        """A function of a user may return memory that it goes on using."""
        self._steps = [
            (node, tuple(last_use.get(position, ())), tuple(map(Routine, node.regions))) for position, node in needed
        ]
        read = {value for node in graph.nodes for value in graph.reads(node)}
        inside = [set(node.outputs) - set(graph.outputs) for node, _, _ in self._steps]
        self._writes = {step[0] for step, others in zip(self._steps, inside, strict=True) if others.isdisjoint(read)}
        """Nodes whose results are all outputs, but for those that nobody reads."""

    def run_into(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """As `interpret_into`."""
        places: dict[Value, Array] = {}
        for value, target in zip(self._graph.outputs, targets, strict=True):
            places.setdefault(value, target)
        with np.errstate(all="ignore"):
            results = self.run(inputs, (), inputs, places)
        for result, target in zip(results, targets, strict=True):
            if result is not target:
                target[...] = result

    def run(
        self,
        inputs: Sequence[Array],
        captured: Sequence[Array],
        kept: Sequence[Array],
        places: Mapping[Value, Array] = MappingProxyType({}),
    ) -> tuple[Array, ...]:
        """The outputs, for these values of inputs and captures.

        `kept`: arrays whose memory must stay as it is; inputs that are not among them may be changed. `places`: memory
        for all outputs, or none; used where an op can write into it.
        """
        graph = self._graph
        values: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        values.update(zip(graph.captures, captured, strict=True))
        for node, dead, regions in self._steps:
            if places and any(output in places for output in node.outputs):
                values.update(self._evaluate_in_place(node, values, places))
            elif self._owns_results and node.inputs and node.inputs[0] in dead and _is_free(node, values, kept):
                values[node.output] = _evaluate_over(node, values)
            else:
                values.update(zip(node.outputs, _evaluate(node, values, regions), strict=True))
            for value in dead:
                values.pop(value, None)
        return tuple(values[value] for value in graph.outputs)

    def _evaluate_in_place(
        self, node: Node, values: Mapping[Value, Array], places: Mapping[Value, Array]
    ) -> dict[Value, Array]:
        """The results of one node, in memory that is given where its op can do that."""
        into = lookup(node.op).evaluate_into
        if into is None or node not in self._writes:
            return dict(zip(node.outputs, evaluate_node(node, values), strict=True))
        targets = [places.get(output) for output in node.outputs]
        _attempt(node, into, [values[value] for value in node.inputs], node.attrs, targets)
        return {output: places[output] for output in node.outputs if output in places}

    def bound(self, values: Mapping[Value, Array], kept: Sequence[Array]) -> Region:
        """The region that this is of, with what it captures among `values`; `kept` as in `run`."""
        captured = [values[value] for value in self._graph.captures]
        return lambda arguments: self.run(arguments, captured, kept)


def _is_free(node: Node, values: Mapping[Value, Array], kept: Sequence[Array]) -> bool:
    """Whether a node can turn its first operand, which is not read again, into its result."""
    if lookup(node.op).evaluate_over is None:
        return False
    array = values[node.inputs[0]]
    if not (array.flags.c_contiguous and array.flags.writeable):
        return False
    others = [other for value, other in values.items() if value is not node.inputs[0]]
    return not any(np.may_share_memory(array, other) for other in (*others, *kept))


def _evaluate_over(node: Node, values: Mapping[Value, Array]) -> Array:
    rule = lookup(node.op).evaluate_over
    assert rule is not None
    return _attempt(node, rule, [values[value] for value in node.inputs], node.attrs)


def evaluate_node(node: Node, values: Mapping[Value, Array]) -> tuple[Array, ...]:
    """The results of one node, given the values it reads. Raises GraphError where it cannot be evaluated."""
    return _evaluate(node, values, [Routine(region) for region in node.regions])


def _evaluate(node: Node, values: Mapping[Value, Array], regions: Sequence[Routine]) -> tuple[Array, ...]:
    operands = [values[value] for value in node.inputs]
    kept = [*operands, *(values[value] for region in node.regions for value in region.captures)]
    ready = [region.bound(values, kept) for region in regions]
    return _attempt(node, lookup(node.op).evaluate, operands, node.attrs, ready)


def _attempt(node: Node, rule: Callable[..., T], *arguments: Any) -> T:
    """A rule of the node's op on these arguments. Raises GraphError that names the op for whatever NumPy raises."""
    try:
        with np.errstate(all="ignore"):
            return rule(*arguments)
    except AutofuseError:
        raise
    except Exception as error:  # memory that is not there, or an extent that no array can have
        raise GraphError(f"{node.op} cannot be evaluated: {type(error).__name__}: {error}") from error


def live_nodes(graph: Graph) -> tuple[list[tuple[int, Node]], dict[int, list[Value]]]:
    """The nodes that outputs need, and the values that each of them reads last or that nobody reads."""
    live = set(graph.outputs)
    needed: list[tuple[int, Node]] = []
    last_use: dict[int, list[Value]] = {}
    for position in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[position]
        if not any(value in live for value in node.outputs):
            continue
        needed.append((position, node))
        dead = [value for value in (*node.outputs, *graph.reads(node)) if value not in live]
        live.update(dead)
        last_use[position] = dead
    needed.reverse()
    return needed, last_use


def _checked(graph: Graph, arrays: Sequence[Any]) -> list[Array]:
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]  # users give anything
        raise ArgumentError(f"interpret: needs a graph, as af.trace gives, and its arrays; got {type(graph).__name__}")
    if len(arrays) != len(graph.inputs):
        names = ", ".join(repr(value) for value in graph.inputs)
        raise ArgumentError(f"graph {graph.name} takes {len(graph.inputs)} arrays ({names}), got {len(arrays)}")
    held: list[Array] = []
    for value, given in zip(graph.inputs, arrays, strict=True):
        array = np.asarray(given)
        required = value.type
        if array.shape != required.shape or array.dtype != required.dtype.numpy:
            came = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise ArgumentError(f"argument %{value.name} must be {required}, got {came}; convert or reshape it")
        held.append(array)
    return held


def _owned(results: Sequence[Array], inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Each result as an array of its own: copied if it is a view, an input, a constant, or given twice."""
    taken = {id(array) for array in inputs}
    owned: list[Array] = []
    for result in results:
        fresh = result.base is None and result.flags.c_contiguous and result.flags.writeable and id(result) not in taken
        owned.append(result if fresh else np.array(result, order="C", copy=True))
        taken.add(id(owned[-1]))
    return tuple(owned)
