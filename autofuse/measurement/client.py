"""The tuner's bench: kernels and plans measured in the worker process, every result recorded at once."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts, facts_from
from autofuse.errors import MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import digest
from autofuse.ir.graph import Graph
from autofuse.ir.graphtext import to_text
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.bench import NO_SESSION
from autofuse.measurement.checks import CHECK_VERSION
from autofuse.measurement.database import Database
from autofuse.measurement.inputvalues import InputValues
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.kernelrecords import KernelRecords, KernelTime, Relative, Trial
from autofuse.measurement.planraces import PlanRaces, PlanTime
from autofuse.measurement.racing import Terms
from autofuse.measurement.records import PASSING
from autofuse.measurement.sources import ProgramSource
from autofuse.measurement.workerpool import QUIET, Job, JobWorker, Outcome, Worker, WorkerLostError
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import COLD_POLICY, MEASUREMENT_POLICY, Identity, identity_to_json
from autofuse.strictjson import Item

_MOMENTS = 5
"""At which a kernel is timed."""
_ROUND_US = 20_000.0
"""Least time between two of them."""
_TOGETHER = 8
"""Kernels that are timed in turns."""
_TOGETHER_COLD = 4
"""The same of kernels each of which has copies of its operands that fill the caches twice."""
_TOGETHER_BYTES = 1 << 29
"""Of what they read and write: with more, fewer are timed in turns."""
_RUNNERS = "autofuse.measurement.bench"
_BUILD_S = 120.0
"""Most time for building one kernel, or a session."""


@dataclass(slots=True)
class BenchCounts:
    """What a bench did so far."""

    measured: int = 0
    replayed: int = 0
    failed: list[str] = field(default_factory=list[str])
    """Messages of kernels that crashed, hung or answered wrongly."""
    failing: dict[tuple[str, Schedule], KernelTime] = field(default_factory=dict[tuple[str, Schedule], KernelTime])
    """Such kernels, also those that the database knows of, by digest and schedule."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A trial after its first moment."""

    trial: Trial
    place: int
    """Among the times that are asked for."""
    time: KernelTime
    samples_us: tuple[float, ...] = ()
    """Of that moment."""
    unusual: bool = False
    """Whether the kernel met values that arithmetic may be slow with."""
    conditions: str = ""
    """Of the device, at that moment."""
    compiled: CompiledFacts | None = None
    """What its compiler said."""


