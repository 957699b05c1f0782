"""What the worker process runs for the collector of data sets: the kernels of a program prepared, then timed in turns.

Preparing (compiling, interpreting, checking) and timing are jobs of their own, so that two workers can prepare beside
each other, and one times while the other waits. All samples of a kernel are few: they are spread over the rounds of a
job, and over passes in other processes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.compiled import facts_to_json
from autofuse.errors import AutofuseError, MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.host.cputimes import cpu_times, others_between
from autofuse.ir.graph import Graph
from autofuse.ir.graphtext import parse_graph
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.schedule import Schedule
from autofuse.measurement.bench import JUDGING, entry_us_of, exact, run_once, timed, without_entry
from autofuse.measurement.checks import check, poison
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.intermediates import Intermediates
from autofuse.measurement.timer import TimingPolicy
from autofuse.measurement.worker import Wait, status_of
from autofuse.plan.identity import identity_from
from autofuse.runtime.planlowering import candidate_of
from autofuse.strictjson import Item
from autofuse.targets.base import Runner, Target, target_for
from autofuse.targets.registry import asking

Array = NDArray[Any]
RUNNERS = ("open_program", "prepare", "time_prepared")
"""What the worker may be asked for."""

_WARMUP_US = 200.0
_LEAST_SAMPLES = 2
_MOST_SAMPLES = 8
_MOMENT_US = 1000.0
"""Of the samples of a kernel in one round, unless so few take longer."""
_JUDGED_EXACTLY = 1 << 18
"""Elements that a kernel computes, at most, for which the bounds of its answer are always worked out."""
_ROUGHLY = {2: 2.0**-5, 4: 2.0**-8, 8: 2.0**-8}
"""Of an answer's largest element, by bytes of an element: what the answer of a larger kernel may be off by."""
_STRAY = 1e-3
"""Of all elements that are no floats: those that may differ, where a decision was close."""
_PATIENCE_S = 30.0
_HANGS = 10.0
"""Times what the interpreter took, beyond that: a kernel that takes longer hangs."""
_INTERPRETING_S = 600.0
_LOOKED_S = 0.06
"""Least time over which what others do is looked at: the system counts in hundredths of a second."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A kernel that can be timed."""

    call: Callable[[], object]
    target: Target
    seconds: float
    """That it took when it ran once."""
    arrays: int
    """That it reads and writes."""


@dataclass(slots=True)
class _Program:
    graph: Graph
    targets: tuple[Target, ...]
    values: Intermediates
    outs: dict[tuple[str, ...], list[Array]] = field(default_factory=dict[tuple[str, ...], list[Array]])
    """Memory for outputs, by their names: shared by the schedules of a kernel."""
    prepared: list[_Prepared | None] = field(default_factory=list["_Prepared | None"])
    """In the order of the job; None for one that failed."""


_open: dict[str, _Program] = {}


