"""Tuning runs that die when they are told to, forked one after another from a process that has the program ready.

    with KillableRuns() as runs:
        ended = runs.run("attention", folder, die_at=17)
        ended = runs.run("attention", folder)

Moments are counted: before every SQL statement, before and after every record is reported, and before every file that
is opened, renamed or removed in the folder, which is how a plan is saved. No kernel is compiled or timed: what it takes
is a function of its digest and schedule, the same in every process, so that a run takes a fraction of a second.

The process solves nothing itself, since the solver's threads would not survive a fork.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.pool import Outcome
from autofuse.measurement.racing import SURE_BLOCKS
from autofuse.measurement.records import Measurement, Record, schedule_key
from autofuse.plan.file import save
from autofuse.plan.identity import Identity
from autofuse.runtime.kernels import candidate_of
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.context import Context
from autofuse.search.space.classes import class_digest
from autofuse.search.tune.baselines import rule_policies
from autofuse.search.tune.tuner import Tuner
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import attention_graph, layers_graph

PROGRAMS: Mapping[str, Callable[[], Graph]] = {
    "attention": lambda: attention_graph(32, 16),
    "layers": lambda: layers_graph(2, 32, 32),
    "random": lambda: random_graph(np.random.default_rng(3), 14),
}
DATABASE, PLAN = "tune.db", "plan.json"
"""Files of a run in its folder."""

_FILE_EVENTS = ("open", "os.rename", "os.remove")
"""Audit events whose first argument is a path."""
_FAILING = 0.15
"""Share of the schedules, the default not among them, whose kernels answer wrongly."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run."""

    program: str
    folder: str
    trials: int
    seed: int
    die_at: int | None
    """The moment, counted from 1, at which it kills itself."""
    kill_after_s: float | None
    """When it is killed from outside."""
    file_bytes: int | None
    """No file may grow longer: a disk that becomes full."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    stored: tuple[str, ...]
    """Records, by `uid`, that were stored: reported as soon as `Database.add` had returned."""
    code: int
    """0, 1 after an error, or minus the number of the signal that killed it."""
    moments: int | None
    """How many moments it had; None if it did not come to its end."""
    error: str
    seconds: float


class KillableRuns:
    """A process of its own, as a context manager. Use it from one thread."""

    def __init__(self, hash_seed: int = 0) -> None:
        """`hash_seed`: as PYTHONHASHSEED; sets of texts are in another order with each."""
        path = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autofuse.testing.kills"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path},
        )

    def __enter__(self) -> KillableRuns:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def run(
        self,
        program: str,
        folder: Path,
        *,
        trials: int = 40,
        seed: int = 0,
        die_at: int | None = None,
        kill_after_s: float | None = None,
        file_bytes: int | None = None,
    ) -> Ended:
        """Tune one of `PROGRAMS` with the records and the plan in `folder`, and wait until the run has ended."""
        order = Order(program, str(folder), trials, seed, die_at, kill_after_s, file_bytes)
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        orders.write(json.dumps(asdict(order)) + "\n")
        orders.flush()
        answer = answers.readline()
        assert answer, "the process that runs are forked from has died"
        found: dict[str, Any] = json.loads(answer)
        return Ended(tuple(found.pop("stored")), **found)


# ---- the process that runs are forked from ---------------------------------------------------------------------------


def main() -> int:
    """Answer orders on standard input, one per line, until it ends."""
    importlib.import_module("optuna")  # once, not in every run
    identity = identity_here()
    contexts: dict[str, Context] = {}
    for line in sys.stdin:
        order = Order(**json.loads(line))
        if order.program not in contexts:
            contexts[order.program] = _ready(order.program)
        print(json.dumps(asdict(_run(order, contexts[order.program], identity))), flush=True)
    return 0


def _ready(program: str) -> Context:
    """A program with its space built and priced."""
    context = context_of(PROGRAMS[program]())
    context.kernels.prices.saved(context.space)
    return context


def _run(order: Order, context: Context, identity: Identity) -> Ended:
    reader, writer = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(order, context, identity, writer)
    os.close(writer)
    lines = _read(reader, child, order.kill_after_s).splitlines()
    os.close(reader)
    _, status = os.waitpid(child, 0)
    reports = [json.loads(line) for line in lines]
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        stored=tuple(report["stored"] for report in reports if "stored" in report),
        moments=next((report["moments"] for report in reports if "moments" in report), None),
        error="".join(report["error"] for report in reports if "error" in report),
        seconds=time.monotonic() - start,
    )


def _read(reader: int, child: int, kill_after_s: float | None) -> bytes:
    """What a run reports until it ends, which is at the given time at the latest."""
    until = None if kill_after_s is None else time.monotonic() + kill_after_s
    parts: list[bytes] = []
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            until = None
            continue
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


# ---- a run -----------------------------------------------------------------------------------------------------------


class Moments:
    """Counts moments, and kills this process at the last one."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self._last = last

    def __call__(self) -> None:
        """One moment."""
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def _live(order: Order, context: Context, identity: Identity, writer: int) -> NoReturn:
    """Run in the forked process, and end it."""
    moment = Moments(order.die_at)

    def tell(**report: object) -> None:
        os.write(writer, (json.dumps(report) + "\n").encode())

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS and str(arguments[0]).startswith(order.folder):
            moment()

    code = 1
    try:
        if order.file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, order.file_bytes))
        sys.addaudithook(watch)
        with patch.object(sqlite3, "connect", _watched(sqlite3.connect, moment)):
            _tune(order, context, identity, tell, moment)
        tell(moments=moment.count)
        code = 0
    except Exception:  # noqa: BLE001 - the end of a process: the test reads what went wrong
        tell(error=traceback.format_exc())
    finally:
        os._exit(code)


