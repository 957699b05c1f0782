"""The tuner's bench: kernels and plans measured in the worker process, every result recorded at once."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, TracebackType
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.ir.text import to_text
from autofuse.lower.schedule import Schedule
from autofuse.measurement.bench import NO_SESSION
from autofuse.measurement.checks import CHECK_VERSION
from autofuse.measurement.database import Database, Measurement, Status
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.planraces import PlanRaces, PlanTime
from autofuse.measurement.pool import Job, Outcome, Worker
from autofuse.measurement.racing import Terms
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import MEASUREMENT_POLICY, Identity

PRUNED = "+pruned"
"""Ends the policy of a measurement that was given up after a few samples."""
PRUNED_POLICY = MEASUREMENT_POLICY + PRUNED
"""Its times say that a kernel is slower than something, not how fast it is, so nothing else may count them."""
AGAIN_POLICY = MEASUREMENT_POLICY + "+again"
"""Of a kernel's second time. Apart from the first, so that who asks for the first gets the same whenever it asks."""

_MOMENTS = 5
"""At which a kernel is timed."""
_ROUND_US = 20_000.0
"""Least time between two of them."""
_TOGETHER = 8
"""Kernels that are timed in turns."""
_HELD_BYTES = 1 << 29
"""Of what they write: with more, fewer are timed in turns."""
_QUIET = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""Set in the worker: threads that the interpreter's products leave behind sleep at once (see `timer.rest`)."""
_RUNNERS = "autofuse.measurement.bench"
_BUILD_S = 120.0
"""Most time for building one kernel, or a session."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel to be timed under a schedule."""

    digest: str
    kernel: KernelCandidate
    schedule: Schedule
    worth_us: float = math.inf
    """A kernel that takes longer need not be timed well."""
    again: bool = False
    """Time it a second time, at another moment and in other memory. That is not counted as a measurement."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What measuring one kernel under one schedule gave."""

    status: Status
    us: float
    """The fastest sample: other programs can only add to a kernel's time. Infinite unless `status` is `ok`."""
    message: str = ""
    replayed: bool = False
    """Taken from the database, not measured now."""
    pruned: bool = False
    """Given up after a few samples, for being slower than was asked for."""


@dataclass(frozen=True, slots=True)
class Relative:
    """A kernel that runs the same loops as another, of whatever size, and what is known of its schedules."""

    note: KernelNote
    times: Mapping[Schedule, float]
    """Microseconds by schedule, of those that were timed in full."""


