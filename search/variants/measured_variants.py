"""Variants of a program's graph that are measured.

Each graph that is priced close to the best one is tuned with a share of the budget, and the tuned plans run end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from autofuse.errors import MeasureError, SearchError
from autofuse.lazydataclass import replace
from autofuse.measurement.client import Bench
from autofuse.measurement.racing import Terms, fastest, ratios
from autofuse.passes.choices import DEFAULT
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.context import Context
from autofuse.search.variants.variants import Variant, Variants

_FINALISTS_SHARE = 0.5
"""Of the budget: for all finalists together."""
_RACE_SHARE = 0.05

Tune = Callable[[Context, Bench, Budget], PlanDocument]
"""Tunes one graph on its bench within a budget."""


def tune_variants(
    variants: Variants,
    tune: Tune,
    bench_for: Callable[[Context], AbstractContextManager[Bench]],
    budget: Budget,
    seed: int,
) -> PlanDocument:
    """Tune the usual graph and its finalists, keep the plan that is the fastest as a whole; ties go to the usual graph.

    Raises what tuning the usual graph raises; a finalist that cannot be measured is out, with a note.
    """
    finalists, left_out = _within_trials(variants.finalists(), budget)
    race_s = budget.race_s(_RACE_SHARE) if finalists else 0.0
    own, each = budget_shares(budget.without(race_s, begun=False), len(finalists))
    with bench_for(variants.usual.context) as bench:
        usual = tune(variants.usual.context, bench, own)
        plans: list[PlanDocument] = []
        failed = [
            f"graph variant {finalist.choices.label} was not measured: max_trials is too small" for finalist in left_out
        ]
        for finalist in finalists:
            try:
                with bench_for(finalist.context) as another:
                    plans.append(tune(finalist.context, another, each))
            except (MeasureError, SearchError) as error:
                failed.append(f"graph variant {finalist.choices.label} cannot be measured: {error}")
        kept = _fastest_plan([*plans, usual], bench, _race_terms(budget, race_s, seed)) if plans else usual
    return replace(kept, notes=(*kept.notes, *variants.notes(), *failed))


def _within_trials(finalists: Sequence[Variant], budget: Budget) -> tuple[Sequence[Variant], Sequence[Variant]]:
    """Those that have a measurement each in their share of the budget, the first ones, and the others."""
    if budget.max_trials is None:
        return finalists, ()
    number = min(len(finalists), int(_FINALISTS_SHARE * budget.max_trials))
    return finalists[:number], finalists[number:]


def budget_shares(budget: Budget, finalists: int) -> tuple[Budget, Budget]:
    """What tuning the usual graph may use, and what each of its finalists may."""
    if not finalists:
        return budget, budget
    return _part(budget, 1.0 - _FINALISTS_SHARE), _part(budget, _FINALISTS_SHARE / finalists)


def _part(budget: Budget, share: float) -> Budget:
    trials = None if budget.max_trials is None else int(share * budget.max_trials)
    return Budget(share * budget.seconds, trials)


def _race_terms(budget: Budget, seconds: float, seed: int) -> Terms:
    return Terms(seed, seconds, limit_s=seconds if math.isfinite(budget.seconds) else None)


def _fastest_plan(plans: Sequence[PlanDocument], bench: Bench, terms: Terms) -> PlanDocument:
    """The plan to keep, the last one if in doubt, with a note that gives the times of all."""
    times = bench.plans(plans, terms)
    sound = [number for number, time in enumerate(times) if time.samples_us and not time.problem]
    if not sound:
        return plans[-1]
    samples = [times[number].samples_us for number in sound]
    first = fastest(samples)
    winner = sound[first]
    took = [times[winner].us * ratio for ratio in ratios(samples, first)]
    told = ", ".join(f"{_label(plans[number])} {us:.4g} us" for number, us in zip(sound, took, strict=True))
    wrong = [f"{_label(plan)}: {time.problem}" for plan, time in zip(plans, times, strict=True) if time.problem]
    return replace(plans[winner], notes=(*plans[winner].notes, f"graph variants measured: {'; '.join((told, *wrong))}"))


def _label(plan: PlanDocument) -> str:
    return DEFAULT.label if plan.variant is None else plan.variant.choices
