"""What answers a question about a kernel's time without measuring it, and what is kept of a measurement.

A time counts for every program with the same kernel, unless it may depend on the values that the kernel reads
(`inputvalues`): then for these alone. So does every failure: another program's values may do, and a kernel that is
wrong for some is not refused for all. Only what lowering or the compiler refuses is refused whatever it would read.
Failures that may pass are stored, and answer nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.fusion.candidate import KernelCandidate, work_of
from autofuse.fusion.kind import kind_of
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.database import Database
from autofuse.measurement.inputvalues import InputValues
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.records import PASSING, UNKNOWN_VALUES, Measurement, Status
from autofuse.measurement.sources import KernelSource, ProgramSource, kernel_text
from autofuse.plan.identity import MEASUREMENT_POLICY

PRUNED = "+pruned"
"""Ends the policy of a measurement that was given up after a few samples."""
PRUNED_POLICY = MEASUREMENT_POLICY + PRUNED
"""Its times say that a kernel is slower than something, not how fast it is, so nothing else may count them."""
AGAIN = "+again"
AGAIN_POLICY = MEASUREMENT_POLICY + AGAIN
"""Of a kernel's second time. Apart from the first, so that who asks for the first gets the same whenever it asks."""
_ANY_VALUES = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel to be timed under a schedule."""

    digest: str
    """Of its class. Records are kept by the work that this names."""
    kernel: KernelCandidate
    schedule: Schedule
    worth_us: float = math.inf
    """A kernel that takes longer need not be timed well."""
    expected_us: float = 0.0
    """What it is thought to take, if anything is: what takes many times as long is taken to hang."""
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

    @property
    def may_pass(self) -> bool:
        """Whether this is a failure that says more about the moment than about the kernel."""
        return self.status in PASSING


@dataclass(frozen=True, slots=True)
class Relative:
    """A kernel that runs the same loops as another, of whatever size, and what is known of its schedules."""

    note: KernelNote
    times: Mapping[Schedule, float]
    """Microseconds by schedule, of those that were timed in full on the same values."""


class KernelRecords:
    """The records of one machine, code generator and way of timing, asked for one program on given arguments."""

    def __init__(
        self,
        database: Database,
        code_version: str,
        values: InputValues,
        program: ProgramSource | None = None,
        described: str = "",
        policy: str = MEASUREMENT_POLICY,
    ) -> None:
        """`program`: whose kernels these are, to be kept with them. `described`: see `Measurement`.

        `policy`: how times are taken. A policy of their own have second times, and those that were given up.
        """
        self._database, self._code_version, self._values, self._policy = database, code_version, values, policy
        self._program, self._described = program, described
        self._kept: set[str] = set()
        """Digests of kernels that are kept."""

    def known(self, trial: Trial) -> KernelTime | None:
        """What answers a trial without a measurement. A kernel that was given up for less is known to be too slow."""
        found = self._time(trial, self._policy_of(trial))
        if found is not None:
            return found
        pruned = self._find(trial, self._policy + PRUNED)
        given_up = [m for m in pruned if min(m.samples_us, default=0.0) > trial.worth_us]
        return KernelTime("ok", min(given_up[-1].samples_us), "", True, True) if given_up else None

    def best(self, trial: Trial) -> KernelTime | None:
        """The best of a kernel's first and second time; None if nothing is known. Failing once is failing."""
        times = [self._time(trial, self._policy_of(replace(trial, again=again))) for again in (False, True)]
        known = [time for time in times if time is not None]
        return min(known, key=lambda time: (time.status == "ok", time.us), default=None)

    def add(
        self,
        trial: Trial,
        time: KernelTime,
        samples_us: tuple[float, ...],
        unusual: bool = False,
        conditions: str = "",
        compiled: CompiledFacts | None = None,
    ) -> None:
        """Keep a measurement. `unusual`: whether it met values that arithmetic may be slow with.

        `conditions`: of the device, which a record without anything else to say holds. `compiled`: what its compiler
        said.
        """
        slow = f"stopped early: slower than {trial.worth_us:g} us"
        self._keep(trial)
        self._database.add(
            Measurement(
                kernel=work_of(trial.digest),
                schedule=trial.schedule,
                signature=signature_of(trial.kernel),
                policy=self._policy + PRUNED if time.pruned else self._policy_of(trial),
                code_version=self._code_version,
                status=time.status,
                message="; ".join(filter(None, (slow if time.pruned else time.message, conditions))),
                samples_us=samples_us,
                input_values=holds_for(self._values, trial.kernel, time.status, unusual),
                described=self._described,
                compiled=compiled,
            )
        )

    def _keep(self, trial: Trial) -> None:
        """Keep what a kernel is, once."""
        work = work_of(trial.digest)
        if self._program is not None and work not in self._kept:
            self._kept.add(work)
            self._database.keep([source_of(work, trial.kernel, self._program.name)], [self._program])

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

    def _policy_of(self, trial: Trial) -> str:
        """Of a trial's records."""
        return self._policy + AGAIN if trial.again else self._policy

    def _time(self, trial: Trial, policy: str) -> KernelTime | None:
        measured = self._find(trial, policy)
        if not measured:
            return None
        last = measured[-1]
        if last.status != "ok":
            return KernelTime(last.status, math.inf, last.message, replayed=True)
        return KernelTime("ok", min(us for m in measured if (us := m.us) is not None), "", True)

    def _find(self, trial: Trial, policy: str) -> list[Measurement]:
        """The measurements that hold for the values at hand, oldest first: those of exactly these, if there are any."""
        found = self._select(work_of(trial.digest), trial.schedule, policy)
        if not found:
            return []
        kernel = trial.kernel
        values = (self._values.of_all(kernel), self._values.of_deciding(kernel), _ANY_VALUES)
        held = ([m for m in found if m.input_values == digest] for digest in values)
        return next(filter(None, held), [])

    def _times(self, digest: str) -> dict[Schedule, float]:
        """The times of a kernel, by schedule, for the values for which most are known."""
        times: dict[str, dict[Schedule, float]] = {}
        for m in self._select(digest, None, self._policy):
            if m.us is not None:
                known = times.setdefault(m.input_values, {})
                known[m.schedule] = min(m.us, known.get(m.schedule, math.inf))
        return max(times.values(), key=len, default={})

    def _select(self, digest: str, schedule: Schedule | None, policy: str) -> list[Measurement]:
        """What is an answer for some values."""
        records = self._database.find(digest, schedule, policy=policy, code_version=self._code_version)
        measured = [record.measurement for record in records]
        return [m for m in measured if m.status not in PASSING and m.input_values != UNKNOWN_VALUES]


def holds_for(values: InputValues, kernel: KernelCandidate, status: Status, unusual: bool) -> str:
    """Digest of the input values that a measurement holds for; empty: for any.

    `unusual`: whether it met values that arithmetic may be slow with.
    """
    if status == "refused":
        return _ANY_VALUES
    return values.of_deciding(kernel) if status == "ok" and not unusual else values.of_all(kernel)


def source_of(work: str, kernel: KernelCandidate, program: str) -> KernelSource:
    """What is kept of a kernel that does a work, and was found in a program of that name."""
    return KernelSource(work, kernel_text(kernel), kind_of(kernel), program)


def signature_of(kernel: KernelCandidate) -> str:
    """`(f32[64,64]) -> f32[64]`."""
    reads = ", ".join(str(value.type) for value in kernel.inputs)
    writes = ", ".join(str(value.type) for value in kernel.outputs)
    return f"({reads}) -> {writes}"
