"""Where memory is short, values that wait long for their last readers may be computed again: graphs that keep less.

The solver lets a kernel compute elementwise values for itself. What a backward pass needs of the forward pass is more:
chains through products and reductions, made by kernels of their own. So the graph is changed, and searched as any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from autofuse.errors import SearchError
from autofuse.fusion.userrules import NO_RULES
from autofuse.passes.choices import savings
from autofuse.passes.pipeline import can_change
from autofuse.passes.recomputing import estimated_bytes
from autofuse.search.policies.context import Context
from autofuse.search.variants.variants import varied

_Found = TypeVar("_Found")


def keeping_less(context: Context) -> Iterator[Context]:
    """The same question about the usual graph and those that keep less, in the order in which they are worth asking.

    Those that fit by an estimate come first, and then what computes least again; of the others what is the smallest.
    Only the given one without a limit, for a variant that is asked for, and under rules of a user, which name nodes.
    """
    program, memory = context.program, context.memory
    if memory is None or program.variant is not None or context.control != NO_RULES:
        yield context
        return
    fits = estimated_bytes(program.graph) <= memory.nbytes
    if fits:
        yield context
    others = [varied(program, choices) for choices in savings() if can_change(program.to_vary, choices)]
    graphs = [(estimated_bytes(other.graph), other) for other in others]
    graphs += [] if fits else [(estimated_bytes(program.graph), program)]
    for _, other in sorted(graphs, key=lambda entry: max(entry[0], memory.nbytes)):
        yield context if other is program else context.about(other, context.kernels.bounds)


def first_that_fits(
    context: Context,
    decide: Callable[[Context, float | None], _Found],
    seconds: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> _Found:
    """What is decided about the first of the graphs that has a plan within the memory.

    `seconds`: for all of them; each has half of what is left, if there may be others. `decide`: about a context, in so
    many seconds. Raises the SearchError of the first where there is none.
    """
    end = None if seconds is None else clock() + seconds
    share = 1.0 if context.memory is None else 0.5
    failure: SearchError | None = None
    for each in keeping_less(context):
        try:
            return decide(each, None if end is None else share * max(end - clock(), 0.0))
        except SearchError as error:
            failure = failure or error
    assert failure is not None, "there is one graph at least"
    raise failure
