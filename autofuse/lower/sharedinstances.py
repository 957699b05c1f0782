"""Values that several stages of a kernel need: the costly ones are kept on chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autofuse.ir.graph import Graph
from autofuse.ir.index import Symbol
from autofuse.ir.oprecord import ElementwiseOp
from autofuse.ir.optable import lookup
from autofuse.lower.phasedrafts import Instance, PhaseDraft, StageDraft
from autofuse.lower.schedule import PLACEMENT, Schedule
from autofuse.lower.tile import Phase

_COSTLY = 8
"""Vector instructions from which on a value is kept: a store and a load cost less."""


def shared_instances(
    graph: Graph, phase: Phase, draft: PhaseDraft, schedule: Schedule
) -> dict[Instance, tuple[int, tuple[Symbol, ...]]]:
    """Expensive values that several stages need, and the level that computes them."""
    if schedule[PLACEMENT] == "recompute" or phase.vectorised is not None:
        return {}
    first: dict[Instance, StageDraft] = {}
    keep: dict[Instance, tuple[int, tuple[Symbol, ...]]] = {}
    for stage in draft.ordered():
        for instance in _topmost(stage, first):
            home = first[instance]
            alike = home.level < stage.level and set(home.symbols) == set(stage.symbols)
            if alike and _is_expensive(graph, stage, instance):
                keep[instance] = home.level, home.symbols
        for instance in stage.reads:
            first.setdefault(instance, stage)
    return keep


def _is_expensive(graph: Graph, stage: StageDraft, instance: Instance) -> bool:
    """Whether computing an instance anew costs more than a store and a load."""
    seen: set[Instance] = set()
    todo = [instance]
    work = 0.0
    while todo:
        current = todo.pop()
        node = graph.producers.get(current[0])
        if current in seen or node is None:
            continue
        seen.add(current)
        op = lookup(node.op)
        if isinstance(op, ElementwiseOp):
            work += op.work.vectors
        todo += stage.reads.get(current, [])
    return work >= _COSTLY


def _topmost(stage: StageDraft, known: Mapping[Instance, StageDraft]) -> Iterator[Instance]:
    """From what a stage stores or reduces downwards, the first instances that an earlier stage computed already."""
    seen: set[Instance] = set()
    todo = list(stage.roots)
    while todo:
        instance = todo.pop()
        if instance in seen:
            continue
        seen.add(instance)
        if instance in known:
            yield instance
        else:
            todo += stage.reads.get(instance, [])