def open_program(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: hold a graph and its arguments, and compute its values.

    Payload: `session`, `text`, `identities` (of the targets that kernels may be for), `held_bytes`. Arrays: `input0`
    and so on.
    """
    _open.clear()
    gc.collect()
    graph = parse_graph(payload["text"], {})
    inputs = tuple(arrays[f"input{number}"] for number in range(len(graph.inputs)))
    items = Item(payload["identities"], "identities", MeasureError, "program").items(100)
    values = Intermediates(graph, inputs, payload["held_bytes"])
    wait.up_to(_INTERPRETING_S)
    values.of(graph.outputs)
    _open[payload["session"]] = _Program(graph, tuple(target_for(identity_from(item)) for item in items), values)
    return {}


def prepare(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: compile kernels, run each once, and check its answer unless that was done before.

    Payload: `session`, `kernels` (each with `nodes`, `outputs`, `schedule`, `target`, the number of its identity),
    `check`. Answer, by kernel: `status`, `message`, whether it met values that arithmetic may be slow with (`unusual`),
    and what its compiler said (`compiled`, null for nothing). What is prepared is held for `time_prepared`, in place of
    what was before.
    """
    del arrays
    program = _program(payload)
    program.prepared.clear()
    found: list[dict[str, Any]] = []
    for described in payload["kernels"]:
        wait.up_to(_INTERPRETING_S)
        prepared = None
        try:
            prepared, known = _prepared(program, described, payload["check"], wait)
            found.append({"status": "ok", "message": "", **known})
        except Exception as bad:
            if status_of(bad) == "crash":  # the device does nothing more for this process
                raise
            message = str(bad) if isinstance(bad, AutofuseError) else f"{type(bad).__name__}: {bad}"
            found.append({"status": status_of(bad), "message": message, "unusual": False, "compiled": None})
        program.prepared.append(prepared)
    return {"kernels": found}


def time_prepared(payload: Mapping[str, Any], arrays: Mapping[str, Array], wait: Wait) -> dict[str, Any]:
    """Runner: time the kernels that were prepared, in rounds over all of them, each in an order of its own.

    Payload: `session`, `rounds`, `seed`, `kernels` (how many there are). Answer: `samples_us` by kernel, none for one
    that failed; `load`, how many cores others kept busy meanwhile, or null; `conditions` of the first target's device.
    """
    del arrays
    program = _program(payload)
    policy = TimingPolicy(_WARMUP_US, _LEAST_SAMPLES, _MOST_SAMPLES, time_cap_us=_MOMENT_US)
    rng = np.random.default_rng(payload["seed"])
    first = program.targets[0]
    samples: list[list[float]] = [[] for _ in program.prepared]
    # here, where nobody prepares beside
    entries_us = [0.0 if kernel is None else entry_us_of(kernel.target, kernel.arrays) for kernel in program.prepared]
    before, start = cpu_times(), first.clock()
    for _ in range(payload["rounds"]):
        for number in rng.permutation(len(program.prepared)):
            kernel = program.prepared[number]
            if kernel is not None:
                wait.at_least(_PATIENCE_S + _HANGS * _MOST_SAMPLES * kernel.seconds)
                timing = timed(kernel.target, kernel.call, policy)
                samples[number] += [without_entry(us, entries_us[number]) for us in timing.samples_us]
    first.pause(max(0.0, _LOOKED_S - (first.clock() - start) / 1e9))
    load = others_between(before, cpu_times())
    with asking(first.backend, "Target.conditions", MeasureError):
        conditions = first.conditions()
    return {
        "samples_us": samples,
        "load": load,
        "conditions": conditions or "",
    }


def _program(payload: Mapping[str, Any]) -> _Program:
    try:
        return _open[payload["session"]]
    except KeyError:
        raise MeasureError("no such program: the worker was started anew") from None


def _prepared(
    program: _Program, described: Mapping[str, Any], judged: bool, wait: Wait
) -> tuple[_Prepared, dict[str, Any]]:
    """A kernel that is ready, and what is known of it: see `prepare`."""
    target = program.targets[described["target"]]
    kernel = candidate_of(program.graph, described["nodes"], described["outputs"])
    with asking(target.backend, "Target.runners"):
        (runner,) = target.runners(kernel, [Schedule.from_json(described["schedule"])])
    if isinstance(runner, AutofuseError):
        raise runner
    values = program.values
    found = values.of([*kernel.inputs, *kernel.outputs])
    inputs, right = [exact(array) for array in found[: len(kernel.inputs)]], found[len(kernel.inputs) :]
    interpreter_s = values.seconds(kernel.nodes)
    wait.up_to(_PATIENCE_S + _HANGS * interpreter_s)
    outs, seconds = _ran(program, target, runner, (kernel, inputs, right))
    if judged:
        wait.up_to(_INTERPRETING_S + JUDGING * interpreter_s)
        _judge(kernel, inputs, outs, right)
    unusual = values.any_unusual([*kernel.inputs, *(value for node in kernel.nodes for value in node.outputs)])
    with asking(target.backend, "Runner.compiled", MeasureError):
        compiled = runner.compiled()
        told = None if compiled is None else facts_to_json(compiled)
    with asking(target.backend, "Runner.bound", MeasureError):
        call = runner.bound(inputs, outs)
    return _Prepared(call, target, seconds, len(inputs) + len(outs)), {"unusual": unusual, "compiled": told}


def _ran(
    program: _Program, target: Target, runner: Runner, about: tuple[KernelCandidate, Sequence[Array], Sequence[Array]]
) -> tuple[list[Array], float]:
    """Run a kernel once, in poisoned memory: that memory, and the seconds."""
    kernel, inputs, right = about
    names = tuple(value.name for value in kernel.outputs)
    if names not in program.outs:
        program.outs[names] = [np.empty(array.shape, array.dtype) for array in right]
    outs = program.outs[names]
    for out in outs:
        if out.size:
            poison(out)
    return outs, run_once(target, runner, inputs, outs)


def _judge(kernel: KernelCandidate, inputs: Sequence[Array], outs: Sequence[Array], right: Sequence[Array]) -> None:
    """Raise WrongAnswerError for an answer that is wrong.

    Of large kernels only one that is far off is looked at closely: working out bounds takes long.
    """
    if sum(value.type.size for node in kernel.nodes for value in node.outputs) > _JUDGED_EXACTLY and all(
        _about(out, wanted, value.type.dtype.is_float)
        for value, out, wanted in zip(kernel.outputs, outs, right, strict=True)
    ):
        return
    bounds = bounds_of(Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs), inputs)
    for value, out, wanted, bound in zip(kernel.outputs, outs, right, bounds, strict=True):
        check(f"%{value.name}", out, wanted, bound)


def _about(out: Array, wanted: Array, is_float: bool) -> bool:
    """Whether an answer is about what it should be: floats are near, nearly all others are equal."""
    if is_float:
        return not bool(np.any(_far_off(out, wanted)))
    return bool(np.count_nonzero(np.not_equal(out, wanted)) <= _STRAY * out.size)


def _far_off(out: Array, wanted: Array) -> NDArray[np.bool_]:
    """Where floats are far off; what is not finite must be what it should be."""
    finite = np.isfinite(wanted)
    largest = float(np.max(np.abs(wanted), where=finite, initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(out.astype(np.float64) - wanted.astype(np.float64))
        near = off <= _ROUGHLY[out.itemsize] * largest
        same = (out == wanted) | (np.isnan(out) & np.isnan(wanted))
    return ~np.where(finite, near, same)