def _watched(connect: Callable[..., sqlite3.Connection], moment: Moments) -> Callable[..., sqlite3.Connection]:
    """`sqlite3.connect` whose connections count a moment before each statement."""

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda _: moment())
        return connection

    return watched


def _tune(order: Order, context: Context, identity: Identity, tell: Callable[..., None], moment: Moments) -> None:
    folder = Path(order.folder)
    graph = context.program.graph
    inputs = random_inputs(graph, np.random.default_rng(0))
    with (
        ReportingDatabase(folder / DATABASE, identity, tell, moment) as base,
        TimelessBench(graph, inputs, base, identity, threads=1) as bench,
    ):
        budget = Budget(1e6, order.trials)
        tuner = Tuner(
            context, bench, identity, budget, order.seed, lambda *_: None, lambda: 0.1 * bench.counts.measured
        )
        document = tuner.measured_plan(rules=rule_policies())
    save(document, folder / PLAN)


class ReportingDatabase(Database):
    """Tells of each record that it is stored, right after that is so."""

    def __init__(self, path: Path, identity: Identity, tell: Callable[..., None], moment: Moments) -> None:
        super().__init__(path, identity)
        self._tell, self._moment = tell, moment

    def add_all(self, measurements: Sequence[Measurement]) -> list[Record]:
        """See `Database.add_all`."""
        records = super().add_all(measurements)
        self._moment()
        for record in records:
            self._tell(stored=record.uid)
        self._moment()
        return records


class TimelessBench(Bench):
    """A bench whose worker is a function: a kernel's time is told by its digest and its schedule."""

    def ready(self) -> bool:
        """Always: there is no process to start."""
        return False

    def _run(
        self,
        runner: str,
        payload: Mapping[str, Any],
        build_s: float = 0.0,
        arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> Outcome:
        del build_s, arrays
        if runner == "time_again":
            moments = [[self._time_us(kernel)] * payload["rounds"] for kernel in payload["kernels"]]
            return Outcome("ok", "", {"fastest_us": moments})
        if runner == "time_plans":
            samples = [[_plan_us(json.loads(text))] * min(payload["blocks"], SURE_BLOCKS) for text in payload["plans"]]
            return Outcome("ok", "", {"samples_us": samples, "problems": [""] * len(samples), "cut_short": False})
        if runner != "time_kernel":
            return Outcome("ok", "")
        digest, schedule = self._asked(payload)
        if schedule != Schedule() and _share("fails", digest, schedule_key(schedule)) < _FAILING:
            return Outcome("wrong", "%it is off")
        us = _kernel_us(digest, schedule)
        worth_us = payload.get("worth_us")
        samples = [1.5 * us, 1.1 * us, 1.25 * us]
        pruned = worth_us is not None and min(samples) > worth_us
        answer = {"samples_us": samples, "pruned": pruned, "unusual": False}
        return Outcome("ok", "", answer)

    def _asked(self, payload: Mapping[str, Any]) -> tuple[str, Schedule]:
        kernel = candidate_of(self._graph, payload["nodes"], payload["outputs"])
        return class_digest(kernel), Schedule.from_json(payload["schedule"])

    def _time_us(self, payload: Mapping[str, Any]) -> float:
        return _kernel_us(*self._asked(payload))


def _plan_us(plan: Mapping[str, Any]) -> float:
    """The sum of the kernels' times, shortened by a part of the plan's own, as if they overlapped."""
    digests = [kernel["digest"] for kernel in plan["kernels"]]
    schedules = [Schedule.from_json(kernel["schedule"]) for kernel in plan["kernels"]]
    apart = sum(_kernel_us(digest, schedule) for digest, schedule in zip(digests, schedules, strict=True))
    return apart * (0.7 + 0.3 * _share("overlap", *digests))


def _kernel_us(digest: str, schedule: Schedule) -> float:
    """1 to 100 microseconds."""
    return 1.0 + 99.0 * _share("time", digest, schedule_key(schedule))


def _share(*texts: str) -> float:
    """A number in 0..1 that texts determine."""
    return int(hashlib.sha256("|".join(texts).encode()).hexdigest()[:12], 16) / 16**12


if __name__ == "__main__":
    sys.exit(main())
