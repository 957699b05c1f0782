"""Tuning on a bench without a machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.ir.graph import Graph
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.context import Context
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.tune.tuner import Tuner
from autofuse.testing.benches import SyntheticBench
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import attention_graph, diamond_graph, layers_graph, softmax_graph

PLENTY = Budget(seconds=1000.0)


def tuner_of(
    graph: Graph,
    bench: SyntheticBench,
    budget: Budget = PLENTY,
    seed: int = 0,
    context: Context | None = None,
    schedules: type[ScheduleTuner] = ScheduleTuner,
) -> Tuner:
    """A tuner of a graph, by the bench's clock.

    `context`: by default one without rules and limits. `schedules`: as for `Tuner`.
    """

    def report(what: str, done: float, total: float) -> None:
        del what, done, total

    stands_in: Any = bench
    context = context or context_of(graph)
    return Tuner(context, stands_in, identity_here(), budget, seed, report, bench.clock, schedules)


def tuned(graph: Graph, bench: SyntheticBench, **options: Any) -> PlanDocument:
    """The plan of the measuring search. `options`: as for `tuner_of`."""
    return tuner_of(graph, bench, **options).measured_plan()


def small_graphs() -> dict[str, Graph]:
    """Graphs whose spaces are searched in a moment, by name."""
    return {
        "softmax": softmax_graph(64, 64),
        "attention": attention_graph(64, 32),
        "layers": layers_graph(2, 64, 64),
        "diamond": diamond_graph(4096),
        **{f"random {seed}": random_graph(np.random.default_rng(seed), 14) for seed in range(4)},
    }
