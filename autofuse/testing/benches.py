"""A bench without a machine: times come from a cost function, so that what the search finds can be checked exactly."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from autofuse.cost_models.base import KernelFacts
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import BenchCounts
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.kernelrecords import KernelTime, Relative, Trial
from autofuse.measurement.planraces import PlanTime
from autofuse.measurement.racing import Terms
from autofuse.measurement.records import Status
from autofuse.plan.document import PlanDocument
from autofuse.runtime.kernels import candidate_of
from autofuse.search.space.classes import class_digest
from autofuse.targets.cpu.cost.analytical import AnalyticalCpuModel
from autofuse.testing.devices import server
from autofuse.testing.fusions import LIMITS

Cost = Callable[[KernelCandidate, Schedule], float]
"""Microseconds of a kernel under a schedule."""
_DISTURBED = 3.0


def modelled(factor: float = 1.5) -> Cost:
    """What the analytical model says, times a factor that it does not know of. Schedules do not matter."""
    model = AnalyticalCpuModel(server(LIMITS.workers))
    known: dict[str, float] = {}

    def cost(kernel: KernelCandidate, schedule: Schedule) -> float:
        del schedule
        mark = class_digest(kernel)
        if mark not in known:
            program = lower(kernel, Schedule(), "kernel", LIMITS)
            known[mark] = factor * float(model.price([KernelFacts(program)]).us[0])
        return known[mark]

    return cost


def scattered(cost: Cost, spread: float, seed: int = 0) -> Cost:
    """The same with a factor per kernel, log-normal with that spread: what no cost model can know."""

    def changed(kernel: KernelCandidate, schedule: Schedule) -> float:
        digits = hashlib.sha256(f"{class_digest(kernel)}{seed}".encode()).hexdigest()[:15]
        rng = np.random.default_rng(int(digits, 16))
        return cost(kernel, schedule) * math.exp(spread * rng.standard_normal())

    return changed


@dataclass(slots=True)
class SyntheticBench:
    """Stands where `autofuse.measurement.client.Bench` does."""

    graph: Graph
    cost: Cost = field(default_factory=modelled)
    failing: Collection[str] = ()
    """Digests of kernels that fail."""
    failure: Status = "crash"
    """How they do, and those that cost infinitely much."""
    plan_cost: Callable[[PlanDocument], float] | None = None
    """Time of a whole plan; by default the sum of its kernels'."""
    disturbed: Collection[str] = ()
    """Digests of kernels whose first time is three times what they cost."""
    step_s: float = 0.0
    """Seconds on `clock` that measuring one kernel takes."""
    interrupt_after: int | None = None
    """Ctrl-C comes after that many kernels."""
    noise: float = 0.0
    """Spread of the samples of whole plans."""
    records: dict[tuple[str, Schedule], float] = field(default_factory=dict[tuple[str, Schedule], float])
    again: dict[tuple[str, Schedule], float] = field(default_factory=dict[tuple[str, Schedule], float])
    """Second times."""
    notes: dict[str, KernelNote] = field(default_factory=dict[str, KernelNote])
    """Of kernels whose schedules were searched, by digest."""
    batches: list[tuple[str, tuple[Schedule, ...]]] = field(default_factory=list[tuple[str, tuple[Schedule, ...]]])
    """Kernels and schedules that were to be compiled together."""
    counts: BenchCounts = field(default_factory=BenchCounts)
    now_s: float = 0.0
    raced: list[PlanDocument] = field(default_factory=list[PlanDocument])
    """Plans that were timed whole."""
    sittings: list[int] = field(default_factory=list[int])
    """The number of the sitting of each race."""
    open_s: float = 0.0
    compile_s: float = 0.0
    ahead_s: float = 0.0

    def ready(self) -> bool:
        """Always."""
        return False

    def clock(self) -> float:
        return self.now_s

    def kernel(
        self, digest: str, kernel: KernelCandidate, schedule: Schedule, worth_us: float = math.inf
    ) -> KernelTime:
        """As the cost function says; the second time from the records."""
        return self.timed(Trial(digest, kernel, schedule, worth_us))

    def timed(self, trial: Trial) -> KernelTime:
        """As `kernel`. A second time has records of its own, and is not counted."""
        if self.interrupt_after is not None and self.counts.measured >= self.interrupt_after:
            raise KeyboardInterrupt
        digest, schedule = trial.digest, trial.schedule
        records = self.again if trial.again else self.records
        if (digest, schedule) in records:
            self.counts.replayed += not trial.again
            return self._time(records[digest, schedule], trial.worth_us, replayed=True)
        self.now_s += self.step_s
        self.counts.measured += not trial.again
        us = math.inf if digest in self.failing else self.cost(trial.kernel, schedule)
        if us == math.inf:
            self.counts.failed.append(f"{trial.kernel.nodes[-1].name}: {self.failure}: it crashed")
            self.counts.failing[digest, schedule] = self._time(us)
        if digest in self.disturbed and not trial.again:
            us *= _DISTURBED
        records[digest, schedule] = us
        return self._time(us, trial.worth_us)

    def recorded(self, digest: str, kernel: KernelCandidate, schedule: Schedule) -> KernelTime | None:
        """The best of what was measured before."""
        del kernel
        known = [r[digest, schedule] for r in (self.records, self.again) if (digest, schedule) in r]
        return self._time(min(known), replayed=True) if known else None

    def kernels(self, trials: Sequence[Trial], go_on: Callable[[], bool] = lambda: True) -> list[KernelTime]:
        """One after the other."""
        found: list[KernelTime] = []
        for trial in trials:
            if not go_on():
                break
            found.append(self.timed(trial))
        return found

    def compile(
        self, digest: str, kernel: KernelCandidate, schedules: Sequence[Schedule], worth_us: float = math.inf
    ) -> None:
        """Nothing to compile; what was asked for is kept in `batches`."""
        del kernel, worth_us
        self.batches.append((digest, tuple(schedules)))

    def note(self, note: KernelNote) -> None:
        """Kept in `notes`, unless there is one of the kernel."""
        self.notes.setdefault(note.kernel, note)

    def relatives(self, family: str, program: str, without: Collection[str]) -> list[Relative]:
        """Those of `notes`, with the times in `records`."""
        found: list[Relative] = []
        for digest, note in self.notes.items():
            times = {schedule: us for (kernel, schedule), us in self.records.items() if kernel == digest}
            foreign = note.program != program and digest not in without
            if note.family == family and foreign and len(times) > 1:
                found.append(Relative(note, times))
        return found

    def plans(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Samples with seeded noise around the plan's cost; a plan of infinite cost crashes."""
        self.raced.extend(plans)
        self.sittings.append(terms.sitting)
        rng = np.random.default_rng((terms.seed, terms.sitting))
        drift = rng.standard_normal(terms.blocks)
        found: list[PlanTime] = []
        for plan in plans:
            us = self.plan_us(plan)
            if us == math.inf:
                found.append(PlanTime((), "crash: it crashed"))
                continue
            own = 0.1 * rng.standard_normal(terms.blocks)
            found.append(PlanTime(tuple(float(s) for s in us * (1 + self.noise * (drift + own)))))
        return found

    def plan_us(self, plan: PlanDocument) -> float:
        """What a plan costs."""
        if self.plan_cost is not None:
            return self.plan_cost(plan)
        return sum(self.cost(candidate_of(plan.graph, k.nodes, k.outputs), k.schedule) for k in plan.kernels)

    def _time(self, us: float, worth_us: float = math.inf, replayed: bool = False) -> KernelTime:
        return KernelTime("ok" if us < math.inf else self.failure, us, "", replayed, worth_us < us < math.inf)
