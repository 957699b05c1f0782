"""From a function to a Plan, with a model (`compile`) or with measurements (`tuned_plan`)."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.api.againstnumpy import against_function
from autofuse.api.amounts import DEADLINE_S, positive_seconds, whole_number
from autofuse.api.arrayfiles import read_arguments
from autofuse.api.loops import warned_of_loops
from autofuse.api.numpyonly import NumpyPlan, notes_of, traced_or_left
from autofuse.api.plan import Plan, described_cpu
from autofuse.cost_models.base import CostModel
from autofuse.errors import ArgumentError, AutofuseError
from autofuse.frontend.context import OnUnsupported
from autofuse.frontend.traced import Traced, is_array
from autofuse.fusion.control import Rule, bind
from autofuse.fusion.rulesfile import read_rules
from autofuse.ir import dtypes, tree
from autofuse.ir.digest import digest
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.passes.choices import DEFAULT, Choices, alternatives, read_choices
from autofuse.passes.pipeline import clean
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import host_cpu_identity
from autofuse.plan.verify import safe_name
from autofuse.report.dump import dump_candidates, dump_graphs
from autofuse.report.progress import progress_report
from autofuse.runtime.cpu import cpu_limits
from autofuse.search.budget.budget import DEFAULT_S, Budget
from autofuse.search.plans.kept import broken_wish
from autofuse.search.plans.memory import MemoryLimit
from autofuse.search.plans.planning import Program
from autofuse.search.plugins.foreign import LegalityTest
from autofuse.search.plugins.registry import ANALYTICAL, find_legality, find_model, find_policy, policy_by_name
from autofuse.search.policies.deadline import Deadline, choose
from autofuse.search.policies.fixed import fixed
from autofuse.search.policies.policy import Analytical, Context, Partition, SearchPolicy, document_of
from autofuse.search.tune.baselines import rule_policies
from autofuse.search.tune.tuner import Tuner
from autofuse.search.variants.variants import has_variants, price_variants, tune_variants, varied

Numerics = Literal["strict"]
Rules = Sequence[Rule] | str | os.PathLike[str]
"""Force, Forbid and Pin; or the name of a TOML file of them."""

AUTO = "auto"
"""For `variants=`: search among the ways to clean a program up."""


def compile(  # noqa: A001 - the verb users know from jax.jit(...).compile and torch.compile
    fn: Callable[..., Any],
    *args: Any,
    backend: str = "cpu",
    policy: str | SearchPolicy = "analytical",
    partition: Sequence[Sequence[str]] | None = None,
    threads: int | None = None,
    rules: Rules = (),
    model: str | CostModel = ANALYTICAL,
    legality: str | LegalityTest | None = None,
    variants: str | Choices = "default",
    max_memory: int | None = None,
    deadline: float | None = DEADLINE_S,
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
) -> Plan:
    """Choose fusions with a model, measuring nothing: milliseconds to seconds.

    `args`: arrays or specs, as for a call. `policy`: "analytical", "unfused", "greedy", "beam", the rules of another
    compiler ("rule:xla", "rule:xla-cpu", "rule:xla-priority", "rule:inductor", "rule:grappler"), "module:Class", the
    name of an installed entry point, or a SearchPolicy. `partition`: the kernels themselves, each as names of nodes, in
    place of a policy's. `threads`: how many the plan uses; by default one per core. `rules`: Force, Forbid and Pin, or
    the name of a TOML file of them, which every policy keeps. `model`: the cost model: "analytical", "module:Class",
    the name of an installed entry point, or a CostModel. `legality`: a function of a kernel's nodes that says why it
    may not be one, or "module:function" or an entry point; every policy keeps to it. `variants`: how the program is
    cleaned up before fusion, "default", choices such as "columns=joined,tables=large" (`autofuse.passes.choices`), or
    "auto": under "analytical", without rules and legality, the graph with the cheapest plan, if the model is sure of
    it; it takes as long again for each graph there is. `max_memory`: most bytes that arguments, constants, results and
    temporaries of a call may take together. `deadline`: seconds for choosing the fusions, tracing and code generation
    not counted; None: as long as it takes. Where they are not enough for the whole program, it is searched in segments,
    then by merging greedily, and failing all that each operation becomes a kernel; the plan's notes say so, and such a
    plan may differ from run to run. It binds "analytical", "greedy" and "beam". A Python loop that was unrolled into
    many steps is an UnrolledLoopWarning. `on_unsupported`: what becomes of calls that no kernel computes: "numpy"
    leaves those of NumPy and SciPy to them, with one LeftToNumpyWarning, as parts of the plan where their results'
    types follow from the arguments' types, else, and for complex numbers, with the whole function; "eager" learns
    result types of any call by running it on `args`; "error" refuses. `check_bounds`: calls raise OutOfBoundsError, an
    IndexError, where an index that is known only then is out of bounds, and write nothing; without it such an index
    reads the nearest element, and what it writes is dropped or goes to the nearest. Raises TraceError, SearchError
    (also where memory is not enough), ArgumentError, LegalityError for rules and kernels that cannot be, and
    PluginError for what plug-ins do wrong.
    """
    _check_backend(backend)
    seconds = None if deadline is None else positive_seconds("deadline", deadline, "give deadline=None")
    if partition is not None:
        policy = fixed(partition)
    if policy == "measured":
        raise ArgumentError('policy="measured" needs measurements: call autofuse.tune')
    decided = {"partition": partition, "rules": rules, "legality": legality, "max_memory": max_memory}
    traced = traced_or_left(fn, args, on_unsupported, check_bounds, decided)
    if isinstance(traced, NumpyPlan):
        return traced
    program = traced_program(traced, _fixed_choices(variants))
    context = make_context(program, threads, rules, model=model, legality=legality, max_memory=max_memory)
    chosen = find_policy(policy)
    if variants == AUTO:
        context = _noting(context, None if isinstance(chosen, Analytical) else f"policy {chosen.name}")
        if isinstance(chosen, Analytical) and _may_vary(context):
            return Plan(warned_of_loops(_compiled_best(context, threads, seconds), traced.graph))
    return Plan(warned_of_loops(_compiled(chosen, context, threads, seconds), traced.graph))


def tuned_plan(
    fn: Callable[..., Any],
    args: Sequence[Any],
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
    rules: Rules,
    model: str | CostModel,
    legality: str | LegalityTest | None,
    variants: str | Choices,
    max_memory: int | None,
    on_unsupported: OnUnsupported,
    check_bounds: bool,
) -> Plan:
    """What `tune` does. `start`: when it began, on the monotonic clock."""
    _check_backend(backend)
    limits = _budget(budget, max_trials)
    end = start + limits.seconds
    seed = whole_number("seed", seed, 0)
    decided = {"rules": rules, "legality": legality, "max_memory": max_memory}
    traced = traced_or_left(fn, args, on_unsupported, check_bounds, decided)
    if isinstance(traced, NumpyPlan):
        return traced
    program = traced_program(traced, _fixed_choices(variants))
    arrays = measuring_inputs(traced, args, inputs, seed)
    context = make_context(program, threads, rules, model=model, legality=legality, max_memory=max_memory)
    varies = variants == AUTO and policy == "measured" and _may_vary(context)
    if variants == AUTO:
        name = policy if isinstance(policy, str) else find_policy(policy).name
        context = _noting(context, None if policy == "measured" else f"policy {name}")
    limits = limits.without(monotonic() - start)  # imports and tracing are part of it
    against_s = _FUNCTION_SHARE * min(limits.seconds, DEFAULT_S)
    limits = limits.without(against_s, begun=False)
    context.bounds = replace(context.bounds, seconds=limits.enumeration_s)
    document = _tuned(context, arrays, policy, limits, seed, progress, db, threads, varies)
    if not was_interrupted(Plan(document)):
        left = end - monotonic() if math.isfinite(end) else against_s
        try:
            document = against_function(document, fn, traced, arrays, left)
        except KeyboardInterrupt:
            document = _interrupted(document, db)
    return Plan(warned_of_loops(document, traced.graph))


def recompile(document: PlanDocument) -> Plan:
    """Decide a plan's fusions anew for this machine, with the analytical model.

    Its graph is kept, and so is the way it was cleaned up; rules, limits and certificate belong to the old decisions.
    """
    variant = [] if document.variant is None else [f"graph variant: {document.variant.choices}"]
    notes = (*variant, "decided anew for this machine by the cost model, without rules and limits of users")
    program = replace(program_of(document), notes=notes)
    threads = Plan(document).threads
    return Plan(_compiled(policy_by_name("analytical"), make_context(program, threads), threads))


def traced_program(traced: Traced, choices: Choices = DEFAULT) -> Program:
    """Clean up a traced function's graph."""
    graph = clean(traced.graph)
    program = Program(
        name=safe_name(traced.graph.name),
        graph=graph,
        in_tree=traced.in_tree,
        out_tree=traced.out_tree,
        parameters=traced.parameters,
        writebacks=tuple(number for number, _ in traced.writebacks),
        contiguous=traced.contiguous,
        bounds=traced.bounds,
        notes=notes_of(traced),
    )
    if choices != DEFAULT:
        program = varied(program, choices)
    dump_graphs(traced.graph, program.graph)
    return program


