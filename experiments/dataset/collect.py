"""Kernels measured by two workers: they prepare beside each other and time in turns, a block of programs at a time."""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
from choosing import Chosen, threads_of
from journal import Record
from programs import Made, Source, made
from state import State

from autofuse.cost_models.compiled import facts_from
from autofuse.errors import MeasureError
from autofuse.host.available import available_bytes
from autofuse.lower.schedule import Schedule
from autofuse.measurement.checks import CHECK_VERSION
from autofuse.measurement.cluster.leases import Leased, Leases
from autofuse.measurement.inputvalues import InputValues
from autofuse.measurement.kernelrecords import holds_for, signature_of
from autofuse.measurement.observations import pass_policy
from autofuse.measurement.records import Measurement, Status
from autofuse.measurement.workerpool import QUIET, Job, JobWorker, Outcome, Worker, WorkerLostError
from autofuse.plan.identity import compare, identity_to_json
from autofuse.runtime.planlowering import candidate_of
from autofuse.strictjson import Item
from autofuse.targets.base import Target

WORKERS = 2
ROUNDS = 2
"""Moments of a pass."""
ATTEMPTS = 3
"""Times that kernels are timed in a pass, at most."""
BUSY = 0.15
"""Cores that others keep busy, from which on a pass is disturbed."""
MOST_LOST = 2
"""Devices that may be lost with a program."""
_RUNNERS = "autofuse.measurement.collecting"
_BUILD_S = 120.0
_HELD_SHARE = 0.15
"""Of the memory that there is: for the values of each worker's program."""


@dataclass
class _Turn:
    """The kernels of one program that wait for a pass."""

    program: Record
    number: int
    """Of the pass."""
    kernels: list[Chosen]

    @cached_property
    def made(self) -> Made:
        """The program, made when it is prepared."""
        return made(Source(**{name: self.program[name] for name in Source.__annotations__}))


