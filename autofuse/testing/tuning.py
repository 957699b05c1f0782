"""Tuning on a bench without a machine."""

from __future__ import annotations

from typing import Any

from autofuse.ir.graph import Graph
from autofuse.plan.document import PlanDocument
from autofuse.search.budget import Budget
from autofuse.search.policy import Context
from autofuse.search.tuner import Tuner
from autofuse.testing.benches import SyntheticBench
from autofuse.testing.partitions import context_of, identity_here

PLENTY = Budget(seconds=1000.0)


def tuner_of(
    graph: Graph, bench: SyntheticBench, budget: Budget = PLENTY, seed: int = 0, context: Context | None = None
) -> Tuner:
    """A tuner of a graph, by the bench's clock. `context`: by default one without rules and limits."""

    def report(what: str, done: float, total: float) -> None:
        del what, done, total

    stands_in: Any = bench
    return Tuner(context or context_of(graph), stands_in, identity_here(), budget, seed, report, bench.clock)


def tuned(graph: Graph, bench: SyntheticBench, **options: Any) -> PlanDocument:
    """The plan of the measuring search. `options`: as for `tuner_of`."""
    return tuner_of(graph, bench, **options).measured_plan()