def is_of(document: PlanDocument, program: Program) -> bool:
    """Whether a plan computes a program: its graph is the program's, or the variant of it that the plan says it is."""
    if document.variant is None:
        return document.graph_digest == digest(program.graph)
    try:
        choices = read_choices(document.variant.choices)
    except ArgumentError:  # choices of another version
        return False
    return document.graph_digest == digest(clean(program.graph, choices=choices))


def unkept(
    document: PlanDocument,
    program: Program,
    threads: int | None = None,
    *,
    rules: Rules = (),
    legality: str | LegalityTest | None = None,
    max_memory: int | None = None,
    variants: str | Choices = "default",
) -> str | None:
    """What a plan of a program that was made earlier does not keep of these, in words; None if it keeps all.

    `program`: the one at hand, cleaned up as usual. The others: see `compile`, also for what this raises.
    """
    asked = _fixed_choices(variants)
    made = DEFAULT if document.variant is None else read_choices(document.variant.choices)
    if rules or legality is not None:
        if made != asked:
            return f"its graph was cleaned up in another way ({made.words}) than the one that rules are about"
        program = program if asked == DEFAULT else varied(program, asked)
    context = make_context(program, threads, rules, legality=legality)
    memory = None
    if max_memory is not None:
        memory = MemoryLimit(_whole_bytes(max_memory), program_of(document), context.limits)
    graph = program.graph if made == asked else document.graph
    return broken_wish(document, graph, context.control, memory)


