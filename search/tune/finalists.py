"""Whole plans that run against one another: who takes part, which one is kept, and how the others stand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass, replace
from autofuse.measurement.client import Bench
from autofuse.measurement.planraces import PlanTime
from autofuse.measurement.racing import SAME_BLOCKS, Terms, fastest, noise_floor, ratios
from autofuse.plan.document import PlanDocument
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.plans.planning import in_groups_apart, one_by_one
from autofuse.search.policies.policy import Partition

REPLICAS, _CLOSE_CALL, _MOST = 3, 1.1, 4
"""Processes in which a race is run, and which plans run in the later ones: how much slower than the fastest at most,
and how many."""
_START_SHARE = 0.25
"""Of a race's time: most for starting one more process, or the race is run in one."""
_TOGETHER, _BESIDE = ", small kernels together", ", small kernels beside each other"
_Samples = Mapping[int, Sequence[float]]
"""Of plans, by number, in the same blocks."""
OTHER_SCHEDULES = ", other schedules"
"""Ends the name of a plan with schedules that are not quite the fastest alone."""


class NoPlanRunsError(MeasureError):
    """No plan of a race can be run end to end."""


@dataclass(frozen=True, slots=True)
class Finalist:
    """A plan that is run end to end."""

    name: str
    partition: Partition
    plan: PlanDocument


@dataclass(frozen=True, slots=True)
class Standings:
    """How a race ended."""

    winner: Finalist
    us: float
    """Of the winner's fastest call."""
    times: Mapping[str, float]
    """By name of the plan, whatever its form: as many times the winner's as in the blocks that both were in."""
    problem: str
    """What is wrong with the winner's answer, where no plan's is right."""
    unrun: tuple[str, ...] = ()
    """Names of plans that there was no time to run."""


def with_and_without_groups(finalist: Finalist, memory: MemoryLimit | None, joins: bool = False) -> list[Finalist]:
    """A plan as it is and with its kernels one by one, which is preferred where it is as fast.

    `joins`: whether the target starts kernels of a group at once; then also with groups that it starts one by one, kept
    only where that is faster than fewer launches.
    """
    if not any(launch.group_place for launch in finalist.plan.order):
        return [finalist]
    together = [replace(finalist, name=f"{finalist.name}{_TOGETHER}")]
    if joins:
        apart = replace(finalist, name=f"{finalist.name}{_BESIDE}", plan=in_groups_apart(finalist.plan))
        together = [apart, *together]
    alone = replace(finalist, plan=one_by_one(finalist.plan))
    if memory is not None and not memory.fits(alone.plan):  # in another order, other values are alive together
        return together if joins else [finalist]
    return [*together, alone]


