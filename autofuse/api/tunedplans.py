"""Plans that are measured: what `tune` does once its imports are there."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from numpy.typing import NDArray

from autofuse.api.againstnumpy import against_function
from autofuse.api.amounts import DEADLINE_S, check_numerics, positive_seconds, whole_number
from autofuse.api.loops import warn_of_loops
from autofuse.api.measuringplaces import measuring_in
from autofuse.api.numpyonly import NumpyPlan, traced_or_left
from autofuse.api.partitioning import Rules, decided, drive, fitting, make_context, may_vary, noting, settled
from autofuse.api.plan import Plan
from autofuse.api.programs import AUTO, fixed_choices, measuring_inputs, traced_program
from autofuse.cost_models.base import CostModel
from autofuse.errors import AutofuseError
from autofuse.frontend.tracecontext import OnUnsupported
from autofuse.lazydataclass import replace
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.passes.choices import DEFAULT, Choices
from autofuse.passes.pipeline import Numerics
from autofuse.plan.document import PlanDocument
from autofuse.report.dump import dump_candidates
from autofuse.report.progress import progress_report
from autofuse.search.budget.budget import DEFAULT_S, Budget
from autofuse.search.plugins.foreign import LegalityTest
from autofuse.search.plugins.registry import find_policy, model_for
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import SearchPolicy
from autofuse.search.tune.baselines import rule_policies
from autofuse.search.tune.regiontuning import tune_regions
from autofuse.search.tune.tuner import Tuner
from autofuse.search.variants.measured_variants import tune_variants
from autofuse.search.variants.variants import price_variants
from autofuse.targets.base import find_target


def tuned_plan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    start: float,
    *,
    backend: str,
    budget: float | None,
    policy: str | SearchPolicy,
    seed: int,
    progress: bool,
    max_trials: int | None,
    db: str | os.PathLike[str] | None,
    inputs: str | os.PathLike[str] | None,
    threads: int | None,
    device: str | None,
    rules: Rules,
    model: str | CostModel,
    legality: str | LegalityTest | None,
    variants: str | Choices,
    max_memory: int | None,
    numerics: Numerics,
    on_unsupported: OnUnsupported,
    check_bounds: bool,
    roll: bool,
    cold: bool,
    cluster: object,
) -> Plan:
    """What `tune` does. `start`: when it began, on the monotonic clock."""
    target = find_target(backend, threads, device)
    check_numerics(numerics)
    limits = _budget(budget, max_trials)
    end = start + limits.seconds
    seed = whole_number("seed", seed, 0)
    wishes = {"rules": rules, "legality": legality, "max_memory": max_memory}
    traced = traced_or_left(fn, args, kwargs, on_unsupported, check_bounds, wishes, roll=roll)
    if isinstance(traced, NumpyPlan):
        return traced
    program = traced_program(traced, fixed_choices(variants), numerics)
    arrays = measuring_inputs(traced, inputs, seed, target)
    asked = model_for(policy, model)
    context = make_context(program, target, rules, model=asked, legality=legality, max_memory=max_memory)
    if policy == "measured":
        context = fitting(context)
        if variants == DEFAULT.label:
            context = settled(context)
    varies = variants == AUTO and policy == "measured" and may_vary(context) and context.program.variant is None
    if variants == AUTO:
        name = policy if isinstance(policy, str) else find_policy(policy).name
        context = noting(context, None if policy == "measured" else f"policy {name}")
    limits = limits.without(monotonic() - start)  # imports and tracing are part of it
    against_s = _FUNCTION_SHARE * min(limits.seconds, DEFAULT_S)
    limits = limits.without(against_s, begun=False)
    context = context.within(replace(context.kernels.bounds, seconds=limits.enumeration_s))
    document = _tuned(context, arrays, policy, limits, seed, progress, db, varies, cold, cluster)
    if not was_interrupted(Plan(document)):
        left = end - monotonic() if math.isfinite(end) else against_s
        try:
            document = against_function(document, fn, traced, arrays, left)
        except KeyboardInterrupt:
            document = _interrupted(document, db)
    return Plan(replace(document, notes=(*document.notes, *warn_of_loops(traced.graph))))


def _tuned(
    context: Context,
    arrays: Sequence[NDArray[Any]],
    policy: str | SearchPolicy,
    budget: Budget,
    seed: int,
    progress: bool,
    db: str | os.PathLike[str] | None,
    varies: bool,
    cold: bool,
    cluster: object,
) -> PlanDocument:
    fixed = None if policy == "measured" else find_policy(policy)
    target = context.problem.target
    tuners: list[Tuner] = []
    end = monotonic() + budget.seconds
    with (
        measuring_in(cluster, target) as place,
        tempfile.TemporaryDirectory(prefix="autofuse-") as folder,
        Database(db or Path(folder, "tune.db"), place.identity) as base,
        progress_report(progress and sys.stderr.isatty()) as report,
    ):

        def bench_for(context: Context) -> Bench:
            graph = context.program.graph
            return place.bench(graph, arrays, base, cold=cold, deadline_s=budget.hang_s, end=end)

        def tune_one(context: Context, bench: Bench, budget: Budget) -> PlanDocument:
            tuner = Tuner(context, bench, place.identity, budget, seed, report)
            tuners.append(tuner)
            document = tuner.measured_plan(rules=rule_policies()) if fixed is None else tuner.fixed_plan(fixed)
            dump_candidates(context, document, bench)
            return document

        def tune_inside(context: Context, arrays: Sequence[NDArray[Any]], budget: Budget) -> PlanDocument:
            graph = context.program.graph
            with place.bench(graph, arrays, base, cold=cold, deadline_s=budget.hang_s, end=end) as bench:
                tuner = Tuner(context, bench, place.identity, budget, seed, report)
                return tuner.measured_plan() if fixed is None else tuner.fixed_plan(fixed)

        regions = drive(context, fixed or Analytical(), DEADLINE_S)

        def tune_whole(context: Context, bench: Bench, budget: Budget) -> PlanDocument:
            return tune_one(context, bench, tune_regions(context, regions, arrays, budget, tune_inside))

        try:
            if varies:  # graphs are compared by the model's prices, so none is tuned before
                start = monotonic()
                context = replace(context, deadline_s=budget.solve_s(context.deadline_s))
                variants = price_variants(context, 2 * budget.enumeration_s)
                return tune_variants(variants, tune_whole, bench_for, budget.without(monotonic() - start), seed)
            budget = tune_regions(context, regions, arrays, budget, tune_inside)
            with bench_for(context) as bench:
                return tune_one(context, bench, budget)
        except KeyboardInterrupt:
            best = tuners[0].best if tuners else decided(Analytical(), context)  # none while regions are tuned
            if best is None:
                raise
            return _interrupted(best, db)
        except AutofuseError as failure:
            best = tuners[0].best if tuners and tuners[0].has_measured else None
            if best is not None:
                failure.best = Plan(replace(best, notes=(*best.notes, f"tuning ended early: {failure}")))
            raise


_FUNCTION_SHARE = 0.04
"""Of the budget: for running the plan against the function itself."""
_INTERRUPTED = "tuning was interrupted"


def was_interrupted(plan: Plan) -> bool:
    """Whether Ctrl-C ended the tuning of a plan."""
    return any(note.startswith(_INTERRUPTED) for note in plan.document.notes)


def _interrupted(best: PlanDocument, db: str | os.PathLike[str] | None) -> PlanDocument:
    again = f"run the same call with db={os.fspath(db)!r} to resume" if db else "give db= to be able to resume"
    return replace(best, notes=(*best.notes, f"{_INTERRUPTED}; {again}"))


def _budget(seconds: float | None, max_trials: int | None) -> Budget:
    trials = None if max_trials is None else whole_number("max_trials", max_trials, 1)
    if seconds is None:
        return Budget(DEFAULT_S if trials is None else math.inf, trials)
    return Budget(positive_seconds("budget", seconds, "give max_trials= alone"), trials)
