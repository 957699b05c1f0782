"""The measuring loop: solve, measure what matters, solve again, until the best measured plan is close to the bound.

First the kernels that the model chooses are measured. Once times are not as expected, or a kernel fails, those of the
baselines are too, among them those of other compilers' rules, and the single atoms, as far as the budget allows
(`docs/decisions/0241-*`). Each round solves the program at optimistic prices (measured where known, else exp(mu - k
sigma) of the model's price), at expected prices (exp(mu)), and with the measured kernels alone. The first optimum is a
statistical lower bound, the last one is the best plan so far; when the two are within epsilon, more measuring is not
worth its time. Until then unmeasured kernels of the first two are measured, all of them or those that may make the most
difference, and the residual is refitted. Before the loop ends, kernels are timed a second time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.errors import MeasureError, SearchError
from autofuse.lazydataclass import dataclass, field
from autofuse.search.budget.budget import Clock, Report
from autofuse.search.policies.analytical import solve_at
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.solve.solver import Solution
from autofuse.search.space.candidates import Candidate
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.plandrafts import Drafts

K_SIGMA = 1.5
EPSILON = 0.05
_NEAR = 0.02
"""In place of EPSILON while little was measured: the bound is no better than what is believed of the others."""
LOOP_SHARE = 0.5
"""Of the budget: when the loop must be done."""

_FIRST_SHARE, _AGAIN_SHARE = 0.25, 0.6
"""Of the budget: when the baselines' kernels and single atoms, and second times and last solves, must be done."""
_SOLVE = 0.15
"""Of the time that is left for the loop: most for solving once."""


