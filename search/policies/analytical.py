"""The policy `analytical`: the cheapest partition of the whole space, and what is known of the cheapest ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from autofuse.lazydataclass import dataclass, field, replace
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import decided
from autofuse.search.policies.fewerlaunches import with_fewer_launches
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.prices.priced import Priced
from autofuse.search.prices.pricing import priced
from autofuse.search.solve.coverprogram import MemoryConstraint
from autofuse.search.solve.dominance import undominated
from autofuse.search.solve.solver import Chosen, Solution, lower_bound
from autofuse.search.space.candidates import Space

ROUNDS = 12
"""Most times that a program is solved, compiled and priced anew."""
_JOINING_SHARE = 0.1
"""Of the time for one solve: what is there for fewer launches, where solving took all of it."""


@dataclass(frozen=True, slots=True)
class Analytical:
    """The cheapest partition of the full space at the cost model's prices.

    What only a compiler knows of kernels (registers, spills) is estimated for all of them. The chosen ones are
    compiled, and if that changes a price, the program is solved anew, until all that is chosen was priced so. In the
    end kernels may compute small values for themselves, where the target then starts all of them in less time.
    """

    name: str = "analytical"
    clock: Callable[[], float] = field(default=time.monotonic, compare=False, repr=False)
    """Seconds: the context's time for one solve is for all of them."""

    def partition(self, context: Context) -> Partition:
        space, kernels = context.space, context.kernels.prices
        end, note = self.clock() + context.deadline_s, ""
        tried: list[Solution] = []
        while not note:
            left = end - self.clock() if tried else context.deadline_s
            tried.append(solve_at(context, space, _predicted_us(context, space), left))
            if not kernels.compile(chosen.candidate for chosen in tried[-1].kernels):
                return self._joined(context, _partition(context, space, tried[-1]), end)
            if len(tried) == ROUNDS:
                note = f"in each of {ROUNDS} rounds, compiling what was chosen made it dearer than was expected"
            elif self.clock() >= end:
                note = "there was no time to choose anew after kernels were compiled"
        us = _predicted_us(context, space)
        sums = [sum(us[chosen.candidate.digest] for chosen in solution.kernels) for solution in tried]
        least = min(sums)
        best = tried[sums.index(least)]
        bound = min(bound_at(context, space, us), least)
        found = _partition(context, space, replace(best, price_us=least, bound_us=bound, optimal=False), note)
        return self._joined(context, found, end)

    def _joined(self, context: Context, partition: Partition, end: float) -> Partition:
        """The partition, or one that is started in less time, looked for until `end` and a little longer."""
        until = end + _JOINING_SHARE * context.deadline_s
        return with_fewer_launches(context, partition, lambda: self.clock() >= until)


def _predicted_us(context: Context, space: Space) -> dict[str, float]:
    return {digest: price.predicted_us for digest, price in context.prices(space).items()}


def _partition(context: Context, space: Space, solution: Solution, *notes: str) -> Partition:
    known = predicted(solution.kernels, context.prices(space))
    return Partition(space.atom_graph, solution.kernels, known, solution.price_us, solution, notes)


def solve_at(
    context: Context,
    space: Space,
    price: Mapping[str, float],
    deadline_s: float | None = None,
    unlike: Sequence[Collection[str]] = (),
) -> Solution:
    """The cheapest partition at the given prices per class; classes priced infinite are left out.

    `deadline_s`: by default the context's. `unlike`: as for `solve`. Raises SearchError if the classes that are left
    cannot compute the program, or not in the memory that there is.
    """
    kernels = _at(context, space, price)
    seconds = context.deadline_s if deadline_s is None else deadline_s
    if context.memory is None:
        return context.solve(space.atom_graph, kernels, seconds, unlike=unlike, segments=space.segments)

    def solve_within(constraints: Sequence[MemoryConstraint], left: float) -> Solution:
        segments = () if constraints else space.segments  # what is alive at one moment may be of several segments
        return context.solve(space.atom_graph, kernels, left, unlike=unlike, segments=segments, constraints=constraints)

    def known(kernels: Sequence[Chosen]) -> Sequence[Tuned]:
        return decided(context, Partition(space.atom_graph, tuple(kernels), {}, 0.0))

    return context.memory.solve(space.atom_graph, solve_within, seconds, known)


def dominated_at(context: Context, space: Space, price: Mapping[str, float]) -> int:
    """How many candidates the solver leaves out at the given prices per class, as two smaller ones cost no more."""
    kernels = _at(context, space, price)
    return len(kernels) - len(undominated(space.atom_graph, kernels))


def bound_at(context: Context, space: Space, price: Mapping[str, float]) -> float:
    """What no partition costs less than at the given prices per class; at most the price of the cheapest one."""
    return lower_bound(space.atom_graph, priced(space, price, context.model, {}), space.segments)


def _at(context: Context, space: Space, price: Mapping[str, float]) -> list[Priced]:
    return priced(space, price, context.model, context.kernels.prices.saved(space))