@dataclass(slots=True)
class BenchCounts:
    """What a bench did so far."""

    measured: int = 0
    replayed: int = 0
    failed: list[str] = field(default_factory=list[str])
    """Messages of kernels that crashed, hung or answered wrongly."""
    failing: set[tuple[str, Schedule]] = field(default_factory=set[tuple[str, Schedule]])
    """Digests of such kernels, also of those that the database knows of, with the schedule."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A trial after its first moment."""

    trial: Trial
    place: int
    """Among the times that are asked for."""
    time: KernelTime
    samples_us: tuple[float, ...]
    """Of that moment."""


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
        time_cap_us: float = 50_000.0,
        deadline_s: float = 60.0,
    ) -> None:
        """`wanted`: names of the values that kernels read or write.

        `time_cap_us`: most time for timing one kernel, if a few calls take no longer.
        `deadline_s`: a kernel that was built and gives no answer for so long is taken to hang.
        """
        self.counts = BenchCounts()
        self._graph, self._inputs, self._wanted = graph, inputs, wanted
        self._database = database
        self._code_version = f"{identity.generator} {CHECK_VERSION}"
        self._threads = threads
        self._time_cap_us, self._deadline_s = time_cap_us, deadline_s
        self._worker = Worker(_QUIET)
        self._session = ""
        self._session_worker = -1
        self._sitting = 0
        self.open_s = 0.0
        """Seconds that starting the last process, and preparing the program in it, took."""
        self.compile_s = 0.0
        """Seconds that compiling the last schedules beside each other took."""
        self._kernel_s = self._later_s = 0.0
        self._races = PlanRaces(graph, inputs, database, self._code_version, deadline_s, self._run_plans)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._worker.__exit__(kind, value, at)

    @property
    def ahead_s(self) -> float:
        """Seconds until all times are known if one more kernel is begun: it may take as long as the last one did."""
        return self._kernel_s + self._later_s

    def ready(self) -> bool:
        """Prepare the program in the worker, unless it is. Returns whether that was done now."""
        if self._session and self._session_worker == self._worker.restarts:
            return False
        self._open()
        return True

    def kernel(
        self, digest: str, kernel: KernelCandidate, schedule: Schedule, worth_us: float = math.inf
    ) -> KernelTime:
        """Time one kernel; as `kernels`."""
        return self.kernels([Trial(digest, kernel, schedule, worth_us)])[0]

    def kernels(self, trials: Sequence[Trial], go_on: Callable[[], bool] = lambda: True) -> list[KernelTime]:
        """Time kernels, each checked against the interpreter first. A failing kernel costs one record.

        A kernel's samples are the fastest calls of several moments. Some kernels at a time are timed in turns, so that
        what slows the machine down for a while neither spoils all samples of one nor spares another. A kernel that
        takes longer than `worth_us` gets a few calls in one moment, recorded under a policy of its own, which later
        calls find only if they are content with that too. Second times have a policy of their own as well. `go_on` is
        asked before each kernel, and again when the process for the first one is ready: the times end where it says no.
        """
        found: list[KernelTime] = []
        waiting: list[_Begun] = []
        for trial in trials:
            if not go_on():
                break
            known = self._known(trial)
            if known is not None:
                self.counts.replayed += not trial.again
                if known.status != "ok":
                    self.counts.failing.add((trial.digest, trial.schedule))
                found.append(known)
                continue
            if self.ready() and not go_on():
                break
            begun = self._begin(trial, len(found))
            found.append(begun.time)
            if begun.time.status != "ok" or begun.time.pruned:
                self._record(trial, begun.time, begun.samples_us)
                continue
            waiting.append(begun)
            if len(waiting) == _TOGETHER or sum(_written(w.trial.kernel) for w in waiting) > _HELD_BYTES:
                self._finish(waiting, found)
        self._finish(waiting, found)
        return found

    def _begin(self, trial: Trial, place: int) -> _Begun:
        """Build, check and time a kernel for a first moment."""
        outcome = self._first_moment(trial)
        if outcome.status == "crash":  # perhaps the system killed the worker for reasons of its own
            outcome = self._first_moment(trial)
        self.counts.measured += not trial.again
        if outcome.status != "ok":
            return _Begun(trial, place, self._failed(trial, outcome), ())
        self._kernel_s = outcome.build_s + outcome.run_s
        samples = tuple(float(s) for s in outcome.data["samples_us"])
        time = KernelTime("ok", min(samples), pruned=bool(outcome.data["pruned"]))
        return _Begun(trial, place, time, samples)

    def _finish(self, waiting: list[_Begun], found: list[KernelTime]) -> None:
        """Time the kernels that wait for the moments that are left, record them, and put their times in place."""
        if not waiting:
            return
        outcome = self._later_moments(waiting)
        self._later_s = outcome.build_s + outcome.run_s
        later = outcome.data["fastest_us"] if outcome.status == "ok" else [() for _ in waiting]
        for begun, fastest in zip(waiting, later, strict=True):
            found[begun.place] = self._finished(begun, fastest) if fastest else self._finish_alone(begun)
        waiting.clear()

    def _finish_alone(self, begun: _Begun) -> KernelTime:
        """Time a kernel, which the worker was lost with, by itself: if it fails again, it is the one to blame."""
        outcome = self._first_moment(begun.trial)
        if outcome.status == "ok" and outcome.data["pruned"]:
            pruned = replace(begun.time, us=min(outcome.data["samples_us"]), pruned=True)
            self._record(begun.trial, pruned, tuple(outcome.data["samples_us"]))
            return pruned
        if outcome.status == "ok":
            outcome = self._later_moments([begun])
        if outcome.status == "ok":
            return self._finished(begun, outcome.data["fastest_us"][0])
        failed = self._failed(begun.trial, outcome)
        self._record(begun.trial, failed, ())
        return failed

    def _first_moment(self, trial: Trial) -> Outcome:
        payload: dict[str, Any] = {
            **_described(trial),
            "time_cap_us": self._time_cap_us / _MOMENTS,
            "worth_us": trial.worth_us if trial.worth_us < math.inf else None,
        }
        return self._run("time_kernel", payload, self._deadline_s)

    def _later_moments(self, waiting: Sequence[_Begun]) -> Outcome:
        """Of kernels that the worker holds ready; none for one that it does not hold."""
        together_s = sum(begun.time.us for begun in waiting) / 1e6
        payload: dict[str, Any] = {
            "kernels": [_described(begun.trial) for begun in waiting],
            "rounds": _MOMENTS - 1,
            "round_us": _ROUND_US,
            "time_cap_us": self._time_cap_us / _MOMENTS,
            "seed": self.counts.measured,
        }
        return self._run("time_again", payload, self._deadline_s + 10 * _MOMENTS * together_s)

    def _failed(self, trial: Trial, outcome: Outcome) -> KernelTime:
        self.counts.failed.append(f"{trial.kernel.nodes[-1].name}: {outcome.status}: {outcome.message}")
        self.counts.failing.add((trial.digest, trial.schedule))
        return KernelTime(outcome.status, math.inf, outcome.message)

    def _finished(self, begun: _Begun, fastest_us: Sequence[float]) -> KernelTime:
        """Record the first moment and the later ones."""
        samples = (begun.time.us, *(float(us) for us in fastest_us))
        self._record(begun.trial, begun.time, samples)
        return replace(begun.time, us=min(samples))

    def _record(self, trial: Trial, time: KernelTime, samples_us: tuple[float, ...]) -> None:
        slow = f"stopped early: slower than {trial.worth_us:g} us"
        policy = AGAIN_POLICY if trial.again else MEASUREMENT_POLICY
        self._database.add(
            Measurement(
                kernel=trial.digest,
                schedule=trial.schedule,
                signature=signature_of(trial.kernel),
                policy=PRUNED_POLICY if time.pruned else policy,
                cache_state="warm",
                code_version=self._code_version,
                status=time.status,
                message=slow if time.pruned else time.message,
                samples_us=samples_us,
            )
        )

    def recorded(self, digest: str, schedule: Schedule) -> KernelTime | None:
        """What the database knows of a kernel under a schedule, the best of both its times; None if nothing."""
        times = [self._timed(digest, schedule, policy) for policy in (MEASUREMENT_POLICY, AGAIN_POLICY)]
        known = [time for time in times if time is not None]
        return min(known, key=lambda time: (time.status == "ok", time.us), default=None)  # failing once is failing

    def _known(self, trial: Trial) -> KernelTime | None:
        """What answers a trial without a measurement. A kernel that was given up for less is known to be too slow."""
        policy = AGAIN_POLICY if trial.again else MEASUREMENT_POLICY
        known = self._timed(trial.digest, trial.schedule, policy)
        if known is not None:
            return known
        records = self._find(trial.digest, trial.schedule, PRUNED_POLICY)
        given_up = [measurement for measurement in records if _slower(measurement, trial.worth_us)]
        return KernelTime("ok", min(given_up[-1].samples_us), "", True, True) if given_up else None

    def _timed(self, digest: str, schedule: Schedule, policy: str) -> KernelTime | None:
        records = self._find(digest, schedule, policy)
        if not records:
            return None
        last = records[-1]
        if last.status != "ok":
            return KernelTime(last.status, math.inf, last.message, replayed=True)
        return KernelTime("ok", min(us for m in records if (us := m.us) is not None), "", True)

    def compile(
        self, digest: str, kernel: KernelCandidate, schedules: Sequence[Schedule], worth_us: float = math.inf
    ) -> None:
        """Compile a kernel under several schedules beside each other, for `kernel` to time; known ones are left out.

        Nothing compiles any more when this returns. What goes wrong is left to `kernel`, which records it.
        """
        fresh = [s for s in schedules if self._known(Trial(digest, kernel, s, worth_us)) is None]
        if len(fresh) > 1:
            payload = {**_names(kernel), "schedules": [schedule.to_json() for schedule in fresh]}
            outcome = self._run("compile_kernels", payload, self._deadline_s, _BUILD_S * len(fresh))
            self.compile_s = outcome.build_s

    def note(self, note: KernelNote) -> None:
        """Keep what is known of a kernel besides its times; the first note of it stays."""
        self._database.note(note)

    def relatives(self, family: str, program: str, without: Collection[str]) -> list[Relative]:
        """The kernels of a family of which this machine has timed several schedules.

        Those that were first tuned for `program` do not count, nor those of certain digests.
        """
        found: list[Relative] = []
        for note in self._database.notes(family):
            own = note.program == program or note.kernel in without
            times = {} if own else self._times(note.kernel)
            if len(times) > 1:
                found.append(Relative(note, times))
        return found

    def _times(self, digest: str) -> dict[Schedule, float]:
        """The times of a kernel, by schedule."""
        found: dict[Schedule, float] = {}
        for m in self._find(digest, None, MEASUREMENT_POLICY):
            if m.us is not None:
                found[m.schedule] = min(m.us, found.get(m.schedule, math.inf))
        return found

    def _find(self, digest: str, schedule: Schedule | None, policy: str) -> list[Measurement]:
        records = self._database.find(
            digest, schedule, policy=policy, cache_state="warm", code_version=self._code_version
        )
        return [record.measurement for record in records]

    def plans(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Time whole plans against one another; see `PlanRaces.times`, and `Terms.sitting` for the process."""
        return self._races.times(plans, terms)

    def _run_plans(
        self, payload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], build_s: float, run_s: float
    ) -> Outcome:
        if payload["sitting"] != self._sitting:
            self._worker.renew()
            self._sitting = payload["sitting"]
        return self._run("time_plans", payload, run_s, build_s, arrays)

    def _run(
        self,
        runner: str,
        payload: Mapping[str, Any],
        run_s: float,
        build_s: float = _BUILD_S,
        arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> Outcome:
        """Run a job in the session; a worker that was lost since the last job gets the session anew."""
        for _ in range(2):
            self.ready()
            data = {**payload, "session": self._session}
            outcome = self._worker.run(Job(f"{_RUNNERS}:{runner}", data, arrays, build_s=build_s, run_s=run_s))
            if outcome.status != "error" or NO_SESSION not in outcome.message:
                return outcome
            self._session = ""
        raise MeasureError("the worker keeps losing its session; is memory short?")

    def _open(self) -> None:
        start = time.monotonic()
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
        outcome = self._worker.run(Job(f"{_RUNNERS}:open_session", payload, arrays, build_s=_BUILD_S, run_s=300.0))
        if outcome.status != "ok":
            raise MeasureError(f"the worker could not prepare the program ({outcome.status}): {outcome.message}")
        self._session_worker = self._worker.restarts
        self.open_s = time.monotonic() - start


def signature_of(kernel: KernelCandidate) -> str:
    """`(f32[64,64]) -> f32[64]`."""
    reads = ", ".join(str(value.type) for value in kernel.inputs)
    writes = ", ".join(str(value.type) for value in kernel.outputs)
    return f"({reads}) -> {writes}"


def _described(trial: Trial) -> dict[str, Any]:
    """A trial as the worker is told of it."""
    return {**_names(trial.kernel), "schedule": trial.schedule.to_json()}


def _written(kernel: KernelCandidate) -> int:
    return sum(value.type.nbytes for value in kernel.outputs)


def _names(kernel: KernelCandidate) -> dict[str, list[str]]:
    """How the worker finds a kernel in its graph."""
    return {"nodes": [node.name for node in kernel.nodes], "outputs": [value.name for value in kernel.outputs]}


def _slower(measurement: Measurement, worth_us: float) -> bool:
    return min(measurement.samples_us, default=0.0) > worth_us
