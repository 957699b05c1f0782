"""Partitions that may be faster as a whole than the one whose kernels take the least time one by one.

Kernels leave data in caches to one another, and in concurrent groups they overlap, so that the cheapest sum need not be
the fastest plan; and who is the fastest as a whole can be seen without a measurement of every kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autofuse.errors import SearchError
from autofuse.lazydataclass import dataclass
from autofuse.search.budget.budget import Clock
from autofuse.search.policies.analytical import solve_at
from autofuse.search.policies.context import Context
from autofuse.search.solve.solver import Solution

_SHARE = 0.1
"""Of the budget: most of it for finding them."""
_SOLVE = 0.3
"""Of the time that is left for them: most for solving once."""
_CHOICES, _CLOSE = 4, 1.1
"""Partitions among the cheapest by sum, and how much dearer than the best sum they may be."""
_BETWEEN_SHARE = 0.3
"""Of an average kernel's time: what a kernel may cost the others."""


@dataclass(frozen=True, slots=True)
class RunnersUp:
    """Finds them, next to a partition that was chosen for the sum of its kernels' times."""

    context: Context
    clock: Clock
    prices: Mapping[str, float]
    """Expected, in microseconds by class; infinite for kernels that fail."""
    until: float
    """The share of the budget that may be used."""

    def beside(self, chosen: Solution) -> list[tuple[str, Solution]]:
        """Other solutions, each with words for it; none if the time is over."""
        if not self.clock.share_left(self.until):
            return []
        until = min(self.clock.used() + _SHARE, self.until)
        try:
            best_us = min(self._price(chosen), self._solve(self.prices, until).price_us)
        except SearchError:
            return []
        found = [(f"choice {n}", other) for n, other in enumerate(self._next_best(chosen, best_us, until), 2)]
        fewer = self._fewer_kernels(chosen, best_us, until)
        return found if fewer is None else [*found, ("fewer kernels", fewer)]

    def _next_best(self, chosen: Solution, best_us: float, until: float) -> list[Solution]:
        """The next best ones, each without some class of every better one."""
        found = [chosen]
        while len(found) < _CHOICES and self.clock.share_left(until):
            used = [{kernel.candidate.digest for kernel in solution.kernels} for solution in found]
            try:
                solution = self._solve(self.prices, until, used)
            except SearchError:
                break
            if solution.price_us > _CLOSE * best_us:
                break
            found.append(solution)
        return found[1:]

    def _fewer_kernels(self, chosen: Solution, best_us: float, until: float) -> Solution | None:
        """The best one where every kernel costs a share of an average one more.

        Kernels that are timed alone find their data in the caches; in a plan they push out one another's.
        """
        between_us = _BETWEEN_SHARE * best_us / max(len(chosen.kernels), 1)
        dearer = {digest: us + between_us for digest, us in self.prices.items()}
        try:
            solution = self._solve(dearer, until)
        except SearchError:
            return None
        return solution if len(solution.kernels) < len(chosen.kernels) else None

    def _price(self, solution: Solution) -> float:
        """What its kernels are expected to take, all of their outputs written."""
        return sum(self.prices[kernel.candidate.digest] for kernel in solution.kernels)

    def _solve(self, prices: Mapping[str, float], until: float, unlike: Sequence[Collection[str]] = ()) -> Solution:
        seconds = self.clock.solve_s(self.context.deadline_s, until, _SOLVE)
        return solve_at(self.context, self.context.space, prices, seconds, unlike)
