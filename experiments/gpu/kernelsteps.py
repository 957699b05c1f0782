"""Steps of the GPU study that look at kernels: forms, counts beside times, schedules, tuning, races, profiles, aims."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from device import Task, array_maker, callers_clock, error_of, host, leaves, there, timed
from turns import await_turn

import autofuse as af
from autofuse.api.plan import Plan
from autofuse.cost_models.base import KernelFacts
from autofuse.errors import AutofuseError, BackendError
from autofuse.ir.interpreter import interpret
from autofuse.lower.lowering import lower
from autofuse.measurement.checks import WrongAnswerError, check
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import Workload, load
from autofuse.search.plans.planning import one_by_one
from autofuse.targets.cuda.executable import build_executable
from autofuse.testing.simt.gates import GATES
from autofuse.testing.simt.planned import count_plan

Outcome = dict[str, Any]
_BLOCKS = 8
"""Of a launch that are counted."""
COMMITTED = Path(__file__).resolve().parents[1] / "results" / "gpu-counts.json"


def form(task: Task) -> Outcome:
    """One form of kernel, unfused and fused, called and replayed, for two sets of values: its worst finding."""
    from forms import FORMS

    function, make = FORMS[task["program"]]
    given = make()
    found: Outcome = {"kernels": 0, "right": True, "said": ""}
    for policy in ("unfused", "analytical"):
        plan = af.compile(function, *copy.deepcopy(given), backend=task["backend"], policy=policy, deadline=None)
        found["kernels"] = len(plan.kernels)
        for scale in (1, 2, 1):
            arrays = [(x * scale).astype(x.dtype) if x.dtype.kind != "i" else x for x in given]
            results = [host(x) for x in leaves(plan(*there(task, tuple(arrays))))]
            right, bounds = interpret(plan.graph, *arrays), bounds_of(plan.graph, arrays)
            try:
                for number, (actual, expected, bound) in enumerate(zip(results, right, bounds, strict=False)):
                    check(f"{policy}: result {number}", np.asarray(actual), expected, bound)
            except WrongAnswerError as wrong:
                return {**found, "right": False, "said": str(wrong)}
    return found


def counted(task: Task) -> Outcome:
    """Each kernel of a program: its time on the device, alone and in order, and what the gates count of it."""
    program = _program(task)
    given = program.inputs(task["size"], 0)
    compiled = af.compile(program.function, *copy.deepcopy(given), backend=task["backend"], **_mode(task))
    plan = Plan(one_by_one(compiled.document))  # what is launched together has no time of its own
    held = there(task, copy.deepcopy(given))
    gates = _gates_of(program.name, plan, given)
    plan(*held)
    await_turn()
    times = [[us for _, us in plan.profile(*held)] for _ in range(5)]
    rows = [
        {
            "kernel": kernel.name,
            "us": min(column),
            "predicted_us": kernel.predicted_us,
            "moved_bytes": sum(v.type.nbytes for v in (*lowered.reads, *lowered.writes)),
            "gates": gates[kernel.name],
        }
        for kernel, lowered, column in zip(plan.kernels, plan.lowered, zip(*times, strict=True), strict=True)
        if kernel.name in gates  # of equal ones the first, and none of calls
    ]
    return {"kernels": rows}


def _gates_of(name: str, plan: Plan, given: tuple[Any, ...]) -> dict[str, dict[str, float]]:
    """The gates of each kernel, the worst of its launches: counted now, or, without a C++ compiler, as committed."""
    found: dict[str, dict[str, float]] = {}
    try:
        counts = count_plan(plan, given, _BLOCKS)
    except BackendError:
        kept = json.loads(COMMITTED.read_text())["programs"].get(name, {"kernels": {}})["kernels"]
        return {kernel.name: kept[kernel.name] for kernel in plan.kernels if kernel.name in kept}
    for launch in counts["launches"]:
        values = found.setdefault(launch["name"], {})
        for gate in GATES:
            value = gate.value(launch, counts["multiprocessors"])
            if value is not None:
                worst = max if gate.at_most else min
                values[gate.name] = worst(values.get(gate.name, value), value)
    return found


def tune(task: Task) -> Outcome:
    """Schedule records of a program, into the database of the results folder."""
    program = _program(task)
    given = program.inputs(task["size"], 0)
    start = perf_counter()
    plan = tuned(program.function, given, task, db=task["database"])
    plan.save(Path(task["database"]).parent / f"{program.name}.json")
    certificate = plan.document.certificate
    assert certificate is not None
    return {
        "us": certificate.e2e_us,
        "unfused_us": certificate.unfused_us,
        "measured": certificate.measured,
        "schedules": certificate.schedules_tried,
        "seconds": perf_counter() - start,
    }


def tuned(function: Any, given: tuple[Any, ...], task: Task, **options: Any) -> Any:
    """The best plan that the time of a step finds; on the simulated device, that four trials find."""
    limits: dict[str, Any] = {"max_trials": 4} if task["backend"] != "cuda" else {"budget": task["budget_s"]}
    return af.tune(
        function,
        *copy.deepcopy(given),
        backend=task["backend"],
        progress=False,
        numerics=task["numerics"],
        **options,
        **limits,
    )


class _WithoutGraphs:
    """A driver that can replay nothing."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def graph(self, nodes: Any) -> None:
        del nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def race(task: Task) -> Outcome:
    """A program's plan as graphs, without them, and without concurrent groups: microseconds of a call."""
    program = _program(task)
    given = program.inputs(task["size"], 0)
    plan = af.compile(program.function, *copy.deepcopy(given), backend=task["backend"], **_mode(task))
    target: Any = plan.target
    make = array_maker(task)
    arrays = [make(x) for x in leaves(given) if isinstance(x, np.ndarray)]
    alone = target.executable(one_by_one(plan.document))
    ways: Mapping[str, Any] = {
        "graphs": plan.executable,
        "launches": build_executable(plan.document, plan.lowered, target.device, _WithoutGraphs(target.driver)),  # type: ignore[arg-type]
        "one stream": alone,
    }
    found: Outcome = {"starts": len(alone.starts)}
    for name, executable in ways.items():
        if executable.run(arrays) is NotImplemented:
            raise BackendError("the plan takes its arguments in another form")
        clock = callers_clock(task, target)
        found[name] = timed(lambda executable=executable: executable.run(arrays), clock).median_us
    return found


