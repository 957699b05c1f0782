"""Selections of kernels: in which order they can run, for which values they wait in vain, which writes they need."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Run:
    """One kernel of a selection."""

    number: int
    """Of the candidate."""
    reads: tuple[Value, ...]
    """Values that another kernel must have written."""
    writes: tuple[Value, ...]


def in_topological_order(runs: Sequence[Run], rank: Sequence[int]) -> tuple[list[Run], list[Value]]:
    """Run what can run: the kernels in that order, and the values that those which never can are waiting for.

    Of the kernels that are ready, the one of the lowest `rank` (by candidate number) runs first.
    """
    waiting: dict[Value, list[int]] = {}
    lacking = [len(run.reads) for run in runs]
    for position, run in enumerate(runs):
        for value in run.reads:
            waiting.setdefault(value, []).append(position)
    ready = [(rank[run.number], position) for position, run in enumerate(runs) if not run.reads]
    heapq.heapify(ready)
    order: list[Run] = []
    while ready:
        run = runs[heapq.heappop(ready)[1]]
        order.append(run)
        for value in run.writes:
            for position in waiting.pop(value, ()):
                lacking[position] -= 1
                if not lacking[position]:
                    heapq.heappush(ready, (rank[runs[position].number], position))
    return order, list(waiting)


def trimmed(order: Sequence[Run], outputs: Collection[Value]) -> list[Run]:
    """The same without what nobody needs: the first kernel that writes a value provides it, the others need not."""
    provider: dict[Value, int] = {}
    for position, run in enumerate(order):
        for value in run.writes:
            provider.setdefault(value, position)
    needed = set(outputs)
    kept: list[Run] = []
    for position in reversed(range(len(order))):
        run = order[position]
        writes = tuple(v for v in run.writes if v in needed and provider[v] == position)
        if writes:
            kept.append(replace(run, writes=writes))
            needed.update(run.reads)
    return kept[::-1]


def completed(order: Sequence[Run], values: Sequence[Value], writers: Mapping[Value, Sequence[Run]]) -> list[Run]:
    """The order with kernels added until all of `values` (in topological order) are made, as far as possible.

    `writers`: the kernels that can make a value, the best first.
    """
    done = {value for run in order for value in run.writes}
    longer = list(order)
    while True:
        before = len(longer)
        for value in values:
            if value not in done:
                run = next((r for r in writers[value] if done.issuperset(r.reads)), None)
                if run is not None:
                    longer.append(run)
                    done.update(run.writes)
        if len(longer) == before:  # an early value may need a kernel that reads a later one
            return longer
