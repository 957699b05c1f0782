"""A bench whose kernels are timed on several devices at a time.

Each leased device has a bench of its own, in a thread of its own, on the same records. Kernels are handed out in order,
one by one. What a lost worker had in hand is handed out again; what it had answered is in the records, and is found
there. So it costs its unfinished kernels and no others.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench, BenchCounts
from autofuse.measurement.cluster.leases import Leased, Leases
from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import KernelTime, Trial
from autofuse.measurement.planraces import PlanTime
from autofuse.measurement.racing import Terms
from autofuse.measurement.workerpool import WorkerLostError
from autofuse.plan.document import PlanDocument

_MOST_LOST = 2
"""Workers that may be lost with a kernel: then it is taken to be its fault."""


@dataclass(slots=True)
class _Lane:
    """A leased device, with its bench."""

    worker: Leased
    bench: Bench
    hand: dict[int, Trial] = field(default_factory=dict[int, Trial])
    """Trials that were handed out to it in this round, by their places."""


class ClusterBench(Bench):
    """See `Bench`: the same answers from the same records. Workers that are lost are named in a warning."""

    def __init__(
        self, graph: Graph, inputs: Sequence[NDArray[Any]], database: Database, leases: Leases, **options: Any
    ) -> None:
        """`leases`: stay their owner's. `options`: of `Bench`. Raises MeasureError where there is no worker."""
        if not leases.workers:
            raise MeasureError(f"no worker is left: {'; '.join(map(str, leases.left_out))}")
        super().__init__(graph, inputs, database, leases.identity, worker=leases.workers[0], **options)
        self._leases = leases
        self._lanes = [
            _Lane(worker, Bench(graph, inputs, database, leases.identity, **options, **_of(worker, leases)))
            for worker in leases.workers
        ]

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for lane in self._lanes:
            lane.bench.__exit__(kind, value, at)

    @property
    def ahead_s(self) -> float:
        return max(lane.bench.ahead_s for lane in self._lanes)

    def ready(self) -> bool:
        """Prepare the program on every device, unless it is. Returns whether that was done anywhere now."""
        done = [made for made in self._on_all(lambda lane: lane.bench.ready()) if made is not None]
        self.open_s = max(lane.bench.open_s for lane in self._lanes)
        return any(done)

    def kernels(self, trials: Iterable[Trial], go_on: Callable[[], bool] = lambda: True) -> list[KernelTime]:
        handed = _HandedOut(list(trials), self._replayed, go_on, self.counts)

        def measure(lane: _Lane) -> None:
            lane.hand.clear()
            try:
                times = lane.bench.kernels(_Pulled(handed, lane.hand), handed.goes_on_without_one)
            except WorkerLostError as lost:
                handed.take_back(lane.hand, lost)  # at once: others are still asking for more
                raise
            handed.answer(lane.hand, times)

        while handed.has_more():
            self._on_all(measure)
        self._merge_failures()
        return handed.prefix()

    def compile(
        self, digest: str, kernel: KernelCandidate, schedules: Sequence[Schedule], worth_us: float = math.inf
    ) -> None:
        """See `Bench`, for one device; of several, each compiles what it is about to time, while the others time."""
        if len(self._lanes) == 1:
            bench = self._lanes[0].bench
            self._on_all(lambda lane: lane.bench.compile(digest, kernel, schedules, worth_us))
            self.compile_s = bench.compile_s

    def plans(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Time whole plans against one another, all on one device."""
        while True:
            try:
                return self._lanes[0].bench.plans(plans, terms)
            except WorkerLostError as lost:
                self._leave_out(self._lanes[0], lost)
            finally:
                self.open_s = self._lanes[0].bench.open_s if self._lanes else 0.0

    def _replayed(self, trial: Trial) -> KernelTime | None:
        """What the records know, counted as `Bench.kernels` does."""
        known = self._records.known(trial)
        if known is not None:
            self.counts.replayed += not trial.again
            if known.status != "ok":
                self.counts.failing[trial.digest, trial.schedule] = known
        return known

    def _merge_failures(self) -> None:
        """Of all devices: what failed there failed."""
        for lane in self._lanes:
            self.counts.failed += lane.bench.counts.failed
            lane.bench.counts.failed.clear()
            self.counts.failing |= lane.bench.counts.failing
            lane.bench.counts.failing.clear()

    def _on_all(self, work: Callable[[_Lane], Any]) -> list[Any]:
        """Have every device do something, each in a thread. Those that are lost are left out.

        Raises what `work` raises, and MeasureError where none is left.
        """
        found: list[Any] = []
        with ThreadPoolExecutor(len(self._lanes), "autofuse-cluster") as pool:
            running = {pool.submit(work, lane): lane for lane in self._lanes}
            try:
                wait(running)
            except BaseException:  # Ctrl-C: what the devices still do is of no use to anybody
                for lane in self._lanes:
                    lane.worker.give_up()
                raise
        for future, lane in running.items():
            failure = future.exception()
            if isinstance(failure, WorkerLostError):
                self._leave_out(lane, failure)
            else:
                found.append(future.result())
        return found

    def _leave_out(self, lane: _Lane, lost: WorkerLostError) -> None:
        """Do without a worker from now on. Raises MeasureError where none is left."""
        self._lanes.remove(lane)
        self._leases.leave_out(lane.worker, lost)


def _of(worker: Leased, leases: Leases) -> dict[str, Any]:
    """What is the worker's own of what its bench is made from."""
    return {"worker": worker, "description": leases.introduced[worker.name].description}


class _HandedOut:
    """Trials on their way to devices and back; safe for use by several threads."""

    def __init__(
        self,
        trials: Sequence[Trial],
        replayed: Callable[[Trial], KernelTime | None],
        go_on: Callable[[], bool],
        counts: BenchCounts,
    ) -> None:
        self._trials, self._replayed, self._go_on, self._counts = trials, replayed, go_on, counts
        self._found: dict[int, KernelTime] = {}
        self._next = 0
        self._ended = not trials
        self._returned: deque[int] = deque()
        """Places of trials that lost workers had in hand."""
        self._losses: Counter[int] = Counter()
        self._lock = threading.RLock()

    def next(self) -> tuple[int, Trial] | None:
        """The next trial that has to be measured, and its place; None where there is none, or no time."""
        with self._lock:
            while self._returned or not self._ended:
                if not self._go_on():
                    self._ended = True
                    self._returned.clear()
                    return None
                again = bool(self._returned)
                place = self._returned.popleft() if again else self._next
                if not again:
                    self._next += 1
                    self._ended = self._next == len(self._trials)
                trial = self._trials[place]
                known = self._replayed(trial)
                if known is not None:
                    self._found[place] = known
                    continue
                self._counts.measured += not trial.again
                return place, trial
            return None

    def has_more(self) -> bool:
        """Whether there is anything to hand out."""
        with self._lock:
            return bool(self._returned) or not self._ended

    def goes_on_without_one(self) -> bool:
        """Whether there is time, as the one sees it who measures a trial that is counted already."""
        with self._lock:
            self._counts.measured -= 1
            try:
                return self._go_on()
            finally:
                self._counts.measured += 1

    def answer(self, hand: dict[int, Trial], times: Sequence[KernelTime]) -> None:
        """Take the times of what a device had in hand; fewer, if there was no time."""
        with self._lock:
            self._found.update(zip(hand, times, strict=False))
            self._counts.measured -= sum(not trial.again for trial in list(hand.values())[len(times) :])
            hand.clear()

    def take_back(self, hand: dict[int, Trial], lost: WorkerLostError) -> None:
        """Take back what a lost worker had in hand, to be handed out again.

        The kernel that it got last is the one it may have been lost with: the others had run.
        """
        with self._lock:
            self._losses.update(list(hand)[-1:])
            for place, trial in hand.items():
                self._counts.measured -= not trial.again
                if self._losses[place] < _MOST_LOST:
                    self._returned.append(place)
                else:
                    message = f"{_MOST_LOST} workers were lost with it: {lost}"
                    self._found[place] = failed = KernelTime("killed", math.inf, message)
                    self._counts.failing[trial.digest, trial.schedule] = failed
                    self._counts.failed.append(f"{trial.kernel.nodes[-1].name}: killed: {message}")
            hand.clear()

    def prefix(self) -> list[KernelTime]:
        """The times, up to the first that there is none of."""
        found: list[KernelTime] = []
        while len(found) in self._found:
            found.append(self._found[len(found)])
        return found


@dataclass(frozen=True, slots=True)
class _Pulled:
    """What is handed out to one device, as its bench iterates over it."""

    handed: _HandedOut
    hand: dict[int, Trial]

    def __iter__(self) -> Iterator[Trial]:
        while (one := self.handed.next()) is not None:
            self.hand[one[0]] = one[1]
            yield one[1]
