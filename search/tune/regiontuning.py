"""What is inside loops and branches that are no kernel, tuned: each region on the first state and the middle row.

A region is a program like any other (`policies/regionplans.py`), so it is tuned as one, with a part of the budget as
large as its part of the model's price. The whole program is tuned after that, with the regions as they were found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import MeasureError, SearchError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.regionprograms import control_node
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.interpreter import interpret_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import replace
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.context import Context
from autofuse.search.policies.regionplans import RegionPlans

Array = NDArray[Any]
Tune = Callable[[Context, Sequence[Array], Budget], PlanDocument]
"""Tunes a program on arguments, within a budget."""

_SHARE = 0.5
"""Of the budget, for all regions."""
_LEAST_SHARE = 0.05
"""A region with less of the price of all is left as the model would have it."""


def tune_regions(
    context: Context, regions: RegionPlans | None, arrays: Sequence[Array], budget: Budget, tune: Tune
) -> Budget:
    """Tune what is inside the loops and branches of a program that are no kernel; what is left of the budget.

    `arrays`: the program's arguments. `regions`: None where the target runs no such plans. Loops inside of loops are
    as the model would have them, and so are regions that cannot be measured.
    """
    start = monotonic()
    if regions is None or not any(role_of(node).is_control for node in context.program.graph.nodes):
        return budget
    inside = [
        (node, number, price)
        for node, kernel in _driven(context).items()
        for number, price in enumerate(regions.shares(kernel))
    ]
    whole = sum(price for _, _, price in inside)
    chosen = [(node, number, price / whole) for node, number, price in inside if price > _LEAST_SHARE * whole]
    values = _values(context.program.graph, arrays, [node for node, _, _ in chosen])
    trials = 0
    for node, number, share in chosen:
        part = _part(budget, _SHARE * share)
        trials += part.max_trials or 0
        region = regions.context(node, number)
        try:
            document = tune(region, _arguments(region.program.graph, node, number, values), part)
        except (MeasureError, SearchError):
            continue
        regions.keep(node, number, document)
    context.kernels.prices.forget_driven(context.space.candidates)
    left = budget.without(monotonic() - start, begun=False)
    if left.max_trials is None:
        return left
    trials = min(trials, left.max_trials - 1)
    return replace(left, max_trials=left.max_trials - trials, spent_trials=trials)


def _driven(context: Context) -> Mapping[Node, KernelCandidate]:
    """The loops and branches that are no kernel."""
    found: dict[Node, KernelCandidate] = {}
    for candidate in context.space.candidates:
        node = control_node(candidate.kernel)
        if node is not None and context.kernels.prices.is_driven(candidate):
            found.setdefault(node, candidate.kernel)
    return found


def _part(budget: Budget, share: float) -> Budget:
    seconds = budget.seconds * share if math.isfinite(budget.seconds) else budget.seconds
    trials = None if budget.max_trials is None else max(1, int(budget.max_trials * share))
    return replace(budget, seconds=seconds, max_trials=trials, spent_s=0.0, kept_s=0.0)


def _values(graph: Graph, arrays: Sequence[Array], nodes: Sequence[Node]) -> Mapping[Value, Array]:
    """What the regions of nodes begin with, and what they read beside."""
    wanted = dict.fromkeys(value for node in nodes for value in graph.reads(node))
    found = interpret_values(graph, arrays, {value.name for value in wanted}) if wanted else {}
    return {value: found[value.name] for value in wanted}


def _arguments(graph: Graph, node: Node, number: int, values: Mapping[Value, Array]) -> list[Array]:
    """The arguments of a region's program: the state of the first iteration, rows from the middle.

    A counter there bounds loops to what they are on average.
    """
    counted = role_of(node) is Role.COUNTED_LOOP
    carries = node.attrs["carries"] if counted else len(node.inputs)
    given = dict(values)
    region = node.regions[number]
    for position, value in enumerate(region.inputs):
        array = values[node.inputs[position]]
        given[value] = array if position < carries else array[len(array) // 2]
    return [given[value] for value in graph.inputs]