@dataclass(slots=True)
class MeasuringLoop:
    """Measures kernels of the space until it is certain which partition is the best."""

    context: Context
    drafts: Drafts
    times: KernelTimes
    clock: Clock
    report: Report
    rounds: int = field(default=0, init=False)
    _looked: bool = field(default=False, init=False)
    """Whether more than the model's choice was measured before the first round."""
    bound_us: float | None = field(default=None, init=False)
    """Statistical: what no partition is thought to take less than."""
    proved: Solution | None = field(default=None, init=False)
    """What was shown to be optimal under the costs that were measured, or close to it."""

    def run(self, baselines: Sequence[Partition]) -> Partition:
        """The best partition of measured kernels; one of the baselines where there is none.

        Raises MeasureError or SearchError if no plan is left.
        """
        self.times.measure((chosen.candidate for chosen in baselines[-1].kernels), LOOP_SHARE)
        best: Solution | None = None
        while True:
            self._look_around(baselines)
            self.rounds += 1
            began = self.clock.elapsed()
            if best is not None and self.times.any_fails(best):
                best = None  # the second time
            try:
                low, expected = self.solve(K_SIGMA), self.solve(0.0)
            except (MeasureError, SearchError):
                # too many kernels of the space fail, or solving found nothing that takes so little memory in its time
                if best is not None:
                    break
                if self.times.excuse():
                    continue
                other = self.one_that_runs(baselines)
                if other is None:
                    raise
                return other
            self.bound_us = min(low.bound_us, low.price_us)
            best = self._cheapest_measured(best)
            self.report("measuring kernels", *self.clock.progress())
            solved_s = self.clock.elapsed() - began
            certain = best is not None and best.price_us <= (1 + self._epsilon) * self.bound_us
            if not certain and self._measure_more(best, low, expected):
                continue
            if not self.times.measure_again(self.context.space, _AGAIN_SHARE, solved_s):
                self.proved = best if certain and best is not None and best.optimal else None
                break
        return baselines[-1] if best is None else self.drafts.solved(best)

    def _look_around(self, baselines: Sequence[Partition]) -> None:
        """Measure the kernels of the baselines and the single atoms, once, where times are other than expected.

        They are what a plan is made of where others fail, and what corrects a model that errs.
        """
        if not self._looked and not self.times.are_as_expected:
            self._looked = True
            self.times.measure(self._worth_knowing(baselines), _FIRST_SHARE)

    @property
    def _epsilon(self) -> float:
        """How near the bound is near enough."""
        return EPSILON if self._looked else _NEAR

    def _measure_more(self, best: Solution | None, low: Solution, expected: Solution) -> bool:
        """Measure what is unknown of these partitions; returns whether there was anything, and time for it."""
        # a solve that ran out of time may have found nothing that is cheaper than what is known
        better = [found for found in (low, expected) if best is None or found.price_us < best.price_us]
        todo = self.times.unknown([kernel.candidate for found in better for kernel in found.kernels])
        if not todo or not self.clock.kernel_left(LOOP_SHARE):
            return False
        self.times.measure(todo if self._looked else self._most_open(todo), LOOP_SHARE)
        return True

    def _most_open(self, todo: Sequence[Candidate]) -> list[Candidate]:
        """Half of the kernels: those that may be the most faster than expected, all equal ones together."""
        low, expected = self.times.optimistic(K_SIGMA), self.times.optimistic(0.0)
        open_us: dict[str, float] = {}
        for digest in (candidate.digest for candidate in todo):
            open_us[digest] = open_us.get(digest, 0.0) + expected[digest] - low[digest]
        kept = sorted(open_us, key=lambda digest: (-open_us[digest], digest))[: -(-len(open_us) // 2)]
        return [candidate for candidate in todo if candidate.digest in kept]

    def one_that_runs(self, baselines: Sequence[Partition]) -> Partition | None:
        """A baseline that may do where the space has no plan: the last one whose kernels are known to run, or may."""
        running = [p for p in reversed(baselines) if not self.drafts.has_failed(p) and self.drafts.fits(p)]
        sound = [partition for partition in running if self.times.all_run(partition)]
        return next(iter((*sound, *running)), None)

    def solve(self, k: float) -> Solution:
        """The cheapest partition at prices exp(mu - k sigma). Raises MeasureError if failed kernels leave none."""
        try:
            return self._cheapest(self.times.optimistic(k))
        except SearchError as error:
            if math.inf not in self.times.us.values():
                raise
            fault = "what is left without the kernels that failed is no plan"
            if self.context.memory is not None:
                fault = f"{error}; kernels that failed are left out"
            raise MeasureError(f"{fault}: {self.drafts.failure}") from error

    def _worth_knowing(self, baselines: Sequence[Partition]) -> list[Candidate]:
        """The kernels of the baselines, the cheapest ones' first, then the single atoms."""
        cheapest = sorted(baselines, key=lambda partition: partition.price_us)
        groups = [[chosen.candidate for chosen in partition.kernels] for partition in cheapest]
        groups.append([candidate for candidate in self.context.space.candidates if len(candidate.atoms) == 1])
        return [candidate for group in groups for candidate in self._dearest_first(group)]

    def _dearest_first(self, kernels: Sequence[Candidate]) -> list[Candidate]:
        """Kernels of a program, those first of which all equal ones take the most time together."""
        prices = self.times.prices()
        total: dict[str, float] = {}
        for digest in (candidate.digest for candidate in kernels):
            us = prices[digest].predicted_us if digest in prices else 0.0
            total[digest] = total.get(digest, 0.0) + us
        return sorted(kernels, key=lambda candidate: (-total[candidate.digest], candidate.digest))

    def _cheapest_measured(self, best: Solution | None) -> Solution | None:
        """The cheapest partition of measured kernels; None if they cannot compute the program.

        `best`: what it was before, which stays where solving runs out of time and finds a dearer one.
        """
        try:
            found = self._cheapest(self.times.measured_only())
        except SearchError:
            return best
        if best is not None and best.price_us < found.price_us:
            return best
        self.drafts.keep(self.drafts.solved(found))
        return found

    def _cheapest(self, us: dict[str, float]) -> Solution:
        seconds = self.clock.solve_s(self.context.deadline_s, LOOP_SHARE, _SOLVE)
        return solve_at(self.context, self.context.space, us, seconds)
