"""Which kernels a program gets without measuring: what policies need on this machine, and what they choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import reduce
from time import monotonic
from typing import cast

from autofuse.api.amounts import DEADLINE_S, whole_number
from autofuse.api.programs import AUTO, fixed_choices, program_of, traced_program
from autofuse.cost_models.base import CostModel
from autofuse.errors import ArgumentError, SearchError
from autofuse.frontend.tracedprogram import Traced
from autofuse.fusion.userrules import Rule, bind
from autofuse.lazydataclass import replace
from autofuse.passes.choices import DEFAULT, Choices, alternatives, read_choices
from autofuse.passes.pipeline import Numerics
from autofuse.plan.document import PlanDocument
from autofuse.report.dump import dump_candidates
from autofuse.search.plans.kept import broken_wish
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.plans.planning import Program
from autofuse.search.plugins.foreign import LegalityTest
from autofuse.search.plugins.registry import (
    ANALYTICAL,
    find_legality,
    find_model,
    find_policy,
    model_for,
    policy_by_name,
)
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.deadline import Deadline, choose
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.fixed import fixed
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.policies.problem import Problem
from autofuse.search.policies.regionplans import RegionPlans
from autofuse.search.space.candidates import ESTIMATED, UNMEASURED, USUAL, Bounds
from autofuse.search.variants.distributedloops import distributed_loops, may_distribute
from autofuse.search.variants.lessmemory import first_that_fits
from autofuse.search.variants.shortloops import may_write_out, short_loops
from autofuse.search.variants.timetiles import may_tile, time_tiles
from autofuse.search.variants.variants import Decide, Variants, has_variants, price_variants, varied
from autofuse.targets.base import Target

Rules = Sequence[Rule] | str | os.PathLike[str]
"""Force, Forbid and Pin; or the name of a TOML file of them."""
Way = Callable[[Context, Partition, Decide, bool], Variants]
_WAYS: Sequence[Way] = (short_loops, time_tiles, distributed_loops)
"""What is looked for without being asked for."""
_LEAST_LEFT = 0.25
"""Of a deadline: what another graph is not begun without."""


def make_context(
    program: Program,
    target: Target,
    rules: Rules = (),
    *,
    model: str | CostModel = ANALYTICAL,
    legality: str | LegalityTest | None = None,
    max_memory: int | None = None,
    bounds: Bounds = USUAL,
) -> Context:
    """What policies need for a target. Raises ArgumentError for rules that fit nothing in the program.

    A note of the program's plans names a cost model that is not the usual one, and what it says of itself. Raises
    SearchError for a model or legality that is none, ModelError for a trained model that is unfit.
    """
    control = bind(_rules(rules), program.graph)
    if legality is not None:
        control = replace(control, legality=find_legality(legality, program.graph))
    found = find_model(model, target)
    if model != ANALYTICAL:
        name = model if isinstance(model, str) else type(model).__name__
        said = found.describe().get("note")
        program = replace(program, notes=(*program.notes, f"cost model: {name}{'' if said is None else f'; {said}'}"))
    memory = None if max_memory is None else MemoryLimit(_whole_bytes(max_memory), program, target.limits)
    context = Context.of(Problem(program, target, control, memory), found, bounds)
    drive(context, Analytical(), DEADLINE_S)
    return context


def drive(context: Context, policy: SearchPolicy, seconds: float | None) -> RegionPlans | None:
    """Have a policy plan what is inside loops and branches that are no kernel; None if a target cannot run that."""
    if context.limits.iteration_us is None:
        return None
    plans = context.kernels.prices.regions = RegionPlans(policy, context, seconds)
    return plans


def _rules(rules: Rules) -> Sequence[Rule]:
    if isinstance(rules, str | os.PathLike):
        from autofuse.fusion.rulesfile import read_rules

        return read_rules(rules)
    if not isinstance(cast("object", rules), Sequence):
        raise ArgumentError(f"rules={rules!r:.80}: must be a list of Force, Forbid and Pin, or the name of a TOML file")
    return rules


def _whole_bytes(max_memory: object) -> int:
    return whole_number("max_memory", max_memory, 1, "512 << 20, in bytes")


def unkept(
    document: PlanDocument,
    program: Program,
    target: Target,
    *,
    rules: Rules = (),
    legality: str | LegalityTest | None = None,
    max_memory: int | None = None,
    variants: str | Choices = "default",
) -> str | None:
    """What a plan of a program that was made earlier does not keep of these, in words; None if it keeps all.

    `program`: the one at hand, cleaned up as usual. The others: see `compile`, also for what this raises.
    """
    asked = fixed_choices(variants)
    made = DEFAULT if document.variant is None else read_choices(document.variant.choices)
    if rules or legality is not None:
        if made != asked:
            return f"its graph was cleaned up in another way ({made.label}) than the one that rules are about"
        program = program if asked == DEFAULT else varied(program, asked)
    context = make_context(program, target, rules, legality=legality)
    memory = None
    if max_memory is not None:
        memory = MemoryLimit(_whole_bytes(max_memory), program_of(document), context.limits)
    graph = program.graph if made == asked else document.graph
    return broken_wish(document, graph, context.control, memory, context.limits.decisions)


def may_vary(context: Context) -> bool:
    """Whether there are variants to search among: a user's rules name nodes of the usual graph, so they keep it."""
    return not context.control.rules and has_variants(context.program)