def program_of(document: PlanDocument) -> Program:
    """The program that a plan computes, without what was noted of how it does."""
    return Program(
        document.name,
        document.graph,
        document.in_tree,
        document.out_tree,
        document.parameters,
        document.writebacks,
        variant=document.variant,
        contiguous=document.contiguous,
        bounds=document.bounds,
    )


def _fixed_choices(variants: str | Choices) -> Choices:
    """What the program is cleaned up with before anything is searched. Raises ArgumentError."""
    if isinstance(variants, Choices):
        return variants
    try:
        return DEFAULT if variants == AUTO else read_choices(variants)
    except ArgumentError as error:
        raise ArgumentError(f'variants={error}; or give "auto" or "default"') from None


def _may_vary(context: Context) -> bool:
    """Whether there are variants to search among: a user's rules name nodes of the usual graph, so they keep it."""
    return not context.control.rules and has_variants(context.program)


def _noting(context: Context, policy: str | None) -> Context:
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
    return replace(context, program=replace(context.program, notes=notes))


def make_context(
    program: Program,
    threads: int | None,
    rules: Rules = (),
    *,
    model: str | CostModel = ANALYTICAL,
    legality: str | LegalityTest | None = None,
    max_memory: int | None = None,
) -> Context:
    """What policies need on this machine. Raises ArgumentError for rules that fit nothing in the program.

    A note of the program's plans names a cost model that is not the usual one. Raises SearchError for a model or
    legality that is none.
    """
    description = described_cpu(threads)
    limits = cpu_limits(description)
    control = bind(_rules(rules), program.graph)
    if legality is not None:
        control = replace(control, legality=find_legality(legality, program.graph))
    name = model if isinstance(model, str) else type(model).__name__
    if name != ANALYTICAL:
        program = replace(program, notes=(*program.notes, f"cost model: {name}"))
    memory = None if max_memory is None else MemoryLimit(_whole_bytes(max_memory), program, limits)
    return Context(program, find_model(model, description), limits, control=control, memory=memory)


def _rules(rules: Rules) -> Sequence[Rule]:
    if isinstance(rules, str | os.PathLike):
        return read_rules(rules)
    if not isinstance(cast("object", rules), Sequence):
        raise ArgumentError(f"rules={rules!r:.80}: must be a list of Force, Forbid and Pin, or the name of a TOML file")
    return rules


def _whole_bytes(max_memory: object) -> int:
    return whole_number("max_memory", max_memory, 1, "512 << 20, in bytes")