def question(task: Task) -> Outcome:
    """One kernel in several ways: what each takes, and what the model says."""
    from questions import QUESTIONS

    wanted = QUESTIONS[task["program"]]
    given = wanted.inputs(task["size"])
    space = af.candidates(wanted.function, *given, backend=task["backend"])
    option = max(space.options, key=lambda one: len(one.nodes))
    kernel, target = option.candidate.kernel, space.target
    decisions = space.context.limits.decisions
    schedules = [decisions.read(way) for way in wanted.ways]
    predicted = [_predicted_us(target, kernel, schedule) for schedule in schedules]  # and machine code is kept
    graph, identity = space.context.program.graph, target.identity
    rows: list[Outcome] = []
    await_turn()
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder, "records.db"), identity) as base,
        Bench(graph, space.arrays, base, identity, description=target.fingerprint()) as bench,
    ):
        for way, schedule, expected in zip(wanted.ways, schedules, predicted, strict=True):
            found = bench.kernel(option.digest, kernel, schedule)
            said = "" if found.status == "ok" else " ".join(f"{found.status}: {found.message[:200]}".split())
            us = found.us if found.status == "ok" else None
            rows.append({"way": _named(way), "us": us, "predicted_us": expected, "said": said})
    return {"record": wanted.record, "kernels": len(space.options), "ways": rows}


def _named(way: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in way.items()) or "default"


def _predicted_us(target: Any, kernel: Any, schedule: Any) -> float | None:
    """By the model, with registers of machine code; None for what there is no such kernel of."""
    try:
        program = lower(kernel, schedule, "question", target.limits)
        (facts,) = target.compiled([program])
    except AutofuseError:
        return None
    return sum(terms.us for terms in target.cost_model().launches(KernelFacts(program, facts)))


def profile(task: Task) -> Outcome:
    """One kernel looked at closely: launches, terms of the model, and its time warm and cold."""
    program = _program(task)
    given = program.inputs(task["size"], 0)
    plan = af.compile(program.function, *copy.deepcopy(given), backend=task["backend"], **_mode(task))
    said = list(plan.remarks.get(task["kernel"], ()))
    (planned,) = (kernel for kernel in plan.document.kernels if kernel.name == task["kernel"])
    space = af.candidates(program.function, *copy.deepcopy(given), backend=task["backend"])
    alike = [one for one in space.options if set(one.outputs) == set(planned.outputs)]
    option = max(alike, key=lambda one: len(set(planned.nodes).intersection(one.nodes)), default=None)
    times: Outcome = {}
    for name, cold in (("warm_us", False), ("cold_us", True)):
        if option is not None:
            timed = af.measure(option, cold=cold)
            times[name] = timed.us if timed.status == "ok" else f"{timed.status}: {timed.message[:200]}"
    return {"launch": said, **times}


def aim(task: Task) -> Outcome:
    """A program that has a time to reach: its call, its kernels, and how far it is from the unfused plan's answer.

    A call of many arguments takes the host longer than the device.
    """
    from aims import AIMS

    wanted = AIMS[task["program"]]
    given = wanted.inputs(task["size"])
    make = array_maker(task)
    held = [make(x) for x in given]
    plans = {
        policy: af.compile(wanted.function, *given, backend=task["backend"], policy=policy, **_mode(task))
        for policy in ("unfused", "analytical")
    }
    results = {policy: [host(x) for x in leaves(plan(*held))] for policy, plan in plans.items()}
    times: dict[str, float] = {}
    for policy, plan in plans.items():
        target: Any = plan.target
        times[policy] = timed(lambda plan=plan: plan(*held), callers_clock(task, target)).median_us
    profiles = [plans["analytical"].profile(*held) for _ in range(7)]
    pairs = zip(results["analytical"], results["unfused"], strict=True)
    return {
        "us": times["analytical"],
        "kernels_us": min(sum(us for _, us in profile) for profile in profiles),
        "unfused_us": times["unfused"],
        "aim_us": wanted.us,
        "error": max(error_of(a, b) for a, b in pairs),
    }


def aim_tuned(task: Task) -> Outcome:
    """A program whose plan missed its time, tuned for as long as the step may."""
    from aims import AIMS

    wanted = AIMS[task["program"]]
    given = wanted.inputs(task["size"])
    plan = tuned(wanted.function, given, task)
    held = [array_maker(task)(x) for x in given]
    timing = timed(lambda: plan(*held), callers_clock(task, plan.target))
    kernels = [
        f"{kernel.name}: {'; '.join(said)}" for kernel, said in zip(plan.kernels, plan.remarks.values(), strict=True)
    ]
    kernels_us = min(sum(us for _, us in plan.profile(*held)) for _ in range(7))
    found = {"us": timing.median_us, "kernels_us": kernels_us, "kernels": kernels}
    return {**found, "measured": plan.document.certificate.measured}


def _mode(task: Task) -> dict[str, Any]:
    """How a program is compiled: as it is asked for, without hurry."""
    return {"numerics": task["numerics"], "deadline": None}


def _program(task: Task) -> Workload:
    return load(task.get("file") or task["program"])
