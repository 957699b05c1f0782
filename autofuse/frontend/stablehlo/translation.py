"""From a module to a graph: its main function, operation by operation, with the functions that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.errors import GraphError, ParseError
from autofuse.frontend import finishing
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.genericform import Argument, Block, Written
from autofuse.frontend.stablehlo.locations import given_name
from autofuse.frontend.stablehlo.module import MAIN, Module, main_of
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import OUTSIDE, UnsupportedOperation, refusal
from autofuse.frontend.stablehlo.table import RULES
from autofuse.frontend.stablehlo.tensortypes import Shaped, shaped, tensor_type
from autofuse.frontend.stablehlo.tuples import Bundle, elements_of
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.lazydataclass import dataclass

_RETURNS = frozenset(("func.return", "stablehlo.return"))
_TUPLE = "stablehlo.tuple"
_TAKE_TUPLES = frozenset(("func.return", "func.call", _TUPLE, "stablehlo.get_tuple_element"))
_DEEPEST = 64
"""Calls within calls."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of the main function."""

    name: str | None
    """What the producer calls it, if it says so."""
    type: Shaped


def parameters_of(module: Any) -> tuple[Parameter, ...]:
    """The arguments of the main function of jaxlib's module.

    Raises ParseError without such a function, TraceError for types of no graph.
    """
    try:
        return tuple(
            Parameter(given_name(str(given.location)), shaped(str(given.type))) for given in main_of(module).arguments
        )
    except UnsupportedOperation as error:
        raise refusal(f"@{MAIN}", None, error.problem, error.instead) from None


def graph_of(module: Module, name: str, inputs: Sequence[Value] = (), around: GraphBuilder | None = None) -> Graph:
    """The graph of a module's main function, whose arguments have static shapes.

    `name`: of the graph. `inputs`: what it is to take, in place of inputs of its own. `around`: what makes another
    graph, where this one's names are to be unique too. Raises ParseError without a main function, TraceError for what
    autofuse does not have.
    """
    for attribute in ("mhlo.num_partitions", "mhlo.num_replicas"):
        count = module.count(attribute)
        if count != 1:
            raise refusal(
                f"@{MAIN}", None, f"is for {count} devices ({attribute})", "export the program for one device"
            )
    return _Translator(module).graph(name, inputs, around)


class _Translator:
    """Translates one module once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._tuples = module.mentions((_TUPLE,))
        self._under_way: list[str] = []
        self._scopes: list[dict[str, Value]] = []
        """For each function under way: the values of the graph that stand for the module's."""
        self._nodes: dict[tuple[str, str, str], tuple[Node, Any]] = {}
        """By name, attributes and types of an operation: the node that it became, and the number that that is."""

    def graph(self, name: str, given: Sequence[Value], around: GraphBuilder | None) -> Graph:
        builder = GraphBuilder(name, around)
        emitter = Emitter(builder, self._block, self._call)
        called, main = self._module.main
        inputs = given or [
            builder.input(tensor_type(taken.type), finishing.word(self._named(taken) or f"arg{number}"))
            for number, taken in enumerate(main.regions[0][0].arguments if main.regions[0] else ())
        ]
        made = builder.finish(elements_of(self._body(called, main, emitter, inputs)))
        return finishing.pruned(Graph(name, tuple(inputs), made.nodes, made.outputs))

    def _named(self, argument: Argument) -> str | None:
        return self._module.locations.name(argument.location)

    def _call(self, name: str, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        function = self._module.functions.get(name)
        if function is None or not function.regions[0]:
            raise UnsupportedOperation(f"calls @{name}, which the module does not define", "link the modules first")
        if name in self._under_way or len(self._under_way) >= _DEEPEST:
            raise UnsupportedOperation(
                f"calls @{name} within itself, or calls go {_DEEPEST} deep", "write the recursion as a stablehlo.while"
            )
        return self._body(name, function, emitter, arguments)

    def _body(self, name: str, function: Written, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        self._under_way.append(name)
        self._scopes.append({})
        try:
            blocks = function.regions[0]
            if len(blocks) != 1:
                raise UnsupportedOperation(
                    f"is in @{name}, which has {len(blocks)} blocks",
                    "use stablehlo.while, if and case for control flow",
                )
            return self._block(blocks[0], emitter, arguments)
        finally:
            self._under_way.pop()
            self._scopes.pop()

    def _block(self, block: Block, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        """The values that a block returns."""
        scope, function, place = self._scopes[-1], self._under_way[-1], self._module.locations.place
        scope.update(zip((given.value for given in block.arguments), arguments, strict=True))
        outer = emitter.builder.location
        for operation in block.operations:
            operands = [scope[value] for value in operation.operands.split(", ")] if operation.operands else []
            location = place(operation.location, function)
            if self._tuples and operation.name not in _TAKE_TUPLES and any(isinstance(v, Bundle) for v in operands):
                raise refusal(
                    operation.name,
                    location,
                    "takes a tuple; only calls of functions, tuple and get_tuple_element do",
                    "give its elements one by one",
                )
            if operation.name in _RETURNS:
                emitter.builder.location = outer
                return operands
            emitter.builder.location = location or outer
            results = self._again(operation, operands, emitter) or self._results(operation, operands, emitter)
            if len(results) == 1:
                scope[operation.results] = results[0]
            else:
                scope.update(zip(operation.values, results, strict=True))
        raise ParseError("from_stablehlo: a block ends without a return")

    def _again(self, operation: Written, operands: Sequence[Value], emitter: Emitter) -> Sequence[Value]:
        """The results, where an operation that is written alike became one node; nothing where none did."""
        known = self._nodes.get((operation.name, operation.attributes, operation.types))
        if known is None:
            return ()
        node, number = known
        for given, taken in zip(operands, node.inputs, strict=True):
            if given.type is not taken.type and given.type != taken.type:
                return ()
        return emitter.adopt(node, operands, number)

    def _results(self, operation: Written, operands: Sequence[Value], emitter: Emitter) -> Sequence[Value]:
        """What a rule makes of an operation. Raises TraceError that names it."""
        builder = emitter.builder
        location, count = builder.location, len(builder.nodes)
        rule = RULES.get(operation.name)
        try:
            if rule is None:
                raise UnsupportedOperation("is not among the operations that autofuse translates")
            results = rule(Operation(operation, operands, self._module.attributes(operation)), emitter)
        except UnsupportedOperation as error:
            raise refusal(operation.name, location, error.problem, error.instead) from None
        except GraphError as error:
            raise refusal(operation.name, location, f"cannot be translated: {error}", OUTSIDE) from error
        if len(builder.nodes) == count + 1 and not operation.regions:
            self._learn(operation, builder.nodes[-1], operands, results, emitter)
        return results

    def _learn(
        self,
        operation: Written,
        node: Node,
        operands: Sequence[Value],
        results: Sequence[Value],
        emitter: Emitter,
    ) -> None:
        """Keep the one node that an operation became, where it does nothing but take the operands and give the results.

        Its place tells it from nodes of a function that is called.
        """
        same = node.inputs == tuple(operands) and node.outputs == tuple(results)
        if same and node.location is emitter.builder.location:
            number = emitter.number(node.output) if len(results) == 1 else None
            self._nodes[operation.name, operation.attributes, operation.types] = node, number
