"""From a module to a graph: its main function, operation by operation, with the functions that it calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.errors import GraphError, ParseError
from autofuse.frontend import finishing
from autofuse.frontend.stablehlo.bindings import Bindings, bindings
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.locations import given_name, location_of
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import OUTSIDE, UnsupportedOperation, refusal
from autofuse.frontend.stablehlo.table import RULES
from autofuse.frontend.stablehlo.tensortypes import Shaped, shaped, tensor_type
from autofuse.frontend.stablehlo.tuples import Bundle, elements_of
from autofuse.ir.graph import Graph, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.lazydataclass import dataclass

MAIN = "main"
_RETURNS = frozenset(("func.return", "stablehlo.return"))
_TAKE_TUPLES = frozenset(("func.return", "func.call", "stablehlo.tuple", "stablehlo.get_tuple_element"))
_DEEPEST = 64
"""Calls within calls."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of the main function."""

    name: str | None
    """What the producer calls it, if it says so."""
    type: Shaped


def parameters_of(module: Any) -> tuple[Parameter, ...]:
    """The arguments of a module's main function. Raises ParseError without one, TraceError for types of no graph."""
    main = main_of(module)
    try:
        return tuple(Parameter(given_name(given.location), shaped(str(given.type))) for given in main.arguments)
    except UnsupportedOperation as error:
        raise refusal(f"@{MAIN}", None, error.problem, error.instead) from None


def main_of(module: Any) -> Any:
    """The function that a module is run by. Raises ParseError."""
    functions = _functions(module)
    if MAIN in functions:
        return functions[MAIN]
    public = [name for name, found in functions.items() if "sym_visibility" not in found.attributes]
    if len(public) == 1:
        return functions[public[0]]
    names = ", ".join(f"@{name}" for name in functions) or "no functions"
    raise ParseError(f"from_stablehlo: the module has no @{MAIN}; it has {names:.200}: rename the one to run to {MAIN}")


def _functions(module: Any) -> Mapping[str, Any]:
    found = {}
    for operation in module.body.operations:
        if operation.operation.name == "func.func":
            found[str(operation.attributes["sym_name"].value)] = operation
    return found


def graph_of(module: Any, name: str, own: str) -> Graph:
    """The graph of a module's main function, whose arguments have static shapes.

    `name`: of the graph. `own`: what to call the module's text in locations. Raises ParseError without a main function,
    TraceError for what autofuse does not have.
    """
    for attribute in ("mhlo.num_partitions", "mhlo.num_replicas"):
        attributes = module.operation.attributes
        count = int(attributes[attribute].value) if attribute in attributes else 1
        if count != 1:
            raise refusal(
                f"@{MAIN}", None, f"is for {count} devices ({attribute})", "export the program for one device"
            )
    return _Translator(module, own).graph(name)


class _Translator:
    """Translates one module once."""

    def __init__(self, module: Any, own: str) -> None:
        self._bindings: Bindings = bindings()
        self._own = own
        self._functions = _functions(module)
        self._main = main_of(module)
        self._under_way: list[str] = []
        self._scopes: list[dict[Any, Value]] = []
        """For each function under way: the values of the graph that stand for the module's."""

    def graph(self, name: str) -> Graph:
        builder = GraphBuilder(name)
        emitter = Emitter(builder, self._block, self._call)
        inputs = [
            builder.input(tensor_type(str(given.type)), given_name(given.location) or f"arg{number}")
            for number, given in enumerate(self._main.arguments)
        ]
        outputs = self._body(str(self._main.attributes["sym_name"].value), self._main, emitter, inputs)
        return finishing.finish(builder.finish(elements_of(outputs)), {value: value.name for value in inputs})

    def _call(self, name: str, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        function = self._functions.get(name)
        if function is None or not len(function.regions[0].blocks):
            raise UnsupportedOperation(f"calls @{name}, which the module does not define", "link the modules first")
        if name in self._under_way or len(self._under_way) >= _DEEPEST:
            raise UnsupportedOperation(
                f"calls @{name} within itself, or calls go {_DEEPEST} deep", "write the recursion as a stablehlo.while"
            )
        return self._body(name, function, emitter, arguments)

    def _body(self, name: str, function: Any, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        self._under_way.append(name)
        self._scopes.append({})
        try:
            blocks = list(function.regions[0].blocks)
            if len(blocks) != 1:
                raise UnsupportedOperation(
                    f"is in @{name}, which has {len(blocks)} blocks",
                    "use stablehlo.while, if and case for control flow",
                )
            return self._block(blocks[0], emitter, arguments)
        finally:
            self._under_way.pop()
            self._scopes.pop()

    def _block(self, block: Any, emitter: Emitter, arguments: Sequence[Value]) -> list[Value]:
        """The values that a block returns."""
        scope = self._scopes[-1]
        scope.update(zip(block.arguments, arguments, strict=True))
        outer = emitter.builder.location
        for operation in block.operations:
            name = str(operation.operation.name)
            operands = [scope[value] for value in operation.operands]
            if name not in _TAKE_TUPLES and any(isinstance(value, Bundle) for value in operands):
                raise refusal(
                    name,
                    location_of(operation.location, self._under_way[-1], self._own),
                    "takes a tuple; only calls of functions, tuple and get_tuple_element do",
                    "give its elements one by one",
                )
            if name in _RETURNS:
                emitter.builder.location = outer
                return operands
            location = location_of(operation.location, self._under_way[-1], self._own)
            emitter.builder.location = location or outer
            scope.update(zip(operation.results, self._results(name, operation, operands, emitter), strict=True))
        raise ParseError("from_stablehlo: a block ends without a return")

    def _results(self, name: str, operation: Any, operands: Sequence[Value], emitter: Emitter) -> Sequence[Value]:
        """What a rule makes of an operation of that name. Raises TraceError that names it."""
        location = emitter.builder.location
        rule = RULES.get(name)
        try:
            if rule is None:
                raise UnsupportedOperation("is not among the operations that autofuse translates")
            return rule(Operation(operation, operands, self._bindings), emitter)
        except UnsupportedOperation as error:
            raise refusal(name, location, error.problem, error.instead) from None
        except GraphError as error:
            raise refusal(name, location, f"cannot be translated: {error}", OUTSIDE) from error
