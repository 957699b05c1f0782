"""Whole plans in interleaved blocks: which of them there is time for, and how long each call takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np

from autofuse.lazydataclass import dataclass, field
from autofuse.measurement.racing import LEAST_BLOCKS, NO_TIME, SURE_S, contenders, is_decided
from autofuse.measurement.timer import Clock, fastest_call, rough_us, turn_of

_LONG = 5
"""Times the time of a turn: a call as long as that is not made twice to warm the caches."""
_BETWEEN = 5
"""Blocks from one look at who leads to the next."""
_BUILD_SHARE = 0.5
"""Of a race's limit: most for building plans."""


class Runnable(Protocol):
    """A plan that can be called."""

    @property
    def expected_s(self) -> float:
        """What a call may take."""
        ...

    def problem(self) -> str:
        """Run once; what is wrong with the answer, or nothing."""
        ...

    def call(self) -> object:
        """All that a call of the plan does."""
        ...

    def restore(self) -> None:
        """Undo what calls wrote into the arguments."""
        ...


@dataclass(slots=True)
class Race:
    """One race, from the moment this is made.

    Plans stand in the order in which they should be preferred, the best last. Where the limit leaves no time for all of
    them, the last ones are built and run; the very last one always, in one block at least.
    """

    terms: Mapping[str, Any]
    """`blocks`, `seed`, `turn_us`, `seconds`, `decides`, `limit_s`: see `racing.Terms`."""
    expect: Callable[[float], None]
    """Told before calls how many seconds they are expected to take."""
    clock: Clock = perf_counter_ns
    start: int = field(init=False)
    cut_short: bool = field(default=False, init=False)
    """Whether the limit left out plans or blocks."""

    def __post_init__(self) -> None:
        self.start = self.clock()

    def build(self, makers: Sequence[Callable[[], Runnable]]) -> dict[int, Runnable]:
        """The plans that there is time to build, by number, the last first."""
        built: dict[int, Runnable] = {}
        took = 0
        for number in reversed(range(len(makers))):
            if built and self._is_late(took, _BUILD_SHARE):
                break
            begin = self.clock()
            built[number] = makers[number]()
            took = self.clock() - begin
        return built

    def run(self, plans: Mapping[int, Runnable], count: int) -> tuple[list[list[float]], list[str]]:
        """Samples in microseconds, and what is wrong with the answer, of each of `count` plans.

        `plans`: those that were built, in the order in which they are to be run for a first time. The others, and those
        that there is no time for, have no samples, and `NO_TIME` for a problem.
        """
        until = self.clock() + 1e9 * self.terms["seconds"]
        problems, once_us = self._first_calls(plans)
        samples = self._blocks(plans, problems, once_us, until)
        return [samples.get(n, []) for n in range(count)], [problems.get(n, NO_TIME) for n in range(count)]

    def _first_calls(self, plans: Mapping[int, Runnable]) -> tuple[dict[int, str], dict[int, float]]:
        """Check the plans, the first of the mapping always, and time them roughly, in microseconds."""
        problems: dict[int, str] = {}
        once_us: dict[int, float] = {}
        took = blocks_ns = 0.0
        for number, plan in plans.items():
            if once_us and self._is_late(took + blocks_ns):
                break
            begin = self.clock()
            self.expect(plan.expected_s)
            problems[number] = plan.problem()
            self.expect((self.clock() - begin) / 1e9)
            us = once_us[number] = rough_us(plan.call, self.clock)
            took = self.clock() - begin
            turn_ns = 1e3 * max(self.terms["turn_us"], 2 * us)
            blocks_ns += LEAST_BLOCKS * turn_ns * (2 if len(once_us) == 1 else 1)  # the next one's too
        return problems, once_us

    def _blocks(
        self,
        plans: Mapping[int, Runnable],
        problems: Mapping[int, str],
        once_us: Mapping[int, float],
        until: float,
    ) -> dict[int, list[float]]:
        """Samples by number; until a time on the clock, but not before `LEAST_BLOCKS`."""
        rng = np.random.default_rng(self.terms["seed"])
        running = sorted(once_us)
        batch, times = turn_of(self.terms["turn_us"], [once_us[number] for number in running])
        warms = min(once_us.values()) < _LONG * self.terms["turn_us"]
        racing = [number for number in running if not problems[number]] or running
        samples: dict[int, list[float]] = {number: [] for number in running}
        start = now = self.clock()
        for block in range(self.terms["blocks"]):
            before, now = now, self.clock()
            if (block >= LEAST_BLOCKS and now > until) or (block and self._is_late(now - before)):
                break
            if self.terms["decides"] and block % _BETWEEN == 0 and block:
                raced = [samples[number] for number in racing]
                if is_decided(raced) and now - start > 1e9 * min(SURE_S, self.terms["seconds"]):
                    break
                running = [racing[place] for place in contenders(raced)]
            for number in rng.permutation(running):
                self.expect((2 + batch * times) * once_us[number] / 1e6)
                plans[number].restore()
                if warms:
                    plans[number].call()  # what ran before has left its own data in the caches
                samples[number].append(fastest_call(plans[number].call, batch, times, self.clock))
        return samples

    def _is_late(self, ahead_ns: float, share: float = 1.0) -> bool:
        """Whether what takes so much longer would end after that share of the limit, and is left out."""
        limit_s = self.terms["limit_s"]
        late = limit_s is not None and self.clock() - self.start + ahead_ns > 1e9 * share * limit_s
        self.cut_short |= late
        return late
