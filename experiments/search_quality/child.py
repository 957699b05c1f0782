"""What runs in child processes: python child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from journal import Record
from moves import cheapest, enumerate_partitions, in_order, moves_of
from race import race
from subject import Subject, bench_of, identity_here, subject_of
from switches import DefaultSchedules

import autofuse as af
from autofuse.errors import SearchError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.measurement.kernelrecords import Trial
from autofuse.measurement.workloads import load
from autofuse.plan import file as plan_file
from autofuse.plan.document import Launch, PlanDocument
from autofuse.runtime.planlowering import candidate_of
from autofuse.search.budget.budget import Budget
from autofuse.search.plans.concurrent_groups import Work, list_schedule
from autofuse.search.plans.planning import Tuned, plan_document
from autofuse.search.plugins.registry import MEASURED
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.classes import class_digest
from autofuse.search.tune.baselines import rule_policies
from autofuse.search.tune.tuner import Tuner


def exhausted(task: Record) -> Record:
    """Every kernel that a partition of the program's space may have, measured under the default schedule.

    The order is another in every round, so that what the machine does besides meets other kernels.
    """
    subject = _subject(task)
    space = subject.context.space
    moves = moves_of(space)
    distinct = list({move.digest: move for move in moves}.values())
    kernels: dict[str, Record] = {}
    database = Path(task["folder"], task["db"])
    database.unlink(missing_ok=True)
    with bench_of(subject, database) as bench:
        order = np.random.default_rng([task["seed"], task["round"]]).permutation(len(distinct))
        trials = [Trial(distinct[n].digest, distinct[n].kernel, Schedule()) for n in order]
        for trial, found in zip(trials, bench.kernels(trials), strict=True):
            us = found.us if found.status == "ok" else None
            kernels[trial.digest] = {"us": us, "status": found.status, "message": found.message[:300]}
    return {
        "nodes": len(space.atom_graph.graph.nodes),
        "atoms": len(space.atom_graph.atoms),
        "candidates": len(space.candidates),
        "cut_off": space.cut_off,
        "classes": sorted(space.classes),
        "moves": len(moves),
        "kernels": kernels,
    }


def partitioned(task: Record) -> Record:
    """All partitions met and priced; plans of the cheapest, and of what the exact solver chooses, saved."""
    subject = _subject(task)
    space = subject.context.space
    moves = moves_of(space)
    us: Mapping[str, float] = {digest: us for digest, us in task["us"].items() if us is not None}
    start = time.perf_counter()
    found = enumerate_partitions(
        space, moves, us, most=task["most_partitions"], repeats=task["repeats"], keep=task["top"]
    )
    seconds = time.perf_counter() - start
    choices = [(f"best {n}", ranked.us, in_order(moves, ranked.moves)) for n, ranked in enumerate(found.best, 1)]
    try:
        exact = cheapest(space, moves, us)
    except SearchError as error:
        raise SearchError(f"the kernels that do not fail compute no plan: {error}") from error
    choices.append(("exact", exact.price_us, list(exact.kernels)))
    plans: dict[str, str] = {}
    for name, _, kernels in choices:
        plans[name] = f"{task['stem']}-{name.replace(' ', '-')}.json"
        plan_file.save(_document(subject, kernels, us), Path(task["folder"], plans[name]))
    return {
        "count": found.count,
        "complete": found.complete,
        "seconds": seconds,
        "sums_us": {name: price for name, price, _ in choices},
        "plans": plans,
        "paths": list(plans.values()),
    }


def _document(subject: Subject, kernels: list[Chosen], us: Mapping[str, float]) -> PlanDocument:
    context = subject.context
    atoms = context.space.atom_graph
    written = [atoms.candidate(kernel.candidate.atoms, kernel.outputs) for kernel in kernels]
    known = [Tuned(measured_us=us.get(class_digest(kernel))) for kernel in written]
    return plan_document(context.program, atoms, kernels, known, identity_here())


def planned(task: Record) -> Record:
    """A plan by one policy, saved. The measuring search leaves schedules alone, and its measurements are forgotten."""
    start = time.perf_counter()
    if task["policy"] == MEASURED:
        subject = _subject(task)
        budget = Budget(task["budget_s"], task["trials"])
        with bench_of(subject) as bench:
            tuner = Tuner(
                subject.context,
                bench,
                identity_here(),
                budget,
                task["tuning_seed"],
                _quiet,
                schedules=DefaultSchedules,
            )
            document = tuner.measured_plan(rules=rule_policies())
    else:
        workload = load(task["file"])
        arguments = workload.inputs(task["size"], task["seed"])
        document = af.compile(workload.function, *arguments, policy=task["policy"], deadline=None).document
    return _saved(document, task, time.perf_counter() - start)


def replayed(task: Record) -> Record:
    """A tuned plan, saved, with its records in `db`; or tuned again from a copy of `records`."""
    workload = load(task["file"])
    arguments = workload.inputs(task["size"], task["seed"])
    folder = Path(task["folder"])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as private:
        db = folder / task["db"] if task.get("db") else Path(private, "tune.db")
        if task.get("records"):
            shutil.copyfile(folder / task["records"], db)
        plan = af.tune(
            workload.function,
            *arguments,
            budget=task["budget_s"],
            max_trials=task["trials"],
            seed=task["tuning_seed"],
            progress=False,
            db=db,
        )
    return _saved(plan.document, task, time.perf_counter() - start)


def _saved(document: PlanDocument, task: Record, seconds: float) -> Record:
    plan_file.save(document, Path(task["folder"], task["plan"]))
    paths = [task["plan"], *([task["db"]] if task.get("db") else [])]
    certificate = None if document.certificate is None else asdict(document.certificate)
    return {"seconds": seconds, "kernels": len(document.kernels), "certificate": certificate, "paths": paths}


def _quiet(what: str, done: float, total: float) -> None:
    del what, done, total


def levelled(task: Record) -> Record:
    """Plans made comparable: every kernel under the default schedule, with its time, placed on lanes by these times.

    A kernel has a time from every round that measured the space; one that none measured is measured as often now. Plans
    of the same kernels become one *work*, saved once.
    """
    folder = Path(task["folder"])
    subject = _subject(task)
    documents = {name: plan_file.load(folder / path) for name, path in task["plans"].items()}
    times: dict[str, list[float]] = {}
    faults: dict[str, str] = {}
    for database in task["dbs"]:
        with bench_of(subject, folder / database) as bench:
            for digest, us in _times(documents, bench, faults).items():
                times.setdefault(digest, []).append(us)
    plans: dict[str, Record] = {name: {"fault": fault} for name, fault in faults.items()}
    for name, document in documents.items():
        if name not in faults:
            plans[name] = _levelled(document, times, folder, task["stem"])
    works = {plan["work"]: plan.pop("path") for plan in plans.values() if "work" in plan}
    return {"plans": plans, "works": works, "paths": list(works.values())}


def _times(documents: Mapping[str, PlanDocument], bench: Bench, faults: dict[str, str]) -> dict[str, float]:
    """Time every kernel of the plans on this bench; a plan of which one fails is added to `faults`."""
    times: dict[str, float] = {}
    for name, document in documents.items():
        for kernel in document.kernels:
            candidate = candidate_of(document.graph, kernel.nodes, kernel.outputs)
            found = bench.kernel(class_digest(candidate), candidate, Schedule())
            times[kernel.digest] = found.us
            if found.status != "ok":
                faults.setdefault(name, f"{kernel.name}: {found.status}: {found.message[:300]}")
    return times


def _levelled(document: PlanDocument, times: Mapping[str, list[float]], folder: Path, stem: str) -> Record:
    kernels = list(document.kernels)
    works: list[Work] = []
    for number, kernel in enumerate(kernels):
        candidate = candidate_of(document.graph, kernel.nodes, kernel.outputs)
        us = statistics.median(times[kernel.digest])
        kernels[number] = replace(kernel, schedule=Schedule(), measured_us=us)
        works.append(Work(candidate.inputs, candidate.outputs, us))
    parts = sorted([list(kernel.nodes), list(kernel.outputs)] for kernel in kernels)
    work = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    path = f"{stem}-work-{work}.json"
    order = tuple(Launch(number, group) for number, group in list_schedule(works))
    plan_file.save(replace(document, kernels=tuple(kernels), order=order, certificate=None, notes=()), folder / path)
    return {"work": work, "path": path, "kernels": [[kernel.digest, times[kernel.digest]] for kernel in kernels]}


def raced(task: Record) -> Record:
    """The works of one program, timed; the cheapest by sum twice."""
    plans = {work: str(Path(task["folder"], path)) for work, path in task["works"].items()}
    return race(task, plans, task["again"])


def compiled(task: Record) -> Record:
    """Seconds of `compile` on one workload, imports not included, and the size of what it searched."""
    workload = load(task["file"])
    arguments = workload.inputs(task["size"], task["seed"])
    af.compile(_double, np.ones(8, np.float32))
    start = time.perf_counter()
    plan = af.compile(workload.function, *arguments)
    seconds = time.perf_counter() - start
    space = af.candidates(workload.function, *arguments)
    return {
        "seconds": seconds,
        "nodes": len(plan.document.graph.nodes),
        "atoms": len(space.context.space.atom_graph.atoms),
        "candidates": len(space),
        "classes": len({option.digest for option in space}),
        "cut_off": space.cut_off,
        "kernels": len(plan.kernels),
    }


def _double(x: Any) -> Any:
    return x + x


def _subject(task: Record) -> Subject:
    return subject_of(task["file"], task["size"], task["seed"])


KINDS = {
    "space": exhausted,
    "partitions": partitioned,
    "plan": planned,
    "replay": replayed,
    "level": levelled,
    "round": raced,
    "compile": compiled,
}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(KINDS[job["kind"]](job)))
