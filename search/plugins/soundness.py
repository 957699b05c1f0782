"""Whether what a policy returned is a partition of the program: asked of other people's before it becomes a plan.

A sound partition has kernels of the program's own nodes, each legal and within the user's rules, in an order in which
each can run, and they write every result. What it says of prices and schedules must be numbers and schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from autofuse.errors import LegalityError, PlanError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate, work_of
from autofuse.ir.digest import subgraph_digest
from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import replace
from autofuse.lower.decisions import Decisions
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.solve.solver import Chosen, Solution
from autofuse.search.solve.topological_order import Run, in_topological_order
from autofuse.search.space.candidates import Candidate
from autofuse.search.space.classes import class_digest

_MOST_NAMES = 5


def defect(partition: object, context: Context) -> str | None:
    """The first thing that is wrong with what a policy returned, in words; None for a sound partition."""
    return next(_defects(partition, context), None)


def some_names(things: Iterable[Node | Value]) -> str:
    """Names for a message: the first few."""
    names = [thing.name for thing in things]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _defects(partition: object, context: Context) -> Iterator[str]:
    """What is wrong, the most basic first. Each check relies on those before it: only the first defect is sure."""
    if not isinstance(partition, Partition):
        yield f"it is a {type(partition).__name__}, not a Partition"
        return
    yield from _wrong_parts(partition, context)
    yield from _wrong_numbers(partition, context.limits.decisions)
    lowered: set[tuple[str, Schedule]] = set()
    for number, chosen in enumerate(partition.kernels):
        nodes = _nodes(chosen.candidate)
        for fault in _wrong_kernel(partition, chosen, context, lowered):
            yield f"kernel {number} ({some_names(nodes)}) {fault}"
    yield from _wrong_order(partition)


def _wrong_parts(partition: Partition, context: Context) -> Iterator[str]:
    """What is not of the types that the contract names, or not of this program."""
    atoms = cast("Any", partition.atoms)
    if not isinstance(atoms, AtomGraph):
        yield f"its atoms are a {type(atoms).__name__}, not an AtomGraph"
        return
    if atoms.graph is not context.program.graph:
        yield "its atoms are of another graph; use context.program.graph"
    kernels = cast("Any", partition.kernels)
    if not isinstance(kernels, tuple | list):
        yield f"its kernels are a {type(kernels).__name__}, not a tuple"
        return
    own = frozenset(atoms.atoms)
    for number, chosen in enumerate(kernels):
        for fault in _wrong_chosen(chosen, own):
            yield f"kernel {number} {fault}"


def _wrong_chosen(chosen: Any, own: frozenset[FusionAtom]) -> Iterator[str]:
    """`own`: the atoms of the partition."""
    if not isinstance(chosen, Chosen):
        yield f"is a {type(chosen).__name__}, not a Chosen"
        return
    candidate, outputs = cast("Any", chosen.candidate), cast("Any", chosen.outputs)
    if not isinstance(candidate, Candidate):
        yield f"has a {type(candidate).__name__} for a candidate, not a Candidate"
        return
    atoms = cast("Any", candidate.atoms)
    if not isinstance(atoms, frozenset) or not atoms:
        yield "has no atoms"
    elif not own.issuperset(atoms):
        yield "has atoms of another AtomGraph than the partition's"
    if not isinstance(outputs, tuple) or not all(isinstance(value, Value) for value in outputs):
        yield "has outputs that are no tuple of values"


def _wrong_numbers(partition: Partition, decisions: Decisions) -> Iterator[str]:
    """Prices that are no prices, schedules that are none."""
    if not _is_time(partition.price_us):
        yield f"its price_us is {partition.price_us!r:.80}; it must be a number, finite and not negative"
    solution = cast("Any", partition.solution)
    if solution is not None and not isinstance(solution, Solution):
        yield f"its solution is a {type(solution).__name__}; it must be None or what `solve` returned"
    known = cast("Any", partition.known)
    if not isinstance(known, Mapping):
        yield f"what it knows is a {type(known).__name__}, not a mapping of digests to Tuned"
        return
    for digest, tuned in known.items():
        for fault in _wrong_tuned(tuned, decisions):
            yield f"what it knows of {digest!r:.40} {fault}"


def _wrong_tuned(tuned: Any, decisions: Decisions) -> Iterator[str]:
    if not isinstance(tuned, Tuned):
        yield f"is a {type(tuned).__name__}, not a Tuned"
        return
    for label, us in (("predicted_us", tuned.predicted_us), ("measured_us", tuned.measured_us)):
        if us is not None and not _is_time(us):
            yield f"has {label}={us!r:.80}; it must be None, or finite and not negative"
    bound, schedule = cast("Any", tuned.bound), cast("Any", tuned.schedule)
    if bound is not None and not isinstance(bound, str):
        yield f"has a bound that is a {type(bound).__name__}, not a text"
    if not isinstance(schedule, Schedule):
        yield f"has a schedule that is a {type(schedule).__name__}, not a Schedule"
        return
    try:
        decisions.read(schedule.to_json())
    except PlanError as error:
        yield f"has a schedule that is none: {error}"


def _digest(kernel: KernelCandidate, context: Context) -> str:
    return class_digest(kernel, context.control.schedule_of(kernel.nodes))


def _wrong_kernel(
    partition: Partition, chosen: Chosen, context: Context, lowered: set[tuple[str, Schedule]]
) -> Iterator[str]:
    """`lowered`: digests and schedules that are known to be legal."""
    atoms, candidate = partition.atoms, chosen.candidate
    kernel = cast("Any", candidate.kernel)
    made = atoms.candidate(candidate.atoms, candidate.outputs) if isinstance(kernel, KernelCandidate) else None
    if made is None or made != kernel or _digest(made, context) != work_of(candidate.digest):
        yield "was not made by a SpaceBuilder: its kernel or its digest belongs to other atoms"
    if not chosen.outputs or len(set(chosen.outputs)) < len(chosen.outputs):
        yield "writes nothing, or a value twice"
    idle = [value for value in chosen.outputs if value not in candidate.outputs]
    if idle:
        yield f"cannot write {some_names(idle)}: that is no output of its candidate"
    broken = context.control.refusal(frozenset(_nodes(candidate)))
    if broken is not None:
        yield f"breaks a rule: {broken}"
    written = atoms.candidate(candidate.atoms, chosen.outputs)
    schedule = context.pinned(candidate) or partition.known.get(candidate.digest, Tuned()).schedule
    foreign = context.limits.decisions.refusal(schedule, candidate.program)
    if foreign is not None:
        yield f"has a schedule that it cannot have: {foreign}"
    mark = subgraph_digest(written.graph, written.nodes, written.outputs), schedule
    if mark not in lowered:
        lowered.add(mark)
        reason = _illegal(written, schedule, context)
        if reason is not None:
            yield f"is not a legal fusion: {reason}"


def _illegal(kernel: KernelCandidate, schedule: Schedule, context: Context) -> str | None:
    """Why a kernel cannot be lowered; as when a plan of it is loaded."""
    limits = replace(context.limits, scalars=max(context.limits.scalars, plain_scalars(kernel)))
    try:
        lower(kernel, schedule, "kernel", limits)
    except LegalityError as error:
        return str(error)
    return None


def _wrong_order(partition: Partition) -> Iterator[str]:
    """Values that are read before they are written, never written, or written twice."""
    atoms = partition.atoms
    runs = [Run(number, _reads(partition, chosen), chosen.outputs) for number, chosen in enumerate(partition.kernels)]
    writers: dict[Value, int] = {}
    for run in runs:
        for value in run.writes:
            if writers.setdefault(value, run.number) != run.number:
                yield f"kernels {writers[value]} and {run.number} both write {value.name}"
    for run in runs:
        lost = [value for value in run.reads if value not in writers]
        if lost:
            yield f"no kernel writes {some_names(lost)}, which kernel {run.number} reads"
    unmade = [value for value in atoms.graph.outputs if atoms.maker(value) is not None and value not in writers]
    if unmade:
        yield f"no kernel writes {some_names(unmade)}, a result of the program"
    order, stuck = in_topological_order(runs, range(len(runs)))
    if stuck:
        done = {run.number for run in order}
        waiting = (f"{run.number} for {some_names(run.reads)}" for run in runs if run.number not in done)
        yield f"kernels wait for one another: {'; '.join(waiting)}"
    for run in runs:
        late = [value for value in run.reads if writers[value] >= run.number]
        if late:
            yield f"kernel {run.number} stands before the one that writes {some_names(late)}; put it behind"


def _reads(partition: Partition, chosen: Chosen) -> tuple[Value, ...]:
    """The values that other kernels must write for a kernel."""
    kernel = partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs)
    return tuple(value for value in kernel.inputs if partition.atoms.maker(value) is not None)


def _nodes(candidate: Candidate) -> Sequence[Node]:
    return [node for atom in sorted(candidate.atoms, key=lambda atom: atom.number) for node in atom.nodes]


def _is_time(us: object) -> bool:
    """Whether something is a number of microseconds."""
    return isinstance(us, int | float) and 0 <= us < math.inf
