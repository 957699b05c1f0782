"""What is inside of loops is tuned by itself, on the first state and the middle row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import autofuse as af
from autofuse.api.partitioning import drive
from autofuse.errors import MeasureError
from autofuse.lazydataclass import replace
from autofuse.passes.pipeline import clean
from autofuse.plan.codec import encode
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.tune.regiontuning import tune_regions
from autofuse.targets.base import find_target
from autofuse.testing.partitions import context_of, identity_here

_RANDOM = np.random.default_rng(0)
U = _RANDOM.standard_normal((90, 90)).astype(np.float32)
W = _RANDOM.standard_normal((3, 90, 90)).astype(np.float32) * np.float32(0.1)


def step(v: Any, row: Any) -> Any:
    return (np.roll(v, 1, 0) + row) * np.float32(0.5), v.sum()


def looped(u: Any, w: Any) -> Any:
    """Two loops: the second one starts with what the first one gives, and reads rows from the end."""
    first = af.scan(step, u, w)
    return af.scan(lambda v, row: (np.roll(v, 1, 0) @ row, None), first[0], w, reverse=True)[0], first[1]


class Tuned:
    """Stands for tuning: the model's plan, with times."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.arguments: list[Sequence[Any]] = []
        self.budgets: list[Budget] = []

    def __call__(self, context: Context, arrays: Sequence[Any], budget: Budget) -> PlanDocument:
        graph = context.program.graph
        assert [(a.shape, a.dtype) for a in arrays] == [(v.type.shape, v.type.dtype.numpy) for v in graph.inputs]
        self.arguments.append(arrays)
        self.budgets.append(budget)
        if self.fails:
            raise MeasureError("no kernel runs")
        document = document_of(context, Analytical().partition(context), identity_here())
        encode(document)  # as workers are told of it
        return replace(document, kernels=tuple(replace(kernel, measured_us=5.0) for kernel in document.kernels))


def run(tuned: Tuned, budget: Budget) -> tuple[Budget, PlanDocument]:
    context = context_of(clean(af.trace(looped, U, W)), target=find_target("cpu"))
    regions = drive(context, Analytical(), None)
    left = tune_regions(context, regions, [U, W], budget, tuned)
    return left, document_of(context, Analytical().partition(context), identity_here())


def inner_times(document: PlanDocument) -> list[float | None]:
    return [k.measured_us for kernel in document.kernels for region in kernel.regions for k in region.kernels]


def test_each_loop_gets_its_first_values_and_a_part_of_the_budget() -> None:
    tuned = Tuned()
    left, document = run(tuned, Budget(100.0, 40))
    second, first = sorted(tuned.arguments, key=lambda arrays: any(np.array_equal(a, U) for a in arrays))
    assert any(np.array_equal(a, U) for a in first)
    assert all(any(np.array_equal(a, W[len(W) // 2]) for a in arrays) for arrays in (first, second))
    after = af.interpret(af.trace(lambda u, w: af.scan(step, u, w)[0], U, W), U, W)[0]
    assert any(np.allclose(a, after) for a in second)
    assert sum(budget.seconds for budget in tuned.budgets) <= 50.0
    assert left.max_trials == 40 - sum(budget.max_trials or 0 for budget in tuned.budgets)
    assert "40 measurements" in left.label  # what the user gave
    assert set(inner_times(document)) == {5.0}


def test_what_cannot_be_measured_is_as_the_model_would_have_it() -> None:
    _, document = run(Tuned(fails=True), Budget(100.0, None))
    assert set(inner_times(document)) == {None}
    assert any(kernel.regions for kernel in document.kernels)


def test_a_program_without_such_loops_keeps_its_budget() -> None:
    context = context_of(clean(af.trace(lambda u: np.tanh(u) * 2, U)), target=find_target("cpu"))
    budget, tuned = Budget(100.0, 40), Tuned()
    assert tune_regions(context, drive(context, Analytical(), None), [U], budget, tuned) is budget
    assert tuned.budgets == []


def test_what_was_priced_before_is_priced_anew() -> None:
    context = context_of(clean(af.trace(looped, U, W)), target=find_target("cpu"))
    regions = drive(context, Analytical(), None)
    driven = [candidate for candidate in context.space.candidates if context.kernels.prices.is_driven(candidate)]
    before = {candidate.digest: context.prices(context.space)[candidate.digest].predicted_us for candidate in driven}
    tune_regions(context, regions, [U, W], Budget(100.0, 40), Tuned())
    after = context.prices(context.space)
    assert driven
    assert all(after[digest].predicted_us != us for digest, us in before.items())
