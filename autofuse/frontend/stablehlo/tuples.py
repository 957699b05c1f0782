"""Rules of tuples, which exist while a module is translated: their elements are values of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """What stands for a tuple."""

    elements: tuple[Any, ...]
    """Values, and bundles of them."""


def elements_of(values: Iterable[Any]) -> list[Value]:
    """Values, and all that is in bundles among them, in order."""
    found: list[Value] = []
    for value in values:
        found += elements_of(value.elements) if isinstance(value, Bundle) else [value]
    return found


def _tuple(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    del emitter
    return cast("Sequence[Value]", (Bundle(operation.operands),))


def _element(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    del emitter
    (bundle,) = cast("Sequence[Bundle]", operation.operands)
    return (bundle.elements[operation.integer("index")],)


RULES: Mapping[str, Rule] = {"stablehlo.get_tuple_element": _element, "stablehlo.tuple": _tuple}
