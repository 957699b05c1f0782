"""What the worker process runs for the tuner: kernels timed alone, and plans timed against each other.

A session holds the graph, the arguments and the interpreter's own intermediates, so that a kernel measured alone gets
the values it would get in the plan (random numbers into a logarithm would give NaN and a vacuous check).
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import digest
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.text import parse_graph
from autofuse.ir.tree import Branch, Leaf
from autofuse.lower.schedule import Schedule
from autofuse.measurement.checks import WrongAnswerError, check, poison
from autofuse.measurement.errorbounds import Bound, bounds_of
from autofuse.measurement.planblocks import Race
from autofuse.measurement.timer import TimingPolicy, measure
from autofuse.measurement.worker import Answer
from autofuse.plan.codec import decode
from autofuse.plan.document import Launch, PlanDocument, PlannedKernel
from autofuse.plan.identity import host_cpu_identity
from autofuse.runtime.kernels import candidate_of
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.device.store import CalibrationStore
from autofuse.targets.cpu.executable import CpuExecutable, build_executable, build_executables, cpu_limits

Array = NDArray[Any]
Built = Callable[[], None]

_FEW_SAMPLES = 3
"""Of a kernel in one moment: it is timed in several."""

NO_SESSION = "no such session: the worker was started anew"


@dataclass(slots=True)
class _Session:
    graph: Graph
    description: CpuDescription
    inputs: tuple[Array, ...]
    constants: Mapping[str, Array]
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    compiled: dict[str, CpuExecutable] = field(default_factory=dict[str, CpuExecutable])
    """Kernels compiled ahead of being timed, by `_key`."""
    ready: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])
    """Kernels that were timed once and will be again, by `_key`."""
    latest: tuple[str, tuple[Bound, ...]] = ("", ())
    """The bounds of the kernel that was checked last, which is mostly the next one too, under another schedule."""
    whole: tuple[Bound, ...] | None = None
    """The bounds of the graph's outputs, once a plan was checked."""

    def bounds(self, kernel: KernelCandidate, payload: Mapping[str, Any], inputs: Sequence[Array]) -> tuple[Bound, ...]:
        """By how much a kernel's outputs may differ from the interpreter's when it reads the interpreter's values."""
        key = _key(payload, {})
        if self.latest[0] != key:
            self.latest = "", ()  # frees the memory first
            self.latest = key, bounds_of(Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs), inputs)
        return self.latest[1]

    def plan_bounds(self) -> tuple[Bound, ...]:
        """The same of whole plans, whatever graph they have: they compute the same of the same arguments."""
        if self.whole is None:
            self.whole = bounds_of(self.graph, self.inputs)
        return self.whole


_sessions: dict[str, _Session] = {}


def open_session(payload: Mapping[str, Any], arrays: Mapping[str, Array], built: Built) -> Answer:
    """Runner: hold a graph and its arguments. Payload: `text`, `threads`, `wanted` (values to keep)."""
    constants = {name[1:]: array for name, array in arrays.items() if name.startswith("@")}
    graph = parse_graph(payload["text"], constants)
    inputs = tuple(arrays[f"input{number}"] for number in range(len(graph.inputs)))
    description = CalibrationStore().describe(detect(payload["threads"]))
    session = _Session(graph, description, inputs, constants)
    built()
    session.values = dict(interpret_values(graph, inputs, payload["wanted"]))
    _sessions.clear()
    _sessions[payload["session"]] = session
    gc.collect()
    return Answer({"kept": len(session.values)})


