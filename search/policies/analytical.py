"""The policy `analytical`: the cheapest partition of the whole space, and what is known of the cheapest ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autofuse.lazydataclass import dataclass
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import decided
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.prices.priced import Priced
from autofuse.search.prices.pricing import priced
from autofuse.search.solve.coverprogram import MemoryConstraint
from autofuse.search.solve.dominance import undominated
from autofuse.search.solve.solver import Chosen, Solution, lower_bound
from autofuse.search.space.candidates import Space


@dataclass(frozen=True, slots=True)
class Analytical:
    """The cheapest partition of the full space at the cost model's prices."""

    name: str = "analytical"

    def partition(self, context: Context) -> Partition:
        space = context.space
        prices = context.prices(space)
        solution = solve_at(context, space, {digest: price.predicted_us for digest, price in prices.items()})
        known = predicted(solution.kernels, prices)
        return Partition(space.atom_graph, solution.kernels, known, solution.price_us, solution)


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