class Collector:
    """Measures what is planned. Use it as a context manager."""

    def __init__(self, state: State, targets: Sequence[Target], seed: int, leases: Leases | None = None) -> None:
        """`leases`: devices elsewhere, each of which measures programs of its own; else two processes here take turns.

        Raises MeasureError for devices of another identity than the state's.
        """
        self._state, self._targets, self._seed = state, targets, seed
        self._places = {threads_of(target, targets): place for place, target in enumerate(targets)}
        environment = {**QUIET, "AUTOFUSE_CACHE": str(state.folder / "cache")}
        self._stack = ExitStack()
        self._leases = leases
        self._telling = Lock()
        if leases is not None:
            refuse = compare(targets[-1].identity, leases.identity)
            if refuse:
                raise MeasureError(f"the cluster's devices are others than the state's: {'; '.join(map(str, refuse))}")
            self._workers: Sequence[JobWorker] = leases.workers
        else:
            self._threads = self._stack.enter_context(ThreadPoolExecutor(WORKERS))
            # ended first, so that no thread waits for one
            self._workers = [self._stack.enter_context(Worker(environment)) for _ in range(WORKERS)]

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, value, at)

    def collect(self, programs: Sequence[Record], tell: Callable[[], object]) -> None:
        """Measure some programs in all their passes, each in new processes. `tell`: that there is more."""
        most = max((kernel["passes"] for program in programs for kernel in program["kernels"]), default=0)
        for number in range(1, most + 1):
            if self._leases is None:
                for worker in self._workers:
                    worker.renew()
            turns = [_Turn(program, number, kernels) for program, kernels in self._waiting(programs, number)]
            turns.sort(key=lambda turn: turn.program["bytes"])  # who prepare beside each other take about as long
            if self._leases is not None:
                self._measure_apart(deque(turns), self._leases, tell)
                continue
            for start in range(0, len(turns), WORKERS):
                together = turns[start : start + WORKERS]
                self._measure(together)
                tell()

    def _waiting(self, programs: Sequence[Record], number: int) -> Iterator[tuple[Record, list[Chosen]]]:
        for program in programs:
            kernels = [Chosen(**kernel) for kernel in program["kernels"]]
            waiting = [kernel for kernel in kernels if self._state.waits(kernel, number)]
            if waiting:
                yield program, waiting

    def _measure(self, turns: Sequence[_Turn]) -> None:
        pairs = list(zip(self._workers, turns, strict=False))
        begun = list(self._threads.map(lambda pair: self._prepare(*pair), pairs))
        for (worker, turn), outcome in zip(pairs, begun, strict=True):
            self._finish(worker, turn, outcome)

    def _measure_apart(self, turns: deque[_Turn], leases: Leases, tell: Callable[[], object]) -> None:
        """Have each device measure one program after another. What a lost one had in hand is measured by another.

        A program that several were lost with waits for another run.
        """
        losses: Counter[int] = Counter()
        while turns:
            with ThreadPoolExecutor(len(leases.workers)) as pool:
                running = {one: pool.submit(self._measure_some, one, turns, losses, tell) for one in leases.workers}
                try:
                    wait(running.values())
                except BaseException:  # Ctrl-C
                    for worker in running:
                        worker.give_up()
                    raise
            for worker, done in running.items():
                failure = done.exception()
                if isinstance(failure, WorkerLostError):
                    leases.leave_out(worker, failure)
                else:
                    done.result()

    def _measure_some(
        self, worker: Leased, turns: deque[_Turn], losses: Counter[int], tell: Callable[[], object]
    ) -> None:
        """Measure one program after another on a device, while there are any. Raises WorkerLostError."""
        worker.renew()
        while True:
            try:
                turn = turns.popleft()
            except IndexError:
                return
            try:
                self._finish(worker, turn, self._prepare(worker, turn))
            except WorkerLostError:
                losses[turn.program["number"]] += 1
                left = [kernel for kernel in turn.kernels if self._state.waits(kernel, turn.number)]
                if left and losses[turn.program["number"]] < MOST_LOST:
                    turns.append(_Turn(turn.program, turn.number, left))
                raise
            with self._telling:
                tell()

    def _prepare(self, worker: JobWorker, turn: _Turn) -> Outcome:
        """Open the program in a worker and prepare its kernels there."""
        session = uuid.uuid4().hex
        payload: Record = {
            "session": session,
            "text": turn.made.text,
            "identities": [identity_to_json(target.identity) for target in self._targets],
            "held_bytes": int(_HELD_SHARE * available_bytes()),
        }
        arrays = {f"input{number}": array for number, array in enumerate(turn.made.arrays)}
        outcome = worker.run(Job(f"{_RUNNERS}:open_program", payload, arrays, build_s=_BUILD_S))
        if outcome.status != "ok":
            return outcome
        kernels = [
            {
                "nodes": kernel.nodes,
                "outputs": kernel.outputs,
                "schedule": kernel.schedule,
                "target": self._places[kernel.threads],
            }
            for kernel in turn.kernels
        ]
        payload = {"session": session, "kernels": kernels, "check": turn.number == 1}
        prepared = worker.run(Job(f"{_RUNNERS}:prepare", payload, build_s=_BUILD_S))
        if prepared.status != "ok":
            return prepared
        return Outcome("ok", "", {**prepared.data, "session": session})

    def _finish(self, worker: JobWorker, turn: _Turn, begun: Outcome) -> None:
        """Time what was prepared, and keep it. Where the worker was lost, each kernel is tried by itself."""
        timed = begun
        if begun.status == "ok":
            timed = self._timed(worker, turn, begun.data["session"])
        if timed.status == "ok":
            self._keep(turn, begun.data["kernels"], timed.data)
        elif len(turn.kernels) > 1:
            for kernel in turn.kernels:
                alone = _Turn(turn.program, turn.number, [kernel])
                self._finish(worker, alone, self._prepare(worker, alone))
        else:
            failed = {"status": timed.status, "message": timed.message, "unusual": False, "compiled": None}
            self._keep(turn, [failed], {"samples_us": [[]], "load": None, "conditions": ""})

    def _timed(self, worker: JobWorker, turn: _Turn, session: str) -> Outcome:
        """Time what was prepared; anew while others disturb that. The least disturbed of a few attempts counts."""
        best: Outcome | None = None
        for attempt in range(ATTEMPTS):
            payload = {
                "session": session,
                "rounds": ROUNDS,
                "seed": [self._seed, turn.number, attempt],
                "kernels": len(turn.kernels),
            }
            found = worker.run(Job(f"{_RUNNERS}:time_prepared", payload, build_s=_BUILD_S))
            if found.status != "ok":
                return best or found
            best = found if best is None or _load(found) < _load(best) else best
            if _load(best) <= BUSY:
                break
        assert best is not None
        return best

    def _keep(self, turn: _Turn, prepared: Sequence[Any], timed: Any) -> None:
        graph = turn.made.program.graph
        values = InputValues(graph, turn.made.arrays)
        measured: list[tuple[Chosen, int, Measurement]] = []
        for kernel, found, samples in zip(turn.kernels, prepared, timed["samples_us"], strict=True):
            candidate = candidate_of(graph, kernel.nodes, kernel.outputs)
            target = self._targets[self._places[kernel.threads]]
            status: Status = found["status"]
            measurement = Measurement(
                kernel=kernel.kernel,
                schedule=Schedule.from_json(kernel.schedule),
                signature=signature_of(candidate),
                policy=pass_policy(turn.number),
                code_version=f"{target.identity.generator} {CHECK_VERSION}",
                status=status,
                message="; ".join(filter(None, (found["message"], timed["conditions"]))),
                samples_us=tuple(float(np.float32(us)) for us in samples) if status == "ok" else (),
                input_values=holds_for(values, candidate, status, found["unusual"]),
                load=None if timed["load"] is None else round(timed["load"], 3),
                described=self._state.described[kernel.threads],
                compiled=Item(found["compiled"], "compiled", MeasureError, "prepare").maybe(facts_from),
            )
            measured.append((kernel, turn.number, measurement))
        self._state.add(turn.program, measured)


def _load(timed: Outcome) -> float:
    """Cores that others kept busy; 0 where that is not known."""
    return timed.data["load"] or 0.0