def noting(context: Context, policy: str | None) -> Context:
    """The context, its plans with a note on why variants were not searched, where the user asked for that in vain.

    `policy`: one that decides about one graph; None for those that search variants.
    """
    if policy is not None:
        why = f"{policy} decides about one graph"
    elif context.control.rules and has_variants(context.program):
        why = "rules and legality are about the usual graph"
    else:
        return context
    notes = (*context.program.notes, f"graph variants were not searched: {why}")
    return replace(context, problem=replace(context.problem, program=replace(context.program, notes=notes)))


def chosen_document(
    traced: Traced,
    *,
    policy: str | SearchPolicy,
    partition: Sequence[Sequence[str]] | None,
    target: Target,
    rules: Rules,
    model: str | CostModel,
    legality: str | LegalityTest | None,
    variants: str | Choices,
    max_memory: int | None,
    deadline: float | None,
    numerics: Numerics,
) -> PlanDocument:
    """What `compile` chooses for a traced function."""
    program = traced_program(traced, fixed_choices(variants), numerics)
    chosen = find_policy(policy) if partition is None else fixed(partition)
    model = model_for(policy, model)
    soon = isinstance(chosen, Analytical) and model == ANALYTICAL and deadline is not None
    context = make_context(
        program,
        target,
        rules,
        model=model,
        legality=legality,
        max_memory=max_memory,
        bounds=ESTIMATED if soon else UNMEASURED,
    )
    drive(context, chosen if partition is None else Analytical(), deadline)
    if variants == AUTO:
        context = noting(context, None if isinstance(chosen, Analytical) else f"policy {chosen.name}")
        if isinstance(chosen, Analytical) and may_vary(context):
            try:
                return decided_best(context, deadline)
            except SearchError:  # which `decided` raises again, if no graph keeps little enough
                if context.memory is None:
                    raise
    return decided(chosen, context, deadline, writes_out=variants == DEFAULT.label)


def decided(
    policy: SearchPolicy, context: Context, seconds: float | None = DEADLINE_S, writes_out: bool = False
) -> PlanDocument:
    """The plan that a policy chooses; `seconds`: its deadline, None for none.

    Where memory is short, the policy `analytical` may compute values again, far behind (`lessmemory.py`).
    `writes_out`: it may also write out short loops, join steps of long ones, and do work for all iterations at once.
    """
    if not isinstance(policy, Analytical):
        return _decided(policy, context, seconds)
    return first_that_fits(context, lambda each, share: _decided(policy, each, share, writes_out), seconds)


