"""Whole plans that run against one another: who takes part, which one is kept, and how the others stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.errors import MeasureError
from autofuse.measurement.client import Bench
from autofuse.measurement.planraces import PlanTime
from autofuse.measurement.racing import SAME_BLOCKS, Terms, fastest, noise_floor, ratios
from autofuse.plan.document import PlanDocument
from autofuse.search.memory import MemoryLimit
from autofuse.search.planning import one_by_one
from autofuse.search.policy import Partition

_ON_LANES = ", on lanes"
OTHER_SCHEDULES = ", other schedules"
"""Ends the name of a plan with schedules that are not quite the fastest alone."""


class NoPlanRunsError(MeasureError):
    """No plan of a race can be run end to end."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A plan that is run end to end."""

    name: str
    partition: Partition
    plan: PlanDocument


@dataclass(frozen=True, slots=True)
class Standings:
    """How a race ended."""

    winner: Entrant
    us: float
    """Of the winner's fastest call."""
    times: Mapping[str, float]
    """By name of the plan, whatever its form: as many times the winner's as in the blocks that both were in."""
    problem: str
    """What is wrong with the winner's answer, where no plan's is right."""


def with_and_without_lanes(entrant: Entrant, memory: MemoryLimit | None) -> list[Entrant]:
    """A plan as it is and with its kernels one by one, which is preferred where it is as fast."""
    if not any(launch.lane for launch in entrant.plan.order):
        return [entrant]
    alone = replace(entrant, plan=one_by_one(entrant.plan))
    if memory is not None and not memory.fits(alone.plan):
        return [entrant]  # in another order, other values are alive together
    return [replace(entrant, name=f"{entrant.name}{_ON_LANES}"), alone]


class Races:
    """Races of plans for one program."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self._bench, self._seed = bench, seed

    def in_order(self, plans: Sequence[PlanDocument], seconds: float) -> list[tuple[float, int]]:
        """How many times as long as the fastest each plan takes, and its number, for those whose answers are right."""
        times = self._times(plans, seconds)
        right = [number for number, time in enumerate(times) if time.samples_us and not time.problem]
        samples = [times[number].samples_us for number in right]
        slowness = ratios(samples, fastest(samples)) if samples else []
        return sorted(zip(slowness, right, strict=True))

    def decide(self, entrants: Sequence[Entrant], seconds: float) -> Standings:
        """Which one to keep: the fastest whose answer is right; of equal ones the last.

        Raises NoPlanRunsError if none can be run, MeasureError if the race cannot be recorded.
        """
        race = self._times([entrant.plan for entrant in entrants], seconds)
        right = [number for number, time in enumerate(race) if time.samples_us and not time.problem]
        if not right:  # rounding alone takes a program this far from the interpreter, or all plans share a defect
            right = [number for number, time in enumerate(race) if time.samples_us]
        if not right:
            raise NoPlanRunsError(f"no plan can be run end to end: {race[-1].problem}")
        samples = [race[number].samples_us for number in right]
        first = fastest(samples)
        winner = race[right[first]]
        times: dict[str, float] = {}
        for number, ratio in zip(right, ratios(samples, first), strict=True):
            plain = entrants[number].name.removesuffix(_ON_LANES).removesuffix(OTHER_SCHEDULES)
            times[plain] = min(ratio * winner.us, times.get(plain, math.inf))
        return Standings(entrants[right[first]], winner.us, times, winner.problem)

    def again(self, plan: PlanDocument, seconds: float) -> tuple[float | None, float | None]:
        """The plan's time on fresh samples, and the noise floor: the plan against itself. None if it cannot be run."""
        terms = Terms(self._seed + 1, seconds, SAME_BLOCKS, decides=False)
        first, second = self._bench.plans([plan, plan], terms)
        if not first.samples_us or not second.samples_us:
            return None, None
        return first.us, noise_floor(first.samples_us, second.samples_us)

    def _times(self, plans: Sequence[PlanDocument], seconds: float) -> list[PlanTime]:
        """Samples per plan; plans that do the same work share them."""
        works = [(plan.order, *((k.nodes, k.outputs, k.schedule) for k in plan.kernels)) for plan in plans]
        distinct = dict(zip(works, plans, strict=True))
        timed = self._bench.plans(list(distinct.values()), Terms(self._seed, seconds))
        found = dict(zip(distinct, timed, strict=True))
        return [found[work] for work in works]