def time_kernel(payload: Mapping[str, Any], arrays: Mapping[str, Array], built: Built) -> Answer:
    """Runner: check a kernel's answer, then time it for a moment, and hold it ready for `time_again`.

    Payload: `session`, `nodes`, `outputs`, `schedule`, `time_cap_us`, `worth_us` (stop early if it takes longer than
    that, and do not hold it; null or absent: never).
    """
    del arrays
    session = _session(payload)
    kernel = candidate_of(session.graph, payload["nodes"], payload["outputs"])
    executable = session.compiled.pop(_key(payload, payload["schedule"]), None)
    if executable is None:
        document = kernel_document(kernel, Schedule.from_json(payload["schedule"]), session.description)
        executable = build_executable(document, cpu_limits(session.description))
    inputs = [_exact(_value_array(session, value)) for value in kernel.inputs]
    expected = [_value_array(session, value) for value in kernel.outputs]
    outs = [np.empty(array.shape, array.dtype) for array in expected]
    for out in outs:
        if out.size:
            poison(out)
    built()

    if not executable.run_into(inputs, outs):
        raise MeasureError("the kernel refused its own inputs")
    bounds = session.bounds(kernel, payload, inputs)
    for value, out, right, bound in zip(kernel.outputs, outs, expected, bounds, strict=True):
        check(f"%{value.name}", out, right, bound)
    worth_us = payload.get("worth_us")
    policy = TimingPolicy(
        min_samples=_FEW_SAMPLES,
        time_cap_us=float(payload["time_cap_us"]),
        worth_us=math.inf if worth_us is None else float(worth_us),
    )
    call = partial(executable.native.call_into, *inputs, *outs)
    timing = measure(call, policy)
    if not timing.pruned:
        session.ready[_key(payload, payload["schedule"])] = call
    return Answer({"samples_us": list(timing.samples_us), "pruned": timing.pruned})


def time_again(payload: Mapping[str, Any], arrays: Mapping[str, Array], built: Built) -> Answer:
    """Runner: time the kernels that are held ready for some more moments, in rounds over all of them.

    What else the machine does slows everything down for a while, and one moment may be such a while. Payload:
    `session`, `kernels` (each with `nodes`, `outputs`, `schedule`), `rounds`, `round_us` (least time from one round to
    the next), `time_cap_us` (of one moment), `seed`. Answer: the fastest sample of each moment, by kernel; none for
    a kernel that is not held. No kernel is held any more when this returns.
    """
    del arrays
    session = _session(payload)
    held, session.ready = session.ready, {}
    calls = [held.get(_key(kernel, kernel["schedule"])) for kernel in payload["kernels"]]
    built()
    policy = TimingPolicy(min_samples=_FEW_SAMPLES, time_cap_us=float(payload["time_cap_us"]))
    rng = np.random.default_rng(payload["seed"])
    fastest: list[list[float]] = [[] for _ in calls]
    for _ in range(payload["rounds"]):
        start = perf_counter_ns()
        for number in rng.permutation(len(calls)):
            call = calls[number]
            if call is not None:
                fastest[number].append(measure(call, policy).fastest_us)
        sleep(max(0.0, payload["round_us"] / 1e6 - (perf_counter_ns() - start) / 1e9))
    return Answer({"fastest_us": fastest})


def compile_kernels(payload: Mapping[str, Any], arrays: Mapping[str, Array], built: Built) -> Answer:
    """Runner: compile a kernel under several schedules beside each other, for `time_kernel` to find.

    Payload: `session`, `nodes`, `outputs`, `schedules`. What cannot be compiled is left to `time_kernel` to report.
    """
    del arrays
    session = _session(payload)
    kernel = candidate_of(session.graph, payload["nodes"], payload["outputs"])
    schedules = payload["schedules"]
    documents = [kernel_document(kernel, Schedule.from_json(s), session.description) for s in schedules]
    executables = build_executables(documents, cpu_limits(session.description))
    session.compiled = {
        _key(payload, schedule): executable
        for schedule, executable in zip(schedules, executables, strict=True)
        if executable is not None
    }
    built()
    return Answer({"compiled": len(session.compiled)})


def _key(payload: Mapping[str, Any], schedule: Mapping[str, Any]) -> str:
    """What a kernel of a session goes by under a schedule."""
    return json.dumps([payload["nodes"], payload["outputs"], schedule], sort_keys=True)


