"""The tuner's bench: kernels and plans measured in the worker process, every result recorded at once."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.ir.text import to_text
from autofuse.lower.schedule import Schedule
from autofuse.measurement.bench import NO_SESSION
from autofuse.measurement.database import Database, Measurement, Status
from autofuse.measurement.pool import Job, Outcome, Worker
from autofuse.measurement.timer import median
from autofuse.plan import codec
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import MEASUREMENT_POLICY, Identity

_RUNNERS = "autofuse.measurement.bench"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What measuring one kernel under one schedule gave."""

    status: Status
    median_us: float
    """Infinite unless `status` is `ok`."""
    message: str = ""
    replayed: bool = False
    """Taken from the database, not measured now."""


@dataclass(frozen=True, slots=True)
class PlanTime:
    """What timing one whole plan beside others gave."""

    samples_us: tuple[float, ...]
    """Microseconds per call, one sample per block; empty if the plan could not be run."""
    problem: str = ""
    """Why it could not be run, or what is wrong with its answer."""


@dataclass(slots=True)
class BenchCounts:
    """What a bench did so far."""

    measured: int = 0
    replayed: int = 0
    failed: list[str] = field(default_factory=list[str])
    """Messages of kernels that crashed, hung or answered wrongly."""


class Bench:
    """Measures kernels of one graph on given arguments. Use it as a context manager, from one thread.

    Kernels are identified by their structural digest: what the database holds for this machine, code generator and
    measurement policy is replayed instead of measured again.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[NDArray[Any]],
        wanted: Collection[str],
        database: Database,
        identity: Identity,
        threads: int,
        time_cap_us: float = 60_000.0,
        deadline_s: float = 60.0,
    ) -> None:
        """`wanted`: names of the values that kernels read or write. `time_cap_us`: most time for timing one kernel.

        `deadline_s`: a kernel that was built and gives no answer for so long is taken to hang.
        """
        self.counts = BenchCounts()
        self._graph, self._inputs, self._wanted = graph, inputs, wanted
        self._database = database
        self._code_version = identity.generator
        self._threads = threads
        self._time_cap_us, self._deadline_s = time_cap_us, deadline_s
        self._worker = Worker()
        self._session = ""
        self._session_worker = -1

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._worker.__exit__(kind, value, at)

    def kernel(self, digest: str, kernel: KernelCandidate, schedule: Schedule) -> KernelTime:
        """Time a kernel, checked against the interpreter first. A failing kernel costs one record."""
        known = self.recorded(digest, schedule)
        if known is not None:
            self.counts.replayed += 1
            return known
        payload: dict[str, Any] = {
            "nodes": [node.name for node in kernel.nodes],
            "outputs": [value.name for value in kernel.outputs],
            "schedule": schedule.to_json(),
            "time_cap_us": self._time_cap_us,
        }
        outcome = self._run("time_kernel", payload, self._deadline_s)
        if outcome.status == "crash":  # perhaps the system killed the worker for reasons of its own
            outcome = self._run("time_kernel", payload, self._deadline_s)
        self.counts.measured += 1
        samples = tuple(float(s) for s in outcome.data.get("samples_us", ())) if outcome.status == "ok" else ()
        self._database.add(
            Measurement(
                kernel=digest,
                schedule=schedule,
                signature=signature_of(kernel),
                policy=MEASUREMENT_POLICY,
                cache_state="warm",
                code_version=self._code_version,
                status=outcome.status,
                message=outcome.message,
                samples_us=samples,
            )
        )
        if outcome.status != "ok":
            self.counts.failed.append(f"{payload['nodes'][-1]}: {outcome.status}: {outcome.message}")
            return KernelTime(outcome.status, float("inf"), outcome.message)
        return KernelTime("ok", median(samples))

    def recorded(self, digest: str, schedule: Schedule) -> KernelTime | None:
        """What the database knows of a kernel under a schedule; None if nothing."""
        records = self._database.find(
            digest, schedule, policy=MEASUREMENT_POLICY, cache_state="warm", code_version=self._code_version
        )
        if not records:
            return None
        last = records[-1].measurement
        if last.status != "ok":
            return KernelTime(last.status, float("inf"), last.message, replayed=True)
        return KernelTime("ok", median([m for r in records if (m := r.measurement.median_us) is not None]), "", True)

    def plans(
        self, plans: Sequence[PlanDocument], blocks: int, seed: int, sample_us: float, seconds: float
    ) -> list[PlanTime]:
        """Time whole plans in interleaved blocks: the n-th samples of all plans were taken one right after another.

        Blocks beyond the seventh are left out after `seconds`. A plan that crashes or hangs is found by running each
        alone; the others are then timed without it.
        """
        outcome = self._time_plans(plans, blocks, seed, sample_us, seconds)
        if outcome.status == "ok":
            pairs = zip(outcome.data["samples_us"], outcome.data["problems"], strict=True)
            return [PlanTime(tuple(float(s) for s in samples), problem) for samples, problem in pairs]
        if len(plans) == 1:
            return [PlanTime((), f"{outcome.status}: {outcome.message}")]
        alone = [self.plans([plan], 1, seed, sample_us, seconds)[0] for plan in plans]
        sound = [plan for plan, time in zip(plans, alone, strict=True) if time.samples_us]
        if len(sound) == len(plans):
            raise MeasureError(f"timing whole plans failed ({outcome.status}): {outcome.message}")
        timed = iter(self.plans(sound, blocks, seed, sample_us, seconds) if sound else ())
        return [next(timed) if time.samples_us else time for time in alone]

    def _time_plans(
        self, plans: Sequence[PlanDocument], blocks: int, seed: int, sample_us: float, seconds: float
    ) -> Outcome:
        texts = [codec.to_text(codec.encode(plan), None) for plan in plans]
        payload = {"plans": texts, "blocks": blocks, "seed": seed, "sample_us": sample_us, "seconds": seconds}
        return self._run("time_plans", payload, 2 * self._deadline_s + 10 * seconds)

    def _run(self, runner: str, payload: Mapping[str, Any], run_s: float) -> Outcome:
        """Run a job in the session; a worker that was lost since the last job gets the session anew."""
        for _ in range(2):
            if self._session_worker != self._worker.restarts or not self._session:
                self._open()
            data = {**payload, "session": self._session}
            outcome = self._worker.run(Job(f"{_RUNNERS}:{runner}", data, build_s=120.0, run_s=run_s))
            if outcome.status != "error" or NO_SESSION not in outcome.message:
                return outcome
            self._session = ""
        raise MeasureError("the worker keeps losing its session; is memory short?")

    def _open(self) -> None:
        constants: dict[str, NDArray[Any]] = {}
        text = to_text(self._graph, constants)
        self._session = uuid.uuid4().hex
        arrays = {f"@{name}": array for name, array in constants.items()}
        arrays |= {f"input{number}": array for number, array in enumerate(self._inputs)}
        payload = {
            "session": self._session,
            "text": text,
            "threads": self._threads,
            "wanted": sorted(self._wanted),
        }
        outcome = self._worker.run(Job(f"{_RUNNERS}:open_session", payload, arrays, build_s=120.0, run_s=300.0))
        if outcome.status != "ok":
            raise MeasureError(f"the worker could not prepare the program ({outcome.status}): {outcome.message}")
        self._session_worker = self._worker.restarts


def signature_of(kernel: KernelCandidate) -> str:
    """`(f32[64,64]) -> f32[64]`."""
    reads = ", ".join(str(value.type) for value in kernel.inputs)
    writes = ", ".join(str(value.type) for value in kernel.outputs)
    return f"({reads}) -> {writes}"