class Races:
    """Races of plans for one program."""

    def __init__(self, bench: Bench, seed: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bench, self._seed, self._clock = bench, seed, clock
        self.each_s = 0.0
        """Seconds that each plan of the last race took, building and checking it included."""

    def in_order(
        self, plans: Sequence[PlanDocument], seconds: float, limit_s: float | None = None
    ) -> list[tuple[float, int]]:
        """How many times as long as the fastest each plan takes, and its number, for those whose answers are right.

        `limit_s`: see `Terms`. Plans that it leaves no time for come last, as though they were as fast.
        """
        times = self._times(plans, Terms(self._seed, seconds, limit_s=limit_s))
        right = [number for number, time in enumerate(times) if time.samples_us and not time.problem]
        samples = [times[number].samples_us for number in right]
        slowness = ratios(samples, fastest(samples)) if samples else []
        unrun = [(1.0, number) for number, time in enumerate(times) if time.is_unrun]
        return [*sorted(zip(slowness, right, strict=True)), *unrun]

    def decide(self, finalists: Sequence[Finalist], seconds: float, limit_s: float | None = None) -> Standings:
        """Which one to keep: the fastest whose answer is right; of equal ones the last.

        Those that are nearly as fast as the fastest run again in other processes. `limit_s`: most time for all of it,
        building plans included, and then those run again only if there is time for that; None: no limit. Raises
        NoPlanRunsError if none can be run, MeasureError if the race cannot be recorded.
        """
        start = self._clock()
        in_one = limit_s is not None and self._bench.open_s > _START_SHARE * seconds
        plans = [finalist.plan for finalist in finalists]
        race = self._times(plans, Terms(self._seed, seconds if in_one else seconds / 2, limit_s=limit_s))
        right = [number for number, time in enumerate(race) if time.samples_us and not time.problem]
        if not right:  # rounding alone takes a program this far from the interpreter, or all plans share a defect
            right = [number for number, time in enumerate(race) if time.samples_us]
        if not right:
            raise NoPlanRunsError(f"no plan can be run end to end: {race[-1].problem}")
        samples = {number: race[number].samples_us for number in right}
        slowness = _slowness(samples)

        def left_s() -> float | None:
            return None if limit_s is None else start + min(seconds, limit_s) - self._clock()

        final = {} if in_one else self._final(plans, samples, slowness, Terms(self._seed, seconds / 4), left_s)
        if final:
            slowness = {number: slow / slowness[_first(final)] for number, slow in slowness.items()} | _slowness(final)
        winner = _first(final or samples)
        us = min((final or samples)[winner])
        times: dict[str, float] = {}
        for number, slow in slowness.items():
            plain = finalists[number].name.removesuffix(_TOGETHER).removesuffix(OTHER_SCHEDULES)
            times[plain] = min(slow * us, times.get(plain, math.inf))
        unrun = [finalist.name for finalist, time in zip(finalists, race, strict=True) if time.is_unrun]
        return Standings(finalists[winner], us, times, race[winner].problem, tuple(unrun))

    def _final(
        self,
        plans: Sequence[PlanDocument],
        samples: _Samples,
        slowness: Mapping[int, float],
        terms: Terms,
        left_s: Callable[[], float | None],
    ) -> dict[int, list[float]]:
        """Samples of the plans that are nearly as fast as the fastest, as many in each of several processes.

        Plans by number; {} if there is nothing to decide between, or no time. `terms`: of each further process, but for
        its limit. `left_s`: seconds that are left; None: as many as it takes.
        """

        def has_time(number: int) -> bool:
            left = left_s()
            return left is None or self._bench.open_s + self.each_s * number <= left

        close: dict[object, list[int]] = {}
        kept = _first(samples)
        for number in sorted(slowness, key=lambda number: (number != kept, slowness[number])):
            if slowness[number] <= _CLOSE_CALL:
                close.setdefault(_work(plans[number]), []).append(number)
        running = sorted(number for numbers in list(close.values())[:_MOST] for number in numbers)
        if len(close) < 2 or not has_time(len(running)):
            return {}
        blocks = min(len(samples[number]) for number in running)
        found = {number: [samples[number]] for number in running}
        for replica in range(1, REPLICAS):
            if not has_time(len(found)):
                break
            left = left_s()
            limit_s = None if left is None else left - self._bench.open_s
            again = replace(terms, blocks=blocks, decides=False, replica=replica, limit_s=limit_s)
            times = self._times([plans[number] for number in found], again)
            sound = [time.samples_us and not time.problem for time in times]
            if not any(sound):  # as where no plan's answer is right
                return {}
            found = {n: [*found[n], t.samples_us] for n, t, fine in zip(found, times, sound, strict=True) if fine}
            blocks = min(len(samples) for replicas in found.values() for samples in replicas)
        return {n: [us for replica in replicas for us in replica[:blocks]] for n, replicas in found.items()}

    def again(
        self, plan: PlanDocument, seconds: float, limit_s: float | None = None
    ) -> tuple[float | None, float | None]:
        """The plan's time on fresh samples, and the noise floor: the plan against itself.

        None if it cannot be run, or not twice in `limit_s` (see `Terms`).
        """
        terms = Terms(self._seed + 1, seconds, SAME_BLOCKS, decides=False, limit_s=limit_s)
        first, second = self._bench.plans([plan, plan], terms)
        if not first.samples_us or not second.samples_us:
            return None, None
        return first.us, noise_floor(first.samples_us, second.samples_us)

    def _times(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Samples per plan; plans that do the same work share them."""
        works = [_work(plan) for plan in plans]
        distinct: dict[object, PlanDocument] = {}
        for work, plan in zip(works, plans, strict=True):
            distinct.pop(work, None)  # it is preferred as the last of its like is
            distinct[work] = plan
        start = self._clock()
        timed = self._bench.plans(list(distinct.values()), terms)
        self.each_s = (self._clock() - start) / max(1, sum(not time.is_unrun for time in timed))
        found = dict(zip(distinct, timed, strict=True))
        return [found[work] for work in works]


def _work(plan: PlanDocument) -> object:
    """Equal for plans that do the same work."""
    return (plan.order, plan.replayed, *((kernel.nodes, kernel.outputs, kernel.schedule) for kernel in plan.kernels))


def _first(samples: _Samples) -> int:
    """The number of the plan to keep, the last of equal ones."""
    numbers = sorted(samples)
    return numbers[fastest([samples[number] for number in numbers])]


def _slowness(samples: _Samples) -> dict[int, float]:
    """How many times as long as the one to keep each plan takes."""
    numbers = sorted(samples)
    relative = ratios([samples[number] for number in numbers], numbers.index(_first(samples)))
    return dict(zip(numbers, relative, strict=True))
