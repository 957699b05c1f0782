"""What runs in child processes: python child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from cells import MEASURED, REACHABLE, TUNE, VARIANTS, Cell
from journal import Record
from marks import facts
from oracles import Corrected, Decided, Uniform
from race import race
from reachable import limited_to
from subject import Subject, bench_of, identity_here, subject_of
from switches import PARTS
from twins import mark_of_partition, mark_of_space, shared

from autofuse.errors import LegalityError, SearchError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench, BenchCounts
from autofuse.plan import file as plan_file
from autofuse.plan.document import PlanDocument
from autofuse.search.budget.budget import Budget
from autofuse.search.plugins.registry import policy_by_name
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.tune.baselines import rule_policies
from autofuse.search.tune.tuner import Tuner
from autofuse.search.variants.measured_variants import tune_variants
from autofuse.search.variants.variants import price_variants

CORRECTION_SHARE = 0.25
"""Of the budget: most time for measuring what corrects the model."""


def counted(task: Record) -> Record:
    """What of the program's graph makes rules stop."""
    return facts(_subject(task).context.program.graph)


def planned(task: Record) -> Record:
    """A cell's plan with its schedules tuned, and the same kernels under default schedules; both saved.

    `made`: records of the program's earlier cells by mark; one that comes to the same takes their plans.
    """
    folder = Path(task["folder"])
    cell = Cell(**task["as"])
    subject = _subject(task)
    start = time.perf_counter()
    context, notes = _context(cell, subject.context, task["rules"])
    budget = Budget(task["budget_s"], task["max_trials"])
    measures = cell.choice == "search" and cell.oracle == MEASURED
    mark = mark_of_space(cell, context) if measures else None
    if mark in task["made"]:
        return shared(task["made"][mark], task["plans"], folder, notes)
    benches = _Benches(subject, folder / task["db"])
    if cell.name == VARIANTS:
        tuned = _among_variants(subject, benches, budget, task["tuning_seed"])
    else:
        with benches.of(context) as bench:
            tuner = Tuner(context, bench, identity_here(), budget, task["tuning_seed"], _quiet)
            if measures:
                tuned = tuner.measured_plan(rules=rule_policies() if cell.name == TUNE else ())
            else:
                policy = _policy(cell, bench, budget)
                partition = policy.partition(context)
                mark = mark_of_partition(partition)
                if mark in task["made"]:
                    return shared(task["made"][mark], task["plans"], folder, notes)
                tuned = tuner.fixed_plan(Decided(policy.name, partition))
    seconds = time.perf_counter() - start
    default = replace(tuned, kernels=tuple(replace(kernel, schedule=Schedule()) for kernel in tuned.kernels))
    works: dict[str, str] = {}
    for name, document in (("tuned", tuned), ("default", default)):
        plan_file.save(document, folder / task["plans"][name])
        works[name] = work_of(document)
    return {
        "mark": mark,
        "seconds": seconds,
        "kernels": len(tuned.kernels),
        "measurements": sum(counts.measured + counts.replayed for counts in benches.counts),
        "failed": [message[:300] for counts in benches.counts for message in counts.failed],
        "space_notes": notes,
        "notes": list(tuned.notes),
        "certificate": None if tuned.certificate is None else asdict(tuned.certificate),
        "works": works,
        "paths": list(task["plans"].values()),
    }


class _Benches:
    """Opens benches for the program's graphs, and keeps what they counted."""

    def __init__(self, subject: Subject, db: Path) -> None:
        self._subject, self._db = subject, db
        self.counts: list[BenchCounts] = []

    @contextmanager
    def of(self, context: Context) -> Generator[Bench]:
        """A bench for the graph of a context."""
        with bench_of(replace(self._subject, context=context), self._db) as bench:
            self.counts.append(bench.counts)
            yield bench


def _among_variants(subject: Subject, benches: _Benches, budget: Budget, seed: int) -> PlanDocument:
    """What `autofuse.tune(variants="auto")` does."""

    def tune(context: Context, bench: Bench, budget: Budget) -> PlanDocument:
        return Tuner(context, bench, identity_here(), budget, seed, _quiet).measured_plan(rules=rule_policies())

    return tune_variants(price_variants(subject.context), tune, benches.of, budget, seed)


def work_of(document: PlanDocument) -> str:
    """Equal for plans that run the same kernels in the same order under the same schedules."""
    work: list[object] = [
        [[kernel.nodes, kernel.outputs, kernel.schedule.to_json()] for kernel in document.kernels],
        [[launch.kernel, launch.group_place] for launch in document.order],
    ]
    if document.variant is not None:
        work.append(document.graph_digest)
    return hashlib.sha256(json.dumps(work).encode()).hexdigest()[:12]


def _context(cell: Cell, context: Context, rules: list[str]) -> tuple[Context, list[str]]:
    """The space that a cell chooses in, and what is to be said of it."""
    if cell.space == REACHABLE and cell.choice == "search":
        found: list[Partition] = []
        notes: list[str] = []
        for rule in rules:
            try:
                found.append(policy_by_name(rule).partition(context))
            except (LegalityError, SearchError) as error:
                notes.append(f"the space lacks the kernels of {rule}: {error}")
        return limited_to(context, found), notes
    if cell.off == "model":
        return Context.of(context.problem, Uniform()), []
    if cell.off:
        return PARTS[cell.off](context), []
    return context, []


def _policy(cell: Cell, bench: Bench, budget: Budget) -> SearchPolicy:
    if cell.oracle == "residual":
        return Corrected(bench, CORRECTION_SHARE * budget.seconds)
    return Analytical() if cell.choice == "search" else policy_by_name(cell.name)


def _quiet(what: str, done: float, total: float) -> None:
    del what, done, total


def _subject(task: Record) -> Subject:
    return subject_of(task["file"], task["size"], task["seed"])


def raced(task: Record) -> Record:
    """Every distinct plan of one program, timed; one of them twice."""
    plans = {work: str(Path(task["folder"], path)) for work, path in task["works"].items()}
    return race(task, plans, task["again"])


KINDS = {"facts": counted, "plan": planned, "round": raced}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(KINDS[job["kind"]](job)))
