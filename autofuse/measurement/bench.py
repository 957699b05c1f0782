"""What the worker process runs for the tuner: kernels timed alone, and plans timed against each other.

A session holds the graph and the arguments, and computes what a kernel reads with the interpreter. So a kernel measured
alone gets the values it would get in the plan (random numbers into a logarithm would give NaN and a vacuous check).
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.compiled import facts_to_json
from autofuse.errors import AutofuseError, BackendError, MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.host.available import available_bytes
from autofuse.ir.graph import Graph
from autofuse.ir.graphtext import parse_graph
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.schedule import Schedule
from autofuse.measurement.checks import WrongAnswerError, poison
from autofuse.measurement.intermediates import Intermediates, nothing_is_referred
from autofuse.measurement.judging import Judge, nobody_waits
from autofuse.measurement.planblocks import Race
from autofuse.measurement.references import References
from autofuse.measurement.timer import Timing, TimingPolicy, measure
from autofuse.measurement.turns import in_turns, turns_of
from autofuse.measurement.worker import Wait
from autofuse.plan.codec import decode
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import identity_from
from autofuse.runtime.planlowering import candidate_of
from autofuse.strictjson import Item
from autofuse.targets.base import Runner, Target, target_for
from autofuse.targets.registry import asking

Array = NDArray[Any]
RUNNERS = ("open_session", "time_kernel", "time_again", "compile_kernels", "time_plans")
"""What the worker may be asked for."""

_FEW_SAMPLES = 3
"""Of a kernel in one moment: it is timed in several."""
_HANGS = 10.0
"""Times what a call is expected to take, or was seen to: one that takes longer hangs."""
_CALLS = 4
"""Of a call that takes longer than a moment: what timing it for a moment is at most."""
_INTERPRETING_S = 600.0
"""Most time for what the interpreter computes for a kernel. It does not hang; calls of a user's functions may."""
JUDGING = 30.0
"""Times what the interpreter took for a kernel, or a program: most for the bounds of its answer."""

_HELD_SHARE = 0.25
"""Of the memory that is there: most for values that are held beside those of the kernels at hand."""
_LEAST_KERNEL = 0.05
"""Of a call."""
NO_SESSION = "no such session: the worker was started anew"


@dataclass(frozen=True, slots=True)
class _Ready:
    """A kernel on its arrays."""

    call: Callable[[], object]
    seen_s: float
    """What a call was seen to take."""
    entry_us: float
    """What a call takes beside the kernel."""


@dataclass(slots=True)
class _Session:
    graph: Graph
    target: Target
    inputs: tuple[Array, ...]
    constants: Mapping[str, Array]
    values: Intermediates
    cold: bool
    """Whether what is timed finds its operands in memory, not in caches."""
    compiled: dict[str, Runner] = field(default_factory=dict[str, Runner])
    """Kernels compiled ahead of being timed, by `_key`."""
    ready: dict[str, _Ready] = field(default_factory=dict[str, "_Ready"])
    """Kernels that were timed once and will be again, by `_key`."""
    latest: tuple[str, Judge | None] = ("", None)
    """What judges the kernel that was checked last, which is mostly the next one too, under another schedule."""
    whole: Judge | None = None
    """What judges the graph's outputs, once a plan was checked."""
    placed: list[list[Any]] = field(default_factory=list[list[Any]])
    """See `turns`."""

    def runners(
        self, kernel: KernelCandidate, schedules: Sequence[Mapping[str, Any]]
    ) -> Sequence[Runner | AutofuseError]:
        """A kernel under each schedule, or why that cannot be."""
        chosen = [Schedule.from_json(schedule) for schedule in schedules]
        found = self.target.runners(kernel, chosen)
        with asking(self.target.backend, "Target.runners"):
            count = len(found)
        if count != len(chosen):
            raise BackendError(_nonsense(self.target, f"Target.runners gave {count} for {len(chosen)} schedules"))
        return found

    def judge(
        self, kernel: KernelCandidate, payload: Mapping[str, Any], inputs: Sequence[Array], expected: Sequence[Array]
    ) -> Judge:
        """What judges a kernel's outputs when it reads the values of the session."""
        key = _key(payload, {})
        known = self.latest[1] if self.latest[0] == key else None
        if known is None:
            self.latest = "", None  # frees the memory first
            graph = Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs)
            known = Judge(graph, inputs, expected, self.values.are_exact(kernel.nodes))
            self.latest = key, known
        return known

    @property
    def turns(self) -> list[list[Any]]:
        """Arguments of calls of plans, one call after another, as the target's kernels have them."""
        if not self.placed:
            inputs = [exact(array) for array in self.inputs]
            turns = turns_of(sum(array.nbytes for array in inputs), self.target) if self.cold else 1
            place = self.target.arrays.placed
            self.placed += [[place(array.copy() if turn else array) for array in inputs] for turn in range(turns)]
        return self.placed

    @property
    def interpreter_s(self) -> float:
        """Seconds that the interpreter took for the whole graph."""
        return self.values.seconds(self.graph.nodes)

    def plan_judge(self) -> Judge:
        """The same of whole plans, whatever graph they have: they compute the same of the same arguments."""
        if self.whole is None:
            expected, exact = self.values.of(self.graph.outputs), self.values.are_exact(self.graph.nodes)
            self.whole = Judge(self.graph, self.inputs, expected, exact)
        return self.whole


