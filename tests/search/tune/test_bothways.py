"""Loops of a winner are raced against the other way to run them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import autofuse as af
from autofuse.api.partitioning import drive
from autofuse.fusion.userrules import Pin, bind
from autofuse.lazydataclass import replace
from autofuse.passes.pipeline import clean
from autofuse.plan.verify import verify
from autofuse.runtime.planlowering import lower_plan
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.tune.bothways import best_ways
from autofuse.search.tune.finalists import Finalist, Races, Standings
from autofuse.targets.base import find_target
from autofuse.testing.partitions import context_of, identity_here
from tests.fixtures.rowprograms import PROGRAMS


class Judge(Races):
    """Finds plans with loops of a kind faster."""

    def __init__(self, kind: str) -> None:
        self.kind, self.raced = kind, list[Sequence[Finalist]]()

    def decide(self, finalists: Sequence[Finalist], seconds: float, limit_s: float | None = None) -> Standings:
        del seconds, limit_s
        self.raced.append(finalists)
        good = [f for f in finalists if all(k.kind in (self.kind, "loop") for k in f.plan.kernels)]
        return Standings((good or finalists)[-1], 1.0, {}, "")


def ended(name: str, rules: Sequence[Pin] = ()) -> tuple[Standings, Context]:
    """As a tuning run ends that has a program's analytical plan."""
    function, arguments = PROGRAMS[name]
    graph = clean(af.trace(function, *arguments))
    context = context_of(graph, target=find_target("cpu"))
    context = replace(context, problem=replace(context.problem, control=bind(list(rules), graph)))
    drive(context, Analytical(), None)
    partition = Analytical().partition(context)
    plan = document_of(context, partition, identity_here())
    return Standings(Finalist("measured", partition, plan), 2.0, {}, ""), context


@pytest.mark.parametrize("kind", ["rows", "driver"])
def test_what_was_faster_is_kept(kind: str) -> None:
    standings, context = ended("turned_weights")
    judge = Judge(kind)
    again = best_ways(standings, context, judge, lambda: (1.0, None))
    plan = again.winner.plan
    assert [len(finalists) for finalists in judge.raced] == [2]
    assert [kernel.kind for kernel in plan.kernels] == ["loop", kind]
    assert [bool(kernel.regions) for kernel in plan.kernels] == [False, kind == "driver"]
    assert any("which was faster" in note for note in plan.notes) == (kind == "driver")
    verify(plan)
    assert [kernel.planned.kind for kernel in lower_plan(plan, context.limits)] == ["loop", kind]


def test_without_time_all_is_as_it_was() -> None:
    standings, context = ended("elman")
    assert best_ways(standings, context, Judge("driver"), lambda: None) is standings


def test_what_a_rule_decides_is_not_raced() -> None:
    standings, context = ended("elman", [Pin("scan", schedule={"iterations": "rows"})])
    judge = Judge("driver")
    assert best_ways(standings, context, judge, lambda: (1.0, None)) is standings
    assert judge.raced == []


@pytest.mark.slow
def test_tuned_plans_are_right() -> None:
    function, arguments = PROGRAMS["lstm"]
    plan = af.tune(function, *arguments, budget=6.0, progress=False)
    assert plan.kernels[-1].kind in ("rows", "driver")
    for got, right in zip(plan(*arguments)[0], function(*arguments)[0], strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