def _compiled(
    policy: SearchPolicy, context: Context, threads: int | None, seconds: float | None = DEADLINE_S
) -> PlanDocument:
    identity = host_cpu_identity(described_cpu(threads))
    if seconds is None:
        partition = policy.partition(context)
    else:
        partition = choose(policy, context, Deadline(seconds), identity)
    document = document_of(context, partition, identity)
    if context.memory is not None:
        context.memory.check(document, policy.name)
    dump_candidates(context, document)
    return document


def _compiled_best(context: Context, threads: int | None, seconds: float | None) -> PlanDocument:
    """The cheapest graph's plan, by the model. Half of the seconds are for the usual graph, the rest for the others."""
    identity = host_cpu_identity(described_cpu(threads))

    def hurried(context: Context) -> Partition:
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


def _tuned(
    context: Context,
    arrays: Sequence[NDArray[Any]],
    policy: str | SearchPolicy,
    budget: Budget,
    seed: int,
    progress: bool,
    db: str | os.PathLike[str] | None,
    threads: int | None,
    varies: bool,
) -> PlanDocument:
    fixed = None if policy == "measured" else find_policy(policy)
    description = described_cpu(threads)
    identity = host_cpu_identity(description)
    tuners: list[Tuner] = []
    with (
        tempfile.TemporaryDirectory(prefix="autofuse-") as folder,
        Database(db or Path(folder, "tune.db"), identity) as base,
        progress_report(progress and sys.stderr.isatty()) as report,
    ):

        def bench_for(context: Context) -> Bench:
            graph = context.program.graph
            wanted = [value.name for node in graph.nodes if node.op != "constant" for value in node.outputs]
            return Bench(graph, arrays, wanted, base, identity, description.threads)

        def tune_one(context: Context, bench: Bench, budget: Budget) -> PlanDocument:
            tuner = Tuner(context, bench, identity, budget, seed, report)
            tuners.append(tuner)
            document = tuner.measured_plan(rules=rule_policies()) if fixed is None else tuner.fixed_plan(fixed)
            dump_candidates(context, document, bench)
            return document

        try:
            if varies:
                start = monotonic()
                context.deadline_s = budget.solve_s(context.deadline_s)
                variants = price_variants(context, 2 * budget.enumeration_s)
                return tune_variants(variants, tune_one, bench_for, budget.without(monotonic() - start), seed)
            with bench_for(context) as bench:
                return tune_one(context, bench, budget)
        except KeyboardInterrupt:
            if not tuners or tuners[0].best is None:
                raise
            return _interrupted(tuners[0].best, db)
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


def _check_backend(backend: str) -> None:
    if backend != "cpu":
        raise ArgumentError(f'backend={backend!r}: plans can be compiled and tuned for "cpu"')


def measuring_inputs(
    traced: Traced, args: Sequence[Any], inputs: str | os.PathLike[str] | None, seed: int
) -> list[NDArray[Any]]:
    """Concrete arrays for the graph's inputs: the caller's own, those of a file, or seeded random ones for specs."""
    leaves, _ = tree.flatten(tuple(args), is_array)
    names = [value.name for value in traced.graph.inputs]
    given = {} if inputs is None else read_arguments(inputs, names, f"inputs={os.fspath(inputs)!r}")
    rng = np.random.default_rng(seed)
    arrays: list[NDArray[Any]] = []
    for value, leaf in zip(traced.graph.inputs, leaves, strict=True):
        if value.name in given:
            array = np.asarray(given[value.name])
            if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
                raise ArgumentError(f"inputs: {value.name} must be {value.type}, got {array.dtype}{list(array.shape)}")
        elif isinstance(leaf, np.ndarray | np.generic):
            array = np.asarray(leaf)
        else:
            array = _random_argument(value, rng)
        arrays.append(np.ascontiguousarray(array).reshape(value.type.shape))
    return arrays


def _random_argument(value: Value, rng: np.random.Generator) -> NDArray[Any]:
    """Data to measure with. Raises ArgumentError where there is no memory for them."""
    try:
        return random_array(value.type, rng)
    except MemoryError:
        need = f"{value.type.nbytes / 2**30:.4g} GiB"
        raise ArgumentError(
            f"{value.name}: {value.type} takes {need}, and twice that to make, which this machine cannot give; tuning"
            " needs the data: give a smaller spec, or compile without measuring"
        ) from None


def random_array(type_: TensorType, rng: np.random.Generator) -> NDArray[Any]:
    """Seeded data for a spec: standard normals, small non-negative integers, coin flips."""
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    if type_.dtype == dtypes.BOOL:
        return rng.random(type_.shape) < 0.5
    return rng.integers(0, 8, type_.shape).astype(type_.dtype.numpy)
