"""Loops that a driver and blocks of rows can run: the winner's are raced against the other way, whatever prices say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autofuse.fusion.candidate import KernelCandidate
from autofuse.lazydataclass import replace
from autofuse.search.plans.planning import Tuned, run_otherwise
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.tune.finalists import NoPlanRunsError, Races, Standings

Terms = tuple[float, float | None]
"""Of a race: as `Races.decide` takes them."""


def best_ways(ended: Standings, context: Context, races: Races, terms: Callable[[], Terms | None]) -> Standings:
    """The winner with each of its loops run as it is, or in the other way where that is faster.

    `terms`: of the next race; None if there is no time for one.
    """
    for number, kernel, other in _other_ways(context, ended.winner.partition):
        now = terms()
        if now is None or ended.problem:
            break
        winner = ended.winner
        before, plan = winner.plan.kernels[number], run_otherwise(winner.plan, number, kernel, other)
        try:
            again = races.decide([replace(winner, plan=plan), winner], *now)
        except NoPlanRunsError:  # it ran before
            break
        if again.winner is winner or again.problem:
            continue
        said = f"{before.name} became {plan.kernels[number].name}, which was faster, though its price is higher"
        plan = replace(plan, notes=(*plan.notes, said))
        ended = replace(ended, winner=replace(winner, plan=plan), us=min(ended.us, again.us))
    return ended


def _other_ways(context: Context, partition: Partition) -> Iterator[tuple[int, KernelCandidate, Tuned]]:
    """Such loops by number of the kernel, in the way that they are not run."""
    prices = context.kernels.prices
    for number, chosen in enumerate(partition.kernels):
        if prices.regions is not None and prices.is_driven(chosen.candidate):
            kernel = partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs)
            other = prices.regions.other_way(kernel)
            if other is not None:
                price = other.price
                yield number, kernel, Tuned(other.schedule, price.predicted_us, None, price.bound, other.regions)