_sessions: dict[str, _Session] = {}


def open_session(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: hold a graph and its arguments.

    Payload: `text`, `identity` (of the target), `held_bytes` (see `Intermediates`; null: a quarter of the memory that
    is there), `cold` (whether operands of kernels and arguments of plans are to lie in memory when they are timed, not
    in caches).
    """
    constants = {name[1:]: array for name, array in arrays.items() if name.startswith("@")}
    graph = parse_graph(payload["text"], constants)
    inputs = tuple(arrays[f"input{number}"] for number in range(len(graph.inputs)))
    target = target_for(identity_from(Item(payload["identity"], "identity", MeasureError, "session")))
    if _sessions:
        _sessions.clear()
        gc.collect()
    held_bytes = payload["held_bytes"]
    most = int(_HELD_SHARE * available_bytes()) if held_bytes is None else held_bytes
    references = References(graph, target).of if target.computes_references else nothing_is_referred
    values = Intermediates(graph, inputs, most, references)
    wait.up_to(_INTERPRETING_S)
    values.of(graph.outputs)
    _sessions[payload["session"]] = _Session(graph, target, inputs, constants, values, payload["cold"])
    return {}


def time_kernel(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: check a kernel's answer, then time it for a moment, and hold it ready for `time_again`.

    Payload: `session`, `nodes`, `outputs`, `schedule`, `time_cap_us`, `worth_us` (stop early
    if it takes longer than that, and do not hold it; null: never), `expected_us` (what a call may take, as far as
    anything is known of that), `deadline_s` (a call without an answer for so long hangs, unless it is expected to take
    long), `left_s` (of the run; null: no limit). Answer: the samples, whether it was stopped early, whether it met
    values that arithmetic may be slow with, the conditions of the device, and what the kernel's compiler said.
    """
    del arrays
    session = _session(payload)
    kernel = candidate_of(session.graph, payload["nodes"], payload["outputs"])
    runner = session.compiled.pop(_key(payload, payload["schedule"]), None)
    if runner is None:
        (runner,) = session.runners(kernel, [payload["schedule"]])
    if isinstance(runner, AutofuseError):
        raise runner
    wait.up_to(_INTERPRETING_S)
    found = session.values.of([*kernel.inputs, *kernel.outputs])
    inputs, expected = [exact(array) for array in found[: len(kernel.inputs)]], found[len(kernel.inputs) :]
    unusual = session.values.any_unusual([*kernel.inputs, *(value for node in kernel.nodes for value in node.outputs)])
    outs = [np.empty(array.shape, array.dtype) for array in expected]
    for out in outs:
        if out.size:
            poison(out)
    interpreter_s = session.values.seconds(kernel.nodes)
    wait.up_to(_patience_s(payload, max(interpreter_s, payload["expected_us"] / 1e6)))

    start = perf_counter_ns()
    run_once(session.target, runner, inputs, outs)
    seen_s = (perf_counter_ns() - start) / 1e9
    wait.up_to(_INTERPRETING_S + JUDGING * interpreter_s)
    session.judge(kernel, payload, inputs, expected).check(outs)
    with _running(session.target, "Runner.bound"):
        call = in_turns(session.target, runner, inputs, outs) if session.cold else runner.bound(inputs, outs)
    wait.up_to(_patience_s(payload, _CALLS * seen_s))
    worth_us = payload["worth_us"]
    entry_us = entry_us_of(session.target, len(inputs) + len(outs))
    policy = TimingPolicy(
        min_samples=_FEW_SAMPLES,
        time_cap_us=float(payload["time_cap_us"]),
        worth_us=math.inf if worth_us is None else float(worth_us) + entry_us,
    )
    timing = timed(session.target, call, policy)
    if not timing.pruned:
        session.ready[_key(payload, payload["schedule"])] = _Ready(call, seen_s, entry_us)
    with asking(session.target.backend, "Target.conditions", MeasureError):
        conditions = session.target.conditions()
    with asking(session.target.backend, "Runner.compiled", MeasureError):
        compiled = runner.compiled()
        told = None if compiled is None else facts_to_json(compiled)
    return {
        "samples_us": [without_entry(us, entry_us) for us in timing.samples_us],
        "pruned": timing.pruned,
        "unusual": unusual,
        "conditions": conditions or "",
        "compiled": told,
    }


def entry_us_of(target: Target, arrays: int) -> float:
    """What a call that is given so many arrays takes beside its kernel."""
    with asking(target.backend, "Target.entry_us", MeasureError):
        found = float(target.entry_us(arrays))
    if not 0.0 <= found < math.inf:
        raise MeasureError(_nonsense(target, f"Target.entry_us gave {found!r:.40} for {arrays} arrays"))
    return found


def without_entry(us: float, entry_us: float) -> float:
    """The time of a kernel, of that of a call; a part of it at least, as both were measured with errors."""
    return max(us - entry_us, _LEAST_KERNEL * us)


def run_once(target: Target, runner: Runner, inputs: Sequence[Array], outs: Sequence[Array]) -> float:
    """Run a kernel; the seconds that it took. A clock that stands still meanwhile would be read for ever: an error."""
    start = _now(target)
    with _running(target, "Runner.run_into"):
        taken = runner.run_into(inputs, outs)
    if not taken:
        raise MeasureError("the kernel refused its own inputs")
    end = _now(target)
    if type(start) is not int or type(end) is not int or end <= start:
        raise MeasureError(
            _nonsense(target, f"Target.clock read {start!r:.40} before a kernel and {end!r:.40} after it")
        )
    return (end - start) / 1e9


def _now(target: Target) -> int:
    with _running(target, "Target.clock"):
        return target.clock()


def timed(target: Target, call: Callable[[], object], policy: TimingPolicy) -> Timing:
    """Time a call of a kernel by the target's clock."""
    with _running(target, "what Runner.bound gave, or Target.clock,"):
        return measure(call, policy, target.clock)


@contextmanager
def _running(target: Target, piece: str) -> Generator[None]:
    """What a kernel that was compiled raises while it runs: nobody refused it, so it is an error of its own."""
    with asking(target.backend, piece, MeasureError):
        try:
            yield
        except BackendError as failed:
            raise MeasureError(f"it fails while it runs: {failed}") from failed


def _nonsense(target: Target, what: str) -> str:
    return f"target {target.backend!r}: {what}; see autofuse.targets.base"


def _patience_s(payload: Mapping[str, Any], expected_s: float) -> float:
    """How long to wait for something that is expected to take a time: not much longer than the run has left."""
    left_s = payload["left_s"]
    return float(payload["deadline_s"]) + min(_HANGS * expected_s, math.inf if left_s is None else left_s)


def time_again(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: time the kernels that are held ready for some more moments, in rounds over all of them.

    What else the machine does slows everything down for a while, and one moment may be such a while. Payload:
    `session`, `kernels` (each with `nodes`, `outputs`, `schedule`), `rounds`, `round_us` (least time from one
    round to the next), `time_cap_us` (of one moment), `seed`, and `deadline_s` and `left_s` as for `time_kernel`.
    Answer: the fastest sample of each moment, by kernel; none for a kernel that is not held. No kernel is held any more
    when this returns.
    """
    del arrays
    session = _session(payload)
    held, session.ready = session.ready, {}
    ready = [held.get(_key(kernel, kernel["schedule"])) for kernel in payload["kernels"]]
    policy = TimingPolicy(min_samples=_FEW_SAMPLES, time_cap_us=float(payload["time_cap_us"]))
    rng = np.random.default_rng(payload["seed"])
    fastest: list[list[float]] = [[] for _ in ready]
    for _ in range(payload["rounds"]):
        start = _now(session.target)
        for number in rng.permutation(len(ready)):
            entry = ready[number]
            if entry is not None:
                wait.at_least(_patience_s(payload, _CALLS * entry.seen_s))
                timing = timed(session.target, entry.call, policy)
                fastest[number].append(without_entry(timing.fastest_us, entry.entry_us))
        left_s = payload["round_us"] / 1e6 - (_now(session.target) - start) / 1e9
        if left_s > 0:
            session.target.pause(left_s)
    return {"fastest_us": fastest}


def compile_kernels(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: compile a kernel under several schedules beside each other, for `time_kernel` to find.

    Payload: `session`, `nodes`, `outputs`, `schedules`. What cannot be compiled is left to `time_kernel` to report.
    """
    del arrays, wait
    session = _session(payload)
    kernel = candidate_of(session.graph, payload["nodes"], payload["outputs"])
    schedules = payload["schedules"]
    session.compiled = {
        _key(payload, schedule): runner
        for schedule, runner in zip(schedules, session.runners(kernel, schedules), strict=True)
        if not isinstance(runner, AutofuseError)
    }
    return {"compiled": len(session.compiled)}


def _key(payload: Mapping[str, Any], schedule: Mapping[str, Any]) -> str:
    """What a kernel of a session goes by under a schedule."""
    return json.dumps([payload["nodes"], payload["outputs"], schedule], sort_keys=True)


def time_plans(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: time whole plans in interleaved blocks, each warmed by a call first, and check their answers.

    A sample is the fastest call of a plan's turn in a block. A plan that is slower than another beyond doubt is
    dropped, as is one whose answer is wrong where another's is right, and blocks end when more of them cannot decide
    anything, or with the time, which the calls before them are part of. Of more plans than there is time for, the last
    ones are run.

    Arrays: constants of plans of other graphs with the same arguments and results, as for a session's own. Payload:
    `session`, `plans` (texts), `blocks`, `seed`, `turn_us` (see `timer.turn_of`), `seconds` (stop after that many, but
    not before `LEAST_BLOCKS`), `decides` (whether plans are dropped and blocks end early at all), `limit_s` (for all of
    it, or null: see `racing.Terms`), and `deadline_s` and `left_s` as for `time_kernel`.
    """
    session = _session(payload)
    with asking(session.target.backend, "Target.clock", MeasureError):
        race = Race(payload, partial(_wait_for_calls, wait, payload), session.target.clock)
    constants = {**session.constants, **{name[1:]: array for name, array in arrays.items() if name.startswith("@")}}
    ask_for_time = partial(wait.up_to, _INTERPRETING_S + JUDGING * session.interpreter_s)
    makers = [partial(_PlanRun, decode(text, constants, "plan"), session, ask_for_time) for text in payload["plans"]]
    plans = race.build(makers)
    ask_for_time()
    session.plan_judge().prepare()
    with asking(session.target.backend, "Executable.run, or Target.clock,", MeasureError):
        samples, problems = race.run(plans, len(makers))
    return {"samples_us": samples, "problems": problems, "cut_short": race.cut_short}


def _wait_for_calls(wait: Wait, payload: Mapping[str, Any], seconds: float) -> None:
    """Wait for calls of a plan that are expected to take so long together."""
    wait.at_least(_patience_s(payload, seconds))


class _PlanRun:
    """A whole plan and the session's arguments."""

    def __init__(
        self, document: PlanDocument, session: _Session, ask_for_time: Callable[[], object] = nobody_waits
    ) -> None:
        """`ask_for_time`: called before what may take long on the host."""
        self._ask_for_time = ask_for_time
        self._executable = session.target.executable(document.in_reals())
        self._session = session
        self._arrays = session.target.arrays
        self._fresh = {number: exact(session.inputs[number]) for number in document.writebacks}
        """What the plan writes to, as it was given."""
        self._turns = [self._own(arguments) for arguments in session.turns]
        self._next = cycle(self._turns)
        first = len(session.graph.outputs) - len(document.writebacks)
        self._copied = [
            (first + place, number)
            for place, number in enumerate(document.writebacks)
            if first + place not in self._executable.aliased and isinstance(self._turns[0][number], np.ndarray)
        ]
        """Results that a call of the plan copies to an argument: (number, argument)."""

    def _own(self, arguments: Sequence[Any]) -> list[Any]:
        """Arguments for a call, those that are written to in memory of their own."""
        copied = self._arrays.copied
        return [copied(array) if number in self._fresh else array for number, array in enumerate(arguments)]

    @property
    def expected_s(self) -> float:
        """What a call may take: no longer than the interpreter, or it is no plan worth having."""
        return self._session.interpreter_s

    def restore(self) -> None:
        """Undo what calls wrote into the arguments."""
        for arguments in self._turns:
            for number, array in self._fresh.items():
                self._arrays.assign(arguments[number], array)

    def call(self) -> tuple[Any, ...]:
        """All that a call of the plan does."""
        arguments = next(self._next)
        results = self._executable.run(arguments)
        if results is NotImplemented:
            raise MeasureError("the plan refused its own arguments")
        for number, argument in self._copied:
            np.copyto(arguments[argument], results[number])
        return results

    def problem(self) -> str:
        """Run once; what is wrong with the answer, or nothing."""
        target, outputs = self._session.target, self._session.graph.outputs
        with asking(target.backend, "Executable.run", MeasureError):
            results = self.call()
            count = len(results)
        if count != len(outputs):
            raise MeasureError(_nonsense(target, f"Executable.run gave {count} results of {len(outputs)}"))
        found = [result if isinstance(result, np.ndarray) else self._arrays.fetched(result) for result in results]
        try:
            self._session.plan_judge().check(found, self._ask_for_time)
        except WrongAnswerError as wrong:
            return str(wrong)
        return ""


def _session(payload: Mapping[str, Any]) -> _Session:
    try:
        return _sessions[payload["session"]]
    except KeyError:
        raise MeasureError(NO_SESSION) from None


def exact(array: Array) -> Array:
    """An array as kernels take it: C-contiguous and aligned."""
    return np.require(array, requirements=["C", "A"])
