"""Are a plan's answers right? They are held against the interpreter's, and on wish against the function's own.

The interpreter computes the plan's graph, so it finds what is wrong with kernels. The function itself, run through
NumPy, also finds what was understood wrongly when it was traced. Both must be within the same bounds of rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.ir import tree
from autofuse.ir.parameters import call_in_order
from autofuse.ir.parts import as_parts

if TYPE_CHECKING:
    from autofuse.api.plan import Plan

_MOST_FAULTS = 3
"""That an error repeats in full."""


def verify(plan: Plan, function: Callable[..., Any], values: tuple[Any, ...]) -> None:
    """Raise WrongAnswerError unless plan and function give the same, within bounds of rounding.

    `values`: those of the plan's parameters, in order. Each call gets copies: what it writes meets nobody.
    """
    from autofuse.measurement.checks import WrongAnswerError

    found = faults_of(plan, values, function)
    if found:
        more = f"; and {len(found) - _MOST_FAULTS} more" if len(found) > _MOST_FAULTS else ""
        raise WrongAnswerError(f"{plan.document.name}: {'; '.join(found[:_MOST_FAULTS])}{more}")


def faults_of(plan: Plan, values: tuple[Any, ...], function: Callable[..., Any] | None = None) -> list[str]:
    """What is wrong with a plan's answers for these values of its parameters, and with the function's, if given.

    Arrays that are written into are answers too.
    """
    from autofuse.ir.interpreter import interpret
    from autofuse.measurement.errorbounds import bounds_of

    graph = plan.graph
    given = [as_parts(np.array(array, order="C")) for array in leaves_of(values)]
    if len(given) != len(graph.inputs):
        raise ArgumentError(f"{plan.document.name}: to check answers takes arrays of NumPy, not those of a device")
    numbers = _answers(plan)
    computed, bounds = interpret(graph, *given), bounds_of(graph, given)
    expected = [(computed[number], bounds[number]) for number in numbers]
    names = [f"output {place} (%{graph.outputs[number].name})" for place, number in enumerate(numbers)]
    faults = list(_wrong("", names, _called(plan, plan.in_order, values), expected))
    if function is not None:
        parameters = plan.document.parameters
        try:
            actual = _called(plan, partial(call_in_order, function, parameters), values)
        except ArgumentError as differs:
            return [*faults, f"the function gives what was not traced: {differs}"]
        faults += _wrong("of the function itself, ", names, actual, expected)
    return faults


def leaves_of(value: Any) -> list[NDArray[Any]]:
    """The arrays of arguments or results, in order."""
    return [np.asarray(leaf) for leaf in tree.flatten(value, _is_array)[0]]


def _answers(plan: Plan) -> list[int]:
    """Which of the graph's outputs are results, and new values of arguments: the others are a matter of checks."""
    outputs, written = len(plan.graph.outputs), len(plan.document.writebacks)
    return [*range(tree.count_leaves(plan.document.out_tree)), *range(outputs - written, outputs)]


def _called(plan: Plan, call: Callable[[tuple[Any, ...]], Any], values: tuple[Any, ...]) -> list[Any]:
    """What a call gives, and then has in the arrays that it wrote into. Raises ArgumentError for another structure."""
    own = copy.deepcopy(values)  # generators and arrays that are given twice are so in the copy
    results = tree.flatten_as(plan.document.out_tree, call(own), "the result")
    written = leaves_of(own)
    return [*results, *(written[number] for number in plan.document.writebacks)]


def _wrong(whose: str, names: list[str], actual: list[Any], expected: list[tuple[Any, Any]]) -> Iterator[str]:
    from autofuse.measurement.checks import WrongAnswerError, check

    for name, found, (right, bound) in zip(names, actual, expected, strict=True):
        try:
            check(f"{whose}{name}", _as_answer(found, right.dtype), right, bound)
        except WrongAnswerError as wrong:
            yield str(wrong)


def _as_answer(found: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An answer as the graph has it. A number of Python's, which a plan gives as NumPy's, has the plan's dtype."""
    if isinstance(found, bool | int | float) and not isinstance(found, np.generic):
        return np.asarray(found, dtype)
    return as_parts(np.array(found, order="C"))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)
