"""The contract of search policies: each turns a program into a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from autofuse.fusion.atoms import AtomGraph
from autofuse.lazydataclass import dataclass
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.context import Context
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.solve.solver import Chosen, Solution


@dataclass(frozen=True, slots=True)
class Partition:
    """What a policy returns."""

    atoms: AtomGraph
    kernels: tuple[Chosen, ...]
    """In running order."""
    known: Mapping[str, Tuned]
    """Schedules and prices by digest of the chosen kernels."""
    price_us: float
    solution: Solution | None = None
    notes: tuple[str, ...] = ()
    """What people should know of how it was found."""


class SearchPolicy(Protocol):
    """Decides which kernels compute a program.

    A policy must return kernels whose outputs cover the program's, in an order in which each can run. It may be called
    from any thread, must not keep the context, and must give the same partition for the same context.
    """

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    def partition(self, context: Context) -> Partition:
        """Choose. Raises SearchError or LegalityError if it cannot."""
        ...


def predicted(kernels: Iterable[Chosen], prices: Mapping[str, ClassPrice]) -> dict[str, Tuned]:
    """What the model says of each kernel, by digest."""
    return {
        chosen.candidate.digest: Tuned(
            predicted_us=prices[chosen.candidate.digest].predicted_us, bound=prices[chosen.candidate.digest].bound
        )
        for chosen in kernels
    }


def at_model_prices(context: Context, atoms: AtomGraph, kernels: tuple[Chosen, ...]) -> Partition:
    """Kernels in running order, compiled, at the model's prices."""
    candidates = [chosen.candidate for chosen in kernels]
    context.kernels.prices.compile(candidates)
    prices = context.kernels.prices.of(candidates)
    total = sum(prices[candidate.digest].predicted_us for candidate in candidates)
    return Partition(atoms, kernels, predicted(kernels, prices), total)
