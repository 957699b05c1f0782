"""Variants of a program's graph that are measured.

Each graph that is priced close to the best one is tuned with a share of the budget, and the tuned plans run end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from autofuse.errors import MeasureError, SearchError
from autofuse.measurement.client import Bench
from autofuse.measurement.racing import Terms, fastest, ratios
from autofuse.passes.choices import DEFAULT
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.context import Context
from autofuse.search.variants.variants import Variant, Variants

_RIVALS_SHARE = 0.5
"""Of the budget: for all rivals together."""
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
    """Tune the usual graph and its rivals, keep the plan that is the fastest as a whole; ties go to the usual graph.

    Raises what tuning the usual graph raises; a rival that cannot be measured is out, with a note.
    """
    rivals, left_out = _within_trials(variants.rivals(), budget)
    race_s = budget.race_s(_RACE_SHARE) if rivals else 0.0
    own, each = budget_shares(budget.without(race_s, begun=False), len(rivals))
    with bench_for(variants.usual.context) as bench:
        usual = tune(variants.usual.context, bench, own)
        plans: list[PlanDocument] = []
        failed = [
            f"graph variant {rival.choices.words} was not measured: max_trials is too small" for rival in left_out
        ]
        for rival in rivals:
            try:
                with bench_for(rival.context) as another:
                    plans.append(tune(rival.context, another, each))
            except (MeasureError, SearchError) as error:
                failed.append(f"graph variant {rival.choices.words} cannot be measured: {error}")
        kept = _fastest_plan([*plans, usual], bench, _race_terms(budget, race_s, seed)) if plans else usual
    return replace(kept, notes=(*kept.notes, *variants.notes(), *failed))


def _within_trials(rivals: Sequence[Variant], budget: Budget) -> tuple[Sequence[Variant], Sequence[Variant]]:
    """Those that have a measurement each in their share of the budget, the first ones, and the others."""
    if budget.max_trials is None:
        return rivals, ()
    number = min(len(rivals), int(_RIVALS_SHARE * budget.max_trials))
    return rivals[:number], rivals[number:]


def budget_shares(budget: Budget, rivals: int) -> tuple[Budget, Budget]:
    """What tuning the usual graph may use, and what each of its rivals may."""
    if not rivals:
        return budget, budget
    return _part(budget, 1.0 - _RIVALS_SHARE), _part(budget, _RIVALS_SHARE / rivals)


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
    told = ", ".join(f"{_words(plans[number])} {us:.4g} us" for number, us in zip(sound, took, strict=True))
    wrong = [f"{_words(plan)}: {time.problem}" for plan, time in zip(plans, times, strict=True) if time.problem]
    return replace(plans[winner], notes=(*plans[winner].notes, f"graph variants measured: {'; '.join((told, *wrong))}"))


def _words(plan: PlanDocument) -> str:
    return DEFAULT.words if plan.variant is None else plan.variant.choices