def settled(context: Context) -> Context:
    """The question about the graph with other loops, where the model is sure that this is cheaper."""
    if not any(may(context) for may in (may_write_out, may_tile, may_distribute)):
        return context
    chosen = _chosen(Analytical(), context.within(UNMEASURED), DEADLINE_S)
    best = _with_other_loops(*chosen, DEADLINE_S, monotonic() + DEADLINE_S).predicted()
    program = best.context.program
    return context if program is context.program else context.about(program, context.kernels.bounds)


def fitting(context: Context) -> Context:
    """The question about the graph of which the model finds a plan in the memory that there is."""
    if context.memory is None:
        return context

    def tried(each: Context, seconds: float | None) -> Context:
        _decided(Analytical(), each.within(replace(each.kernels.bounds, measured=False)), seconds)
        return each

    return first_that_fits(context, tried, 2 * DEADLINE_S)


def _decided(policy: SearchPolicy, context: Context, seconds: float | None, writes_out: bool = False) -> PlanDocument:
    start, notes = monotonic(), ()
    context, partition = _chosen(policy, context, seconds)
    if writes_out:
        variants = _with_other_loops(context, partition, seconds, None if seconds is None else start + seconds)
        best, notes = variants.predicted(), variants.notes()
        context, partition = best.context, best.partition
    document = document_of(context, partition, context.problem.target.identity)
    document = replace(document, notes=(*document.notes, *notes))
    if context.memory is not None:
        context.memory.check(document, policy.name)
    dump_candidates(context, document)
    return document


def _chosen(policy: SearchPolicy, context: Context, seconds: float | None) -> tuple[Context, Partition]:
    if seconds is None:
        return context, policy.partition(context)
    return choose(policy, context, Deadline(seconds), context.problem.target.identity)


def _with_other_loops(context: Context, partition: Partition, seconds: float | None, end: float | None) -> Variants:
    """Short loops written out, steps of long ones joined, work for all iterations done at once.

    `end`: of a deadline of so many seconds.
    """

    def tried(way: Way) -> Variants:
        left = None if end is None else round(max(0.0, end - monotonic()), 2)
        has_time = seconds is None or left is None or left >= _LEAST_LEFT * seconds
        return way(context, partition, lambda each: _chosen(Analytical(), each, left), has_time)

    return reduce(Variants.joined_with, map(tried, _WAYS))


def decided_best(context: Context, seconds: float | None) -> PlanDocument:
    """The cheapest graph's plan, by the model. Half of the seconds are for the usual graph, the rest for the others."""
    identity = context.problem.target.identity

    def hurried(context: Context) -> tuple[Context, Partition]:
        usual = context.program.variant is None
        share = 0.5 if usual else 0.5 / len(alternatives())
        return choose(Analytical(), context, Deadline(share * (seconds or 0.0)), identity)

    if seconds is None:
        variants = price_variants(context)
    else:
        variants = price_variants(context, seconds, decide=hurried)
    best = variants.predicted()
    document = document_of(best.context, best.partition, identity)
    document = replace(document, notes=(*document.notes, *variants.notes()))
    dump_candidates(best.context, document)
    return document


def decided_anew(document: PlanDocument, target: Target) -> PlanDocument:
    """A plan whose fusions are decided for this machine, with the analytical model.

    Its graph is kept, and so is the way it was cleaned up; rules, limits and certificate belong to the old decisions.
    """
    variant = [] if document.variant is None else [f"graph variant: {document.variant.choices}"]
    notes = (*variant, "decided anew for this machine by the cost model, without rules and limits of users")
    program = replace(program_of(document), notes=notes)
    return decided(policy_by_name(ANALYTICAL), make_context(program, target, bounds=ESTIMATED))