class Bench:
    """Measures kernels of one graph on given arguments. Use it as a context manager, from one thread.

    What the database holds for this machine, code generator and measurement policy, and for the values at hand where
    they may decide, is replayed instead of measured again (`kernelrecords`).
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[NDArray[Any]],
        database: Database,
        identity: Identity,
        *,
        cold: bool = False,
        time_cap_us: float = 50_000.0,
        deadline_s: float = 60.0,
        end: float = math.inf,
        held_bytes: int | None = None,
        worker: JobWorker | None = None,
        description: str = "",
        runners: str | None = None,
    ) -> None:
        """`cold`: time kernels and plans on operands that lie in memory, in place of caches: on copies in turns.

        `time_cap_us`: most time for timing one kernel, if a few calls take no longer.
        `deadline_s`: a kernel that was built and gives no answer for so long is taken to hang, unless the model, the
        interpreter or an earlier call says that it takes long. `end`: when there is no use in its answer any more, on
        the worker's clock. `held_bytes`: most memory for intermediate values that the worker holds beside those of the
        kernels at hand; by default a quarter of what there is when it starts. `worker`: where kernels run, by default a
        process with the monotonic clock. `description`: of the device, to be kept with its records. `runners`: the
        module of them, by default `bench`.
        """
        self.counts = BenchCounts()
        self._graph, self._inputs = graph, inputs
        self._database = database
        code_version = f"{identity.generator} {CHECK_VERSION}"
        self._identity = identity_to_json(identity)
        self._cold = cold
        self._time_cap_us, self._deadline_s, self._end = time_cap_us, deadline_s, end
        self._held_bytes = held_bytes
        self._worker: JobWorker = worker or Worker(QUIET)
        self._runners = _RUNNERS if runners is None else runners
        self._session = ""
        self._session_worker = -1
        self._replica = 0
        self.open_s = 0.0
        """Seconds that starting the last process, and preparing the program in it, took."""
        self.compile_s = 0.0
        """Seconds that compiling the last schedules beside each other took."""
        self._kernel_s = self._later_s = 0.0
        self.values = values = InputValues(graph, inputs)
        """Of the graph, on the arguments."""
        self.policy = COLD_POLICY if cold else MEASUREMENT_POLICY
        """How times are taken."""
        described = database.describe(description) if description else ""
        program = _tuned_program(graph)
        self._records = KernelRecords(database, code_version, values, program, described, self.policy)
        self._races = PlanRaces(graph, values, database, code_version, self._run_plans, self.policy)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._worker.close(patiently=kind is None)

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
        self,
        digest: str,
        kernel: KernelCandidate,
        schedule: Schedule,
        worth_us: float = math.inf,
    ) -> KernelTime:
        """Time one kernel; as `kernels`."""
        return self.kernels([Trial(digest, kernel, schedule, worth_us)])[0]

    def kernels(self, trials: Iterable[Trial], go_on: Callable[[], bool] = lambda: True) -> list[KernelTime]:
        """Time kernels, each checked against the interpreter first. A failing kernel costs one record.

        A kernel's samples are the fastest calls of several moments. Some kernels at a time are timed in turns, so that
        what slows the machine down for a while neither spoils all samples of one nor spares another. A kernel that
        takes longer than `worth_us` gets a few calls in one moment, recorded under a policy of its own, which later
        calls find only if they are content with that too. Second times have a policy of their own as well. `go_on` is
        asked before each kernel, and again when the process for the first one is ready: the times end where it says no.
        """
        found: list[KernelTime] = []
        waiting: list[_Begun] = []
        together = _TOGETHER_COLD if self._cold else _TOGETHER
        for trial in trials:
            if not go_on():
                break
            known = self._records.known(trial)
            if known is not None:
                self.counts.replayed += not trial.again
                if known.status != "ok":
                    self.counts.failing[trial.digest, trial.schedule] = known
                found.append(known)
                continue
            if self.ready() and not go_on():
                break
            begun = self._begin(trial, len(found), go_on)
            found.append(begun.time)
            if begun.time.status != "ok" or begun.time.pruned:
                self._keep(begun, begun.time, begun.samples_us)
                continue
            waiting.append(begun)
            if len(waiting) == together or _memory(w.trial.kernel for w in waiting) > _TOGETHER_BYTES:
                self._finish(waiting, found)
        self._finish(waiting, found)
        return found

    def _begin(self, trial: Trial, place: int, go_on: Callable[[], bool]) -> _Begun:
        """Build, check and time a kernel for a first moment."""
        outcome = self._first_moment(trial)
        if outcome.status == "crash" or (outcome.status in PASSING and go_on()):  # perhaps for reasons of the system's
            outcome = self._first_moment(trial)
        self.counts.measured += not trial.again
        if outcome.status != "ok":
            return _Begun(trial, place, self._failed(trial, outcome))
        self._kernel_s = outcome.build_s + outcome.run_s
        samples = tuple(float(s) for s in outcome.data["samples_us"])
        time = KernelTime("ok", min(samples), pruned=bool(outcome.data["pruned"]))
        compiled = Item(outcome.data["compiled"], "compiled", MeasureError, "time_kernel").maybe(facts_from)
        unusual, conditions = bool(outcome.data["unusual"]), str(outcome.data["conditions"])
        return _Begun(trial, place, time, samples, unusual, conditions, compiled)

    def _keep(self, begun: _Begun, time: KernelTime, samples_us: tuple[float, ...]) -> None:
        """Record what a kernel took."""
        self._records.add(begun.trial, time, samples_us, begun.unusual, begun.conditions, begun.compiled)

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
        """Time a kernel, which the worker was lost with, by itself: if it fails again, it is the one to blame.

        Where that may be for reasons of the system's, its first moment is its time.
        """
        outcome = self._first_moment(begun.trial)
        if outcome.status == "ok" and outcome.data["pruned"]:
            pruned = replace(begun.time, us=min(outcome.data["samples_us"]), pruned=True)
            self._keep(begun, pruned, tuple(outcome.data["samples_us"]))
            return pruned
        if outcome.status == "ok":
            outcome = self._later_moments([begun])
        if outcome.status == "ok":
            return self._finished(begun, outcome.data["fastest_us"][0])
        if outcome.status in PASSING:
            return self._finished(begun, ())
        failed = self._failed(begun.trial, outcome)
        self._records.add(begun.trial, failed, ())
        return failed

    def _first_moment(self, trial: Trial) -> Outcome:
        payload: dict[str, Any] = {
            **_described(trial),
            "time_cap_us": self._time_cap_us / _MOMENTS,
            "worth_us": trial.worth_us if trial.worth_us < math.inf else None,
            "expected_us": trial.expected_us if trial.expected_us < math.inf else 0.0,
        }
        return self._run("time_kernel", payload)

    def _later_moments(self, waiting: Sequence[_Begun]) -> Outcome:
        """Of kernels that the worker holds ready; none for one that it does not hold."""
        payload: dict[str, Any] = {
            "kernels": [_described(begun.trial) for begun in waiting],
            "rounds": _MOMENTS - 1,
            "round_us": _ROUND_US,
            "time_cap_us": self._time_cap_us / _MOMENTS,
            "seed": self.counts.measured,
        }
        return self._run("time_again", payload)

    def _failed(self, trial: Trial, outcome: Outcome) -> KernelTime:
        failed = KernelTime(outcome.status, math.inf, outcome.message)
        self.counts.failed.append(f"{trial.kernel.nodes[-1].name}: {outcome.status}: {outcome.message}")
        self.counts.failing[trial.digest, trial.schedule] = failed
        return failed

    def _finished(self, begun: _Begun, fastest_us: Sequence[float]) -> KernelTime:
        """Record the first moment and the later ones."""
        samples = (begun.time.us, *(float(us) for us in fastest_us))
        self._keep(begun, begun.time, samples)
        return replace(begun.time, us=min(samples))

    def recorded(self, digest: str, kernel: KernelCandidate, schedule: Schedule) -> KernelTime | None:
        """What the database knows of a kernel under a schedule, the best of both its times; None if nothing."""
        return self._records.best(Trial(digest, kernel, schedule))

    def compile(
        self, digest: str, kernel: KernelCandidate, schedules: Sequence[Schedule], worth_us: float = math.inf
    ) -> None:
        """Compile a kernel under several schedules beside each other, for `kernel` to time; known ones are left out.

        Nothing compiles any more when this returns. What goes wrong is left to `kernel`, which records it.
        """
        fresh = [s for s in schedules if self._records.known(Trial(digest, kernel, s, worth_us)) is None]
        if len(fresh) > 1:
            payload = {**_names(kernel), "schedules": [schedule.to_json() for schedule in fresh]}
            self.compile_s = self._run("compile_kernels", payload, _BUILD_S * len(fresh)).build_s

    def note(self, note: KernelNote) -> None:
        """Keep what is known of a kernel besides its times; the first note of it stays."""
        self._database.note(note)

    def relatives(self, family: str, program: str, without: Collection[str]) -> list[Relative]:
        """See `KernelRecords.relatives`."""
        return self._records.relatives(family, program, without)

    def plans(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Time whole plans against one another; see `PlanRaces.times`, and `Terms.replica` for the process."""
        return self._races.times(plans, terms)

    def _run_plans(self, payload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], build_s: float) -> Outcome:
        if payload["replica"] != self._replica:
            self._worker.renew()
            self._replica = payload["replica"]
        return self._run("time_plans", payload, build_s, arrays)

    def _run(
        self,
        runner: str,
        payload: Mapping[str, Any],
        build_s: float = _BUILD_S,
        arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> Outcome:
        """Run a job in the session; a worker that was lost since the last job gets the session anew."""
        left_s = None if self._end == math.inf else max(0.0, self._end - self._worker.clock())
        for _ in range(2):
            self.ready()
            data = {**payload, "session": self._session, "deadline_s": self._deadline_s, "left_s": left_s}
            outcome = self._worker.run(Job(f"{self._runners}:{runner}", data, arrays, build_s=build_s))
            if outcome.status != "error" or NO_SESSION not in outcome.message:
                return outcome
            self._session = ""
        raise WorkerLostError("the worker keeps losing its session; is memory short?")

    def _open(self) -> None:
        start = self._worker.clock()
        constants: dict[str, NDArray[Any]] = {}
        text = to_text(self._graph, constants)
        self._session = uuid.uuid4().hex
        arrays = {f"@{name}": array for name, array in constants.items()}
        arrays |= {f"input{number}": array for number, array in enumerate(self._inputs)}
        payload = {
            "session": self._session,
            "text": text,
            "cold": self._cold,
            "identity": self._identity,
            "held_bytes": self._held_bytes,
        }
        outcome = self._worker.run(Job(f"{self._runners}:open_session", payload, arrays, build_s=_BUILD_S))
        if outcome.status == "crash" or outcome.status in PASSING:
            outcome = self._worker.run(Job(f"{_RUNNERS}:open_session", payload, arrays, build_s=_BUILD_S))
        if outcome.status != "ok":
            raise WorkerLostError(f"the worker could not prepare the program ({outcome.status}): {outcome.message}")
        self._session_worker = self._worker.restarts
        self.open_s = self._worker.clock() - start


def _tuned_program(graph: Graph) -> ProgramSource:
    """A program that goes by what it computes."""
    name = digest(graph)
    return ProgramSource(name, name, "tuned")


def _described(trial: Trial) -> dict[str, Any]:
    """A trial as the worker is told of it."""
    return {**_names(trial.kernel), "schedule": trial.schedule.to_json()}


def _memory(kernels: Iterable[KernelCandidate]) -> int:
    """Bytes of what kernels read and write together."""
    return sum(value.type.nbytes for value in {v for kernel in kernels for v in (*kernel.inputs, *kernel.outputs)})


def _names(kernel: KernelCandidate) -> dict[str, list[str]]:
    """How the worker finds a kernel in its graph."""
    return {"nodes": [node.name for node in kernel.nodes], "outputs": [value.name for value in kernel.outputs]}