def time_plans(payload: Mapping[str, Any], arrays: Mapping[str, Array], built: Built) -> Answer:
    """Runner: time whole plans in interleaved blocks, each warmed by a call first, and check their answers.

    A sample is the fastest call of a plan's turn in a block. A plan that is slower than another beyond doubt is
    dropped, as is one whose answer is wrong where another's is right, and blocks end when more of them cannot decide
    anything, or with the time, which the calls before them are part of. Of more plans than there is time for, the last
    ones are run.

    Arrays: constants of plans of other graphs with the same arguments and results, as for a session's own. Payload:
    `session`, `plans` (texts), `blocks`, `seed`, `turn_us` (see `timer.turn_of`), `seconds` (stop after that many, but
    not before `LEAST_BLOCKS`), `decides` (whether plans are dropped and blocks end early at all), `limit_s` (for all of
    it, or null: see `racing.Terms`).
    """
    race = Race(payload)
    session = _session(payload)
    constants = {**session.constants, **{name[1:]: array for name, array in arrays.items() if name.startswith("@")}}
    makers = [partial(_PlanRun, decode(text, constants, "plan"), session) for text in payload["plans"]]
    plans = race.build(makers)
    built()
    session.plan_bounds()
    samples, problems = race.run(plans, len(makers))
    return Answer({"samples_us": samples, "problems": problems, "cut_short": race.cut_short})


def kernel_document(kernel: KernelCandidate, schedule: Schedule, description: CpuDescription) -> PlanDocument:
    """A plan of one kernel: its subgraph, with what it reads as arguments."""
    graph = Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs)
    planned = PlannedKernel(
        name="kernel",
        kind="kernel",
        nodes=tuple(node.name for node in kernel.nodes),
        outputs=tuple(value.name for value in kernel.outputs),
        schedule=schedule,
        digest="",
    )
    leaves = tuple(Leaf() for _ in graph.inputs)
    results = tuple(Leaf() for _ in graph.outputs)
    return PlanDocument(
        name="kernel",
        backend="cpu",
        numerics="strict",
        graph=graph,
        graph_digest=digest(graph),
        in_tree=Branch("tuple", tuple(range(len(leaves))), leaves),
        out_tree=Branch("tuple", tuple(range(len(results))), results),
        parameters=tuple(f"a{number}" for number in range(len(leaves))),
        writebacks=(),
        kernels=(planned,),
        order=(Launch(0),),
        identity=host_cpu_identity(description),
    )


class _PlanRun:
    """A whole plan and the session's arguments."""

    def __init__(self, document: PlanDocument, session: _Session) -> None:
        self._executable = build_executable(document, cpu_limits(session.description))
        self._session = session
        self._inputs = [_exact(array) for array in session.inputs]
        self._fresh = {number: self._inputs[number] for number in document.writebacks}
        """What the plan writes to, as it was given."""
        for number, array in self._fresh.items():
            self._inputs[number] = array.copy()
        first = len(session.graph.outputs) - len(document.writebacks)
        self._copied = [
            (first + place, self._inputs[number])
            for place, number in enumerate(document.writebacks)
            if first + place not in self._executable.aliased
        ]
        """Results that a call of the plan copies to an argument: (number, argument)."""
        self._expected = [_value_array(session, value) for value in session.graph.outputs]

    def restore(self) -> None:
        """Undo what calls wrote into the arguments."""
        for number, array in self._fresh.items():
            np.copyto(self._inputs[number], array)

    def call(self) -> tuple[Array, ...]:
        """All that a call of the plan does."""
        results = self._executable.run(self._inputs)
        if results is NotImplemented:
            raise MeasureError("the plan refused its own arguments")
        for number, argument in self._copied:
            np.copyto(argument, results[number])
        return results

    def problem(self) -> str:
        """Run once; what is wrong with the answer, or nothing."""
        results, bounds = self.call(), self._session.plan_bounds()
        outputs = self._session.graph.outputs
        try:
            for value, result, right, bound in zip(outputs, results, self._expected, bounds, strict=True):
                check(f"%{value.name}", result, right, bound)
        except WrongAnswerError as wrong:
            return str(wrong)
        return ""


def _session(payload: Mapping[str, Any]) -> _Session:
    try:
        return _sessions[payload["session"]]
    except KeyError:
        raise MeasureError(NO_SESSION) from None


def _value_array(session: _Session, value: Value) -> Array:
    if value in session.graph.inputs:
        return session.inputs[session.graph.inputs.index(value)]
    producer = session.graph.producers[value]
    if role_of(producer) is Role.CONSTANT:
        return producer.attrs["value"]
    return session.values[value.name]


def _exact(array: Array) -> Array:
    return np.require(array, requirements=["C", "A"])
